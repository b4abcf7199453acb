"""Why a candidate was not chosen: what it costs, what it repeats, and what the order would be worth with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from corag.errors import InputError
from corag.rerankers.scorers import CachedScorer
from corag.selectors.problem import SelectionProblem
from corag.types import FloatArray, Order, TokenCounter

REPEATS = 0.8
"""Share of a candidate's words in one chosen chunk from which on it is said to repeat that."""
_WORD = re.compile(r"\w{3,}")


@dataclass
class Verdicts:
    """What can be said about each candidate, given the order that was chosen.

    Attributes:
        problem: Question, candidates and budget.
        scorer: Values orders of them, and remembers the values.
        tokens: Counts as the answering model does.
        order: The chosen order; empty for none.
        token_price: What a token costs, in units of the reranker's values; 0 where cost does not decide.
        num_scored: Orders that the search scored.
        value: The reranker's value of the chosen order; None for an empty one.
    """

    problem: SelectionProblem
    scorer: CachedScorer
    tokens: TokenCounter
    order: Order
    token_price: float
    num_scored: int
    value: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.value = float(self.scorer([self.order])[0]) if self.order else None
        self._words = [set(_WORD.findall(chunk.text.lower())) for chunk in self.problem.chunks]

    @cached_property
    def singles(self) -> FloatArray:
        """The value of each candidate by itself, `[n]`."""
        return self.scorer([(index,) for index in range(len(self.problem.chunks))])

    def of_all(self) -> list[dict[str, Any]]:
        """Return a verdict for each candidate.

        `chosen` is its place in the order, from 0, or None; `with` and `without` are value and tokens of the order with
        it behind or without it; `reasons` are pairs of a kind and a sentence, the weightiest first.
        """
        indices = range(len(self.problem.chunks))
        others = {index: (*self.order, index) for index in indices if index not in self.order}
        less = {index: tuple(one for one in self.order if one != index) for index in self.order}
        changed = {**others, **{index: order for index, order in less.items() if order}}
        values = dict(zip(changed, self.scorer(list(changed.values())).tolist(), strict=True)) if changed else {}
        texts = [self.problem.text(order) for order in changed.values()]
        costs = dict(zip(changed, self.tokens.count(texts).tolist(), strict=True)) if changed else {}
        found = []
        for index in indices:
            changed_to = {"value": values.get(index), "tokens": costs.get(index, 0)}
            if index in self.order:
                found.append({"chosen": self.order.index(index), "without": changed_to, "reasons": []})
            else:
                reasons = self._reasons(index, values[index], costs[index])
                found.append({"chosen": None, "with": changed_to, "reasons": reasons})
        return found

    def _reasons(self, index: int, value: float, tokens: int) -> list[tuple[str, str]]:
        budget = self.problem.budget_tokens
        alone = int(self.problem.costs[index]) - self.problem.separator_tokens
        reasons = []
        if alone > budget:
            reasons.append(("too large", f"It costs {alone:,} tokens by itself; the budget is {budget:,}."))
        if (repeated := self._repeated(index)) is not None:
            share, place = repeated
            reasons.append(("repeats", f"{share:.0%} of its words stand in the chosen chunk at place {place + 1}."))
        if alone <= budget < tokens:
            reasons.append(("no room", f"With it the text would cost {tokens:,} tokens; the budget is {budget:,}."))
        if self.value is None:
            return reasons or [("not chosen", "The search chose nothing.")]
        gain, price = value - self.value, self.token_price * alone
        if gain <= 0:
            change = "leaves the value at" if gain == 0 else f"lowers the value from {self.value:.3f} to"
            reasons.append(("lowers the value" if gain else "adds nothing", f"Adding it {change} {value:.3f}."))
        elif tokens <= budget and gain <= price:
            reasons.append(
                ("not worth its cost", f"It would add {gain:.3f} to the value, and lambda charges {price:.3f} for it.")
            )
        elif tokens <= budget:
            reasons.append(
                ("not reached", f"It would add {gain:.3f} and fits: the {self.num_scored:,} orders that the search "
                 "scored lead elsewhere. Raise the iterations.")
            )  # fmt: skip
        return reasons

    def _repeated(self, index: int) -> tuple[float, int] | None:
        """Return the largest share of a candidate's words that one chosen chunk holds, and the place of that."""
        words = self._words[index]
        shares = [(len(words & self._words[one]) / len(words), -place) for place, one in enumerate(self.order) if words]
        share, place = max(shares, default=(0.0, 0))
        return (share, -place) if share >= REPEATS else None


def order_of(problem: SelectionProblem, ids: tuple[str, ...]) -> Order:
    """Return the places of chosen chunks among the candidates.

    Raises:
        InputError: One of them is no candidate.
    """
    places = {chunk.id: place for place, chunk in enumerate(problem.chunks)}
    if missing := [name for name in ids if name not in places]:
        raise InputError(f"chunk {missing[0]!r} is no candidate of this question")
    return tuple(places[name] for name in ids)
