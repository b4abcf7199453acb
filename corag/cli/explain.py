"""The page of a reply: what is in the prompt, why the rest is not, and the policy tree of the search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from corag.cli.page import Block, Page, Quote, Section, Table
from corag.text.documents import body, citation
from corag.text.units import source_of
from corag.text.visible import one_line
from corag.types import Answer, Selection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from corag.reply import Reply
    from search import SearchResult, SearchTree

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
        quoted = Quote(answer.text or "The reader found no answer.", "answer")
        sections.append(Section("Answer", [quoted, *notes_of(answer)]))
    sections.append(Section("In the prompt", _prompt(reply)))
    if reply.left_out:
        sections.append(Section("Left out", list(_left_out(reply))))
    if explained:
        if trace.result is not None and trace.result.tree is not None:
            sections += _search(selection, trace.result, trace.result.tree)
        figures = trace.to_dict().items()
        rows = [[name.replace("_", " "), _shown(value)] for name, value in figures if value not in ({}, [], ())]
        sections.append(Section("All figures of the selection", [Table(["", ""], rows)], folded=True))
    return Page(reply.question, ". ".join(lead), sections)


def notes_of(answer: Answer) -> list[str]:
    """Return what is wrong with an answer: what it cites that is not there, and that it was cut."""
    unknown = " ".join(f"[{part + 1}]" for part in answer.unknown_citations)
    notes = [f"Cited but not in the context: {unknown}"] if unknown else []
    return notes + ["The answer was cut at the reader's max_answer_tokens; raise that for the rest."] * answer.cut


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


def _search(selection: Selection, result: SearchResult, tree: SearchTree) -> Iterator[Section]:
    """Yield what each text that could be chosen is worth, and why it was chosen or not; and the tree."""
    trace = selection.trace
    orders = [tree.order(node) for node in range(len(tree))]
    nets = tree.value
    if trace.details.get("token_price"):
        per = tree.budget if "preset" in trace.details else REFERENCE_TOKENS
        nets = tree.value - (trace.cost_weight or 0.0) * tree.cost / per
    best: dict[int, int] = {}
    """The best node whose order contains a text."""
    for node, order in enumerate(orders):
        best |= {index: node for index in order if index not in best or nets[node] > nets[best[index]]}
    goal = orders.index(result.order) if result.order in orders else tree.ROOT
    in_prompt = selection.ids
    left = selection.budget_tokens - selection.cost_tokens
    alone = {orders[node][0]: tree.value[node] for node in range(len(tree))[tree.children(tree.ROOT)]}
    rows = []
    for index, (chunk, tokens, _) in enumerate(trace.offered):
        if chunk.id in in_prompt:
            verdict = f"**chosen, number {in_prompt.index(chunk.id) + 1}**"
        elif tokens > selection.budget_tokens:
            verdict = f"larger than the budget of {selection.budget_tokens:,}"
        elif index not in best:
            verdict = f"not tried in the {trace.orders_scored:,} orders that were scored"
        else:
            room = f"; no room beside the chosen (tokens left: {left:,})" if tokens > left else ""
            as_order = " ".join(map(str, orders[best[index]]))
            verdict = f"{nets[goal] - nets[best[index]]:.3f} worse at best, as {as_order}{room}"
        text = one_line(body(chunk))
        excerpt = text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]} ..."
        value = f"{alone[index]:.3f}" if index in alone else "-"
        rows.append([str(index), f"{citation(source_of(chunk))}: {excerpt}", str(tokens), value, verdict])
    note = (
        "Worse: how much value, less the price of tokens, the best scored order with it loses. Values are as the "
        "search saw them: if the reranker gives no probabilities, single candidates span 0 to 1."
    )
    yield Section("Candidates", [Table(["no.", "text", "tokens", "value alone", "chosen, or why not"], rows), note])
    explained = (
        "Each line appends one candidate, by its number above, to the order that it is in. Net: value less the price "
        f"of the tokens, which decides. {len(tree) - 1:,} orders were scored"
        f"{', which are all that fit' if result.complete else ''}; bold is the way to the chosen one."
    )
    blocks = _children(tree, tree.ROOT, nets, result.order, ())
    yield Section("How it was found: the policy tree", [explained, *blocks])


def _children(
    tree: SearchTree, node: int, nets: NDArray[np.float64], goal: Sequence[int], order: tuple[int, ...]
) -> list[Block]:
    """Return the children of a node of this order, best first: those that were expanded, and the best of the others."""
    children = tree.children(node)
    ranked = sorted(range(children.start, children.stop), key=lambda child: -nets[child])
    blocks: list[Block] = []
    for rank, child in enumerate(ranked):
        extended = (*order, int(tree.chunk[child]))
        is_on_path = tuple(goal[: len(extended)]) == extended
        if rank >= CHILDREN and not tree.num_children[child] and not is_on_path:
            continue
        mark, chosen = "**" if is_on_path else "", " (chosen)" if extended == tuple(goal) else ""
        line = (
            f"{mark}+ {extended[-1]}{chosen}{mark}: value {tree.value[child]:.3f}, "
            f"net {nets[child]:.3f}, {tree.cost[child]} tokens"
        )
        if tree.num_children[child]:
            below = _children(tree, child, nets, goal, extended)
            title = f"{line}, {tree.visits[child]} visits"
            blocks.append(Section(title, below, folded=not is_on_path, unfolded=is_on_path))
        else:
            blocks.append(line)
    if more := len(ranked) - len(blocks):
        blocks.append(f"and {more} more, none better")
    return blocks


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_shown(inner)}" for name, inner in value.items())
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value)
