"""Why a candidate was not chosen: its cost, what it repeats, and the value of the order with it."""

from __future__ import annotations

import re
from typing import Any

from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from corag.types import Order, TokenCounter

REPEATS = 0.8
"""Share of a candidate's words in one chosen chunk from which on it counts as a repetition."""
_WORD = re.compile(r"\w{3,}")


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
