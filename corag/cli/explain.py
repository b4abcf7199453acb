"""The page of a reply: what is in the prompt, why the rest is not, and the policy tree of the search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.cli.page import Block, Page, Quote, Section, Table
from corag.text.documents import body, citation
from corag.text.units import source_of
from corag.text.visible import one_line
from corag.types import Selection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from corag.reply import Reply
    from search import SearchTree

MAX_EXCERPT = 120
"""Characters of a candidate that the table shows."""
MAX_LEFT_OUT = 5
"""Candidates that are named for each reason to leave them out."""
CHILDREN = 5
"""Children of a node that the tree shows, besides those that were expanded."""
REFERENCE_TOKENS = 256
"""lambda without a preset is the price of this many tokens."""


def reply_page(reply: Reply, *, explained: bool = False) -> Page:
    """Return the page of a reply; `explained`, with each candidate and the tree, if the search grew one."""
    selection, answer = reply.selection, reply.answer
    trace = selection.trace
    net = f", value {selection.value:.3f}" if trace.chunk_values is not None else ""
    lead = [f"{selection.cost_tokens:,} of {selection.budget_tokens:,} tokens{net}, by `{selection.method}`"]
    lead += [one_line(because)] if (because := trace.details.get("because") or trace.reason) else []
    if reply.counts.prompt_tokens is not None:
        lead.append(f"prompt: {reply.counts.prompt_tokens:,} tokens by {reply.counts.tokenizer}")
    sections = []
    if answer is not None:
        unknown = " ".join(f"[{part + 1}]" for part in answer.unknown_citations)
        notes = [f"Cited but not in the context: {unknown}"] if unknown else []
        notes += (
            ["The answer was cut at the reader's max_answer_tokens; raise that for the rest."] if answer.cut else []
        )
        sections.append(Section("Answer", [Quote(answer.text or "The reader found no answer.", "answer"), *notes]))
    sections.append(Section("In the prompt", _prompt(reply)))
    if reply.left_out:
        sections.append(Section("Left out", list(_left_out(reply))))
    if explained:
        tree = None if trace.result is None else trace.result.tree
        sections.append(Section("Candidates", [_candidates(selection, tree), _note(selection, tree)]))
        if tree is not None and len(tree) > 1:
            sections.append(Section("How it was found: the policy tree", _tree_blocks(selection, tree)))
        figures = trace.to_dict()
        rows = [[name.replace("_", " "), _shown(value)] for name, value in figures.items() if value not in ({}, [])]
        sections.append(Section("All figures of the selection", [Table(["", ""], rows)], folded=True))
    return Page(reply.question, ". ".join(lead), sections)


def _prompt(reply: Reply) -> list[Block]:
    selection = reply.selection
    if not reply.sources:
        return [Quote(selection.text) if selection.text else "Nothing was chosen."]
    return [
        Quote(selection.text[slice(*one.span)], f"{one.marker} {one.citation}{', cited' if one.is_cited else ''}")
        for one in reply.sources
    ]


def _left_out(reply: Reply) -> Iterator[str]:
    """Yield the candidates of which nothing was chosen, by the reason."""
    for reason in dict.fromkeys(one.reason for one in reply.left_out):
        named = [one for one in reply.left_out if one.reason == reason]
        listed = [f"{citation(one.candidate.chunk)} ({one.tokens} tokens)" for one in named[:MAX_LEFT_OUT]]
        more = [f"and {len(named) - MAX_LEFT_OUT} more"] if len(named) > MAX_LEFT_OUT else []
        yield f"because it {reason}: {'; '.join([*listed, *more])}"


def _chosen(selection: Selection) -> dict[str, int]:
    """Return the position in the prompt of each chosen chunk by id."""
    spans = selection.spans or [(place, place) for place in range(len(selection))]
    by_place = sorted(zip(spans, selection.chunks, strict=True), key=lambda part: part[0])
    return {chunk.id: place for place, (_, chunk) in enumerate(by_place)}


def _candidates(selection: Selection, tree: SearchTree | None) -> Table:
    """Return a row for each text that could be chosen: what it is, what it is worth, and why it was chosen or not."""
    chosen, offered = _chosen(selection), selection.trace.offered
    alone = {} if tree is None else _alone(tree)
    reasons = _reasons(selection, tree)
    rows = []
    for index, (chunk, tokens, similarity) in enumerate(offered):
        text = one_line(body(chunk))
        excerpt = text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]} ..."
        value = similarity if tree is None else alone.get(index)
        shown_value = "-" if value is None else f"{value:.3f}"
        verdict = f"**chosen, number {chosen[chunk.id] + 1}**" if chunk.id in chosen else reasons[index]
        rows.append([str(index), f"{citation(source_of(chunk))}: {excerpt}", str(tokens), shown_value, verdict])
    return Table(["no.", "text", "tokens", "similarity" if tree is None else "value alone", "chosen, or why not"], rows)


def _note(selection: Selection, tree: SearchTree | None) -> str:
    trace = selection.trace
    if tree is None:
        return f"{trace.policy or trace.details.get('configuration', selection.method)} grows no tree."
    return (
        "Worse: how much value, less the price of tokens, the best scored order with it loses. Values are as the "
        "search saw them: if the reranker gives no probabilities, single candidates span 0 to 1."
    )


def _reasons(selection: Selection, tree: SearchTree | None) -> Sequence[str]:
    """Return for each candidate why it is not chosen."""
    left = selection.budget_tokens - selection.cost_tokens
    nets = None if tree is None else _net(selection, tree)
    best = None if tree is None or nets is None else _best_with(tree, nets, len(selection.trace.offered))
    reached = None if nets is None or selection.trace.result is None else _node_of(tree, selection.trace.result.order)
    reasons = []
    for index, (_, tokens, _) in enumerate(selection.trace.offered):
        if tokens > selection.budget_tokens:
            reasons.append(f"larger than the budget of {selection.budget_tokens:,}")
        elif tree is None or nets is None or best is None or reached is None:
            reasons.append(f"no room (tokens left: {left:,})" if tokens > left else "not taken")
        elif (node := best[index]) is None:
            reasons.append(f"not tried in the {selection.trace.orders_scored:,} orders that were scored")
        else:
            room = f"; no room beside the chosen (tokens left: {left:,})" if tokens > left else ""
            order = " ".join(map(str, tree.order(node)))
            reasons.append(f"{nets[reached] - nets[node]:.3f} worse at best, as {order}{room}")
    return reasons


def _net(selection: Selection, tree: SearchTree) -> NDArray[np.float64]:
    """Return the value of each node's order less the price of its tokens, `[N]`, on the scale of the search."""
    trace = selection.trace
    if not trace.details.get("token_price"):
        return tree.value
    per = tree.budget if "preset" in trace.details else REFERENCE_TOKENS
    net: NDArray[np.float64] = tree.value - (trace.cost_weight or 0.0) * tree.cost / per
    return net


def _best_with(tree: SearchTree, nets: NDArray[np.float64], candidates: int) -> list[int | None]:
    """Return for each candidate the best node whose order contains it."""
    contains = np.zeros((len(tree), candidates), dtype=bool)
    for node in range(1, len(tree)):  # a parent comes before its children
        contains[node] = contains[tree.parent[node]]
        contains[node, tree.chunk[node]] = True
    best = np.where(contains, nets[:, None], -np.inf).argmax(axis=0)
    return [int(node) if contains[node, index] else None for index, node in enumerate(best)]


def _alone(tree: SearchTree) -> Mapping[int, float]:
    children = tree.children(tree.ROOT)
    return dict(zip(tree.chunk[children].tolist(), tree.value[children].tolist(), strict=True))


def _node_of(tree: SearchTree | None, order: Sequence[int]) -> int:
    """Return the node of an order; the root if the tree does not have it."""
    if tree is None:
        return 0
    node = tree.ROOT
    for chunk in order:
        children = tree.children(node)
        found = np.flatnonzero(tree.chunk[children] == chunk)
        if not len(found):
            return tree.ROOT
        node = children.start + int(found[0])
    return node


def _tree_blocks(selection: Selection, tree: SearchTree) -> list[Block]:
    result = selection.trace.result
    assert result is not None
    goal, path = _node_of(tree, result.order), set[int]()
    node = goal
    while node != tree.ROOT:
        path.add(node)
        node = int(tree.parent[node])
    explained = (
        "Each line appends one candidate, by its number above, to the order that it is in. Net: value less the price "
        f"of the tokens, which decides. {len(tree) - 1:,} orders were scored"
        f"{', which are all that fit' if result.complete else ''}; bold is the way to the chosen one."
    )
    return [explained, *_children(tree, tree.ROOT, _net(selection, tree), path, goal)]


def _children(tree: SearchTree, node: int, nets: Any, path: set[int], goal: int) -> list[Block]:
    """Return the children of a node, best first: those that were expanded, and the best of the others."""
    children = tree.children(node)
    ranked = sorted(range(children.start, children.stop), key=lambda child: -nets[child])
    best = ranked[:CHILDREN]
    kept = [child for child in ranked if child in best or tree.num_children[child] or child in path]
    blocks: list[Block] = []
    for child in kept:
        mark = "**" if child in path else ""
        line = (
            f"{mark}+ {tree.chunk[child]}{' (chosen)' if child == goal else ''}{mark}: value {tree.value[child]:.3f}, "
            f"net {nets[child]:.3f}, {tree.cost[child]} tokens"
        )
        if tree.num_children[child]:
            below = _children(tree, child, nets, path, goal)
            title = f"{line}, {tree.visits[child]} visits"
            blocks.append(Section(title, below, folded=child not in path, unfolded=child in path))
        else:
            blocks.append(line)
    if more := len(ranked) - len(kept):
        blocks.append(f"and {more} more, none better")
    return blocks


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(inner)}" for name, inner in value.items())
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value)
