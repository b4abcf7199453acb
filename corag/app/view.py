"""What the page shows of a selection, as plain data: texts and traces, why a candidate was not chosen, the tree."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from corag.app.source import Evidence
from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from corag.shown import cut_at_marks
from corag.text.documents import citation
from corag.text.units import Span, source_of
from corag.text.visible import to_json, visible
from corag.types import Chunk, Order, Selection, TokenCounter
from search import SearchConfig, SearchResult, SearchTree
from search.tree import backed_up, terms, utility

REPEATS = 0.8
"""Share of a candidate's words in one chosen chunk from which on it counts as a repetition."""
DECIMALS = 5
_WORD = re.compile(r"\w{3,}")


def visible_data(value: Any) -> Any:
    """Return plain data with control characters made visible in all of its texts; names of fields stay."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {name: visible_data(inner) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [visible_data(inner) for inner in value]
    return value


def title_of(chunk: Chunk) -> str:
    """Return what a chunk is listed under: its source or its title."""
    title = chunk.metadata.get("title")
    return str(title) if title and not chunk.metadata.get("headings") else citation(source_of(chunk))


def trace_rows(selection: Selection) -> list[tuple[str, str]]:
    """Return the fields of a selection's trace with their values as texts."""
    return [
        (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else _text(value))
        for name, value in selection.trace.to_dict().items()
        if value not in ({}, [], ())
    ]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items())
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Sequence):
        return ", ".join(map(_text, value))
    return to_json(value, default=str)


def blocks(selection: Selection, evidence: Evidence | None, marks: Sequence[Span] = ()) -> list[dict[str, Any]]:
    """Return blocks that join to the text of a selection: its chunks, and the text between them.

    A block has `place`, the position of its chunk, from 0, or None; whether it is `evidence`; and `parts`, pairs of a
    text and whether it is in `marks`, which are character spans.
    """
    text, end_of_last = selection.text, 0
    pieces: list[tuple[int | None, int, int]] = []
    for position, (start, end) in enumerate(selection.spans):
        pieces += [(None, end_of_last, start), (position, start, end)]
        end_of_last = end
    pieces.append((None, end_of_last, len(text)))
    return [
        {
            "place": position,
            "evidence": None if position is None or evidence is None else evidence.marks(selection.chunks[position]),
            "parts": cut_at_marks(text, (start, end), marks),
        }
        for position, start, end in pieces
        if position is not None or text[start:end].strip()
    ]


def verdicts(
    problem: SelectionProblem,
    scorer: CachedScorer,
    tokens: TokenCounter,
    order: Order,
    *,
    token_price: float = 0.0,
    num_scored: int = 0,
) -> list[dict[str, Any]]:
    """Return a verdict on each candidate, given the chosen order, which may be empty.

    `token_price` is in units of the reranker's values, 0 if cost does not decide.
    The search scored `num_scored` orders.
    In a verdict, `chosen` is the candidate's position in the order, from 0, or None; `with` and `without` are value and
    tokens of the order with it appended or without it; `reasons` are pairs of a kind and a sentence, weightiest first.
    """
    indices = range(len(problem.chunks))
    changed: dict[int, Order] = {
        index: tuple(other for other in order if other != index) if index in order else (*order, index)
        for index in indices
    }
    values, costs = dict[int, float](), dict[int, int]()
    if scored := {index: changed_order for index, changed_order in changed.items() if changed_order}:
        values = dict(zip(scored, scorer(list(scored.values())).tolist(), strict=True))
        texts = [problem.text(changed_order) for changed_order in scored.values()]
        costs = dict(zip(scored, tokens.count(texts).tolist(), strict=True))
    chosen_value = float(scorer([order])[0]) if order else None
    words = [set(_WORD.findall(chunk.text.lower())) for chunk in problem.chunks]
    rows: list[dict[str, Any]] = []
    for index in indices:
        figures = {"value": values.get(index), "tokens": costs.get(index, 0)}
        if index in order:
            rows.append({"chosen": order.index(index), "without": figures, "reasons": []})
            continue
        budget, cost = problem.budget_tokens, costs[index]
        alone = int(problem.costs[index]) - problem.separator_tokens
        reasons = []
        if alone > budget:
            reasons.append(("too large", f"It costs {alone:,} tokens by itself; the budget is {budget:,}."))
        share, position = _repetition(words, index, order)
        likeness = f"{share:.0%} of its words are in the chosen chunk at position {position + 1}"
        if share >= REPEATS:
            reasons.append(("repeats", f"{likeness}."))
        if alone <= budget < cost:
            reasons.append(("no room", f"With it the text would cost {cost:,} tokens; the budget is {budget:,}."))
        if chosen_value is None:
            reasons = reasons or [("not chosen", "The search chose nothing.")]
        else:
            price = token_price * alone if cost <= budget else None
            reasons += _value_reasons(values[index], chosen_value, price, num_scored, f"{alone:,} tokens", likeness)
        rows.append({"chosen": None, "with": figures, "reasons": reasons})
    return rows


def _value_reasons(
    value: float, chosen_value: float, price: float | None, num_scored: int, size: str, likeness: str
) -> list[tuple[str, str]]:
    """Return why an order's value spoke against it; `price` is that of the added tokens, None if they do not fit."""
    gain = value - chosen_value
    if gain == 0:
        return [("adds nothing", f"Adding it leaves the value at {value:.3f}.")]
    if gain < 0:
        fall = f"from {chosen_value:.3f} to {value:.3f}"
        return [("lowers the value", f"Adding its {size} lowers the value {fall}; {likeness}.")]
    if price is None:
        return []
    if gain <= price:
        return [("not worth its cost", f"It would add {gain:.3f} to the value, and lambda charges {price:.3f} for it.")]
    missed = f"the {num_scored:,} orders that the search scored lead elsewhere. Raise the iterations."
    return [("not reached", f"It would add {gain:.3f} and fits: {missed}")]


def _repetition(words: list[set[str]], index: int, order: Order) -> tuple[float, int]:
    """Return the largest share of a candidate's words that one chosen chunk contains, and its position."""
    own = words[index]
    shares = [(len(own & words[chosen]) / len(own), -position) for position, chosen in enumerate(order) if own]
    share, position = max(shares, default=(0.0, 0))
    return share, -position


def tree_data(problem: SelectionProblem, result: SearchResult, config: SearchConfig, scorer: CachedScorer) -> Any:
    """Return the nodes of a tree, as columns, and the steps in which it grew; None if the policy keeps no tree.

    `tokens` are those of the order by itself, `charge` is the third term of eq. 5, `scaled` the value that
    the search saw, `best` the best order.
    """
    tree = result.tree
    if tree is None:
        return None
    nodes = slice(tree.ROOT + 1, len(tree))
    orders = [tree.order(node) for node in range(nodes.start, nodes.stop)]
    joined = np.array([problem.costs[list(order)].sum() - problem.separator_tokens for order in orders])
    node_of = {order: node for node, order in enumerate(orders, start=1)}
    best = [node_of.get(order, tree.ROOT) for order in result.incumbents]
    return {
        "parent": tree.parent.tolist(),
        "chunk": tree.chunk.tolist(),
        "tokens": [0, *joined.tolist()],
        "charge": [0.0, *_rounded(terms(tree, nodes, config)[2])] if orders else [0.0],
        "value": _rounded(np.concatenate([[0.0], scorer(orders)])) if orders else [0.0],
        "scaled": _rounded(tree.value),
        "steps": [{**step, "best": node} for step, node in zip(steps(tree, config), best, strict=True)],
        "best": node_of.get(result.order, tree.ROOT),
        "complete": result.complete,
    }


def steps(tree: SearchTree, config: SearchConfig) -> list[dict[str, Any]]:
    """Return the expansions of a tree in their order, and what eq. 5 says of its nodes after each.

    A step expands `node` into `count` children from `first` on. `visits`, `mean`, `bonus` and `utility` are columns of
    the nodes that there are after it, the root included, which has no utility.

    A tree keeps only sums. Its history follows from the order of its nodes: all children of an expansion are added at
    once, after all earlier ones.
    """
    replayed = copy(tree)
    replayed.total, replayed.visits, replayed.num_visits = np.zeros_like(tree.total), np.zeros_like(tree.visits), 0
    expanded = np.flatnonzero(tree.num_children)
    expansions = []
    for node in expanded[np.argsort(tree.first_child[expanded])].tolist():
        children = tree.children(node)
        replayed.receive(children, tree.value[children])
        reward, visits = backed_up(replayed, node, tree.value[children], config)
        path = [node]
        while path[-1] != tree.ROOT:
            path.append(int(tree.parent[path[-1]]))
        replayed.total[path] += reward
        replayed.visits[path] += visits
        replayed.num_visits += visits * len(path)
        scored = slice(tree.ROOT + 1, children.stop)
        mean, bonus, _ = terms(replayed, scored, config)
        columns = {"mean": mean, "bonus": bonus, "utility": utility(replayed, scored, config)}
        expansions.append(
            {"node": node, "first": children.start, "count": children.stop - children.start}
            | {"visits": replayed.visits[: children.stop].tolist()}
            | {name: [0.0, *_rounded(column)] for name, column in columns.items()}
        )
    return expansions


def _rounded(values: Any) -> list[float]:
    rounded: list[float] = np.round(values, DECIMALS).tolist()
    return rounded
