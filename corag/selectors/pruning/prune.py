"""`prune`: another selector chooses passages; sentences that no answer needs are then dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from corag.checks import check_range
from corag.errors import InputError
from corag.naming import Spelling
from corag.registry import reranker as make_reranker
from corag.registry import tokens as make_tokens
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy, check_policy
from corag.selectors.base import BudgetedSelector, Choice
from corag.selectors.problem import SelectionProblem
from corag.selectors.pruning.order import units_of
from corag.selectors.reranking import default_reranker
from corag.selectors.units import DEFAULT_MAX_UNITS, selection_problem
from corag.selectors.wrapping import built
from corag.text.units import Unit
from corag.types import Candidate, FloatArray, Order, Reranker, ScoreOrders, TokenCounter

DROPPED_AT_ONCE = 0.25
"""Share of a long combination that one round drops, so that n sentences take about 4 n values, not n * n / 2."""
ONE_BY_ONE = 8
"""A combination of at most so many loses one at a time."""
MOST_UNITS = 1000
"""Sentences of all candidates that are set up; those of the chosen passages are then looked at."""


def eliminate(
    order: Order, score_orders: ScoreOrders, fits: Callable[[Order], bool], tolerance: float = 0.0
) -> tuple[Order, float]:
    """Drop from an order, round by round, what its value misses least, and return the best order met, and its value.

    Backward elimination: each round values every order with one member less and drops the member whose loss leaves the
    highest value, of long orders a quarter of the members at once.

    Args:
        order: What may be kept, in the order in which it is valued.
        score_orders: Values orders, higher is better.
        fits: Tells whether an order may be chosen. What a fitting order loses members to is taken to fit.
        tolerance: By how much the value may lie below the best one for fewer members.

    Returns:
        Of the fitting orders whose value is at least the best one less `tolerance`, the one with the fewest members;
        an empty order of value 0 where none fits.
    """
    met: list[tuple[Order, float]] = []
    kept, value = order, float(score_orders([order])[0]) if order else 0.0
    while kept:
        if met or fits(kept):
            met.append((kept, value))
        if len(kept) == 1:
            break
        fewer = [(*kept[:place], *kept[place + 1 :]) for place in range(len(kept))]
        values = score_orders(fewer)
        # Of equally useless ones the last goes first: sources stand best first.
        ranking = sorted(range(len(kept)), key=lambda place: (-values[place], -place))
        count = int(len(kept) * DROPPED_AT_ONCE) if len(kept) > ONE_BY_ONE else 1
        dropped = set(ranking[:count])
        kept = tuple(index for place, index in enumerate(kept) if place not in dropped)
        value = float(values[ranking[0]]) if count == 1 else float(score_orders([kept])[0])
    best = max((value for _, value in met), default=0.0)
    enough = [one for one in met if one[1] >= best - tolerance]
    return next((one for one in reversed(enough) if fits(one[0])), ((), 0.0))


class Prune(BudgetedSelector):
    """Chooses passages as another selector does, and drops the sentences without which their value is higher.

    Dropping begins with all sentences of the chosen passages; see `eliminate`. What stays keeps the order of its
    sources and of the sentences in them. Where no passage fits the budget, the best-ranked one is pruned.

    Args:
        selector: Chooses the passages: name or object; an object must be a `BudgetedSelector`. A text that it wrote
            itself, such as a summary, stays as it is.
        reranker: Values sets of sentences; name or object, None for `default_reranker`. One whose values charge for
            length, as those of the evidence rerankers do, drops most.
        window: How orders longer than the reranker's window are valued; see `corag.rerankers.window`.
        tolerance: How far the value may fall below the best for fewer sentences, in [0, 1].
        refill: Whether the freed tokens buy more passages, which the selector chooses from the rest and which are
            pruned together with the others, until that changes nothing.
        max_units: The most sentences to choose from.
        tokens: Counts tokens as the answering model does: name or object; passed on to a selector given by name.
        settings: Settings of a selector given by name.
    """

    name = "prune"
    max_refunds = 0  # the tokens of whole texts are counted, so shared titles leave nothing to spend

    def __init__(
        self,
        *,
        selector: Spelling | BudgetedSelector = "top-k",
        reranker: Spelling | Reranker | None = None,
        window: WindowPolicy = DEFAULT_POLICY,
        tolerance: float = 0.0,
        refill: bool = False,
        max_units: int = DEFAULT_MAX_UNITS,
        tokens: Spelling | TokenCounter | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(unit="sentence", max_units=max_units, tokens=make_tokens(tokens or "minilm"))
        self.inner = built(selector, self.tokens, settings)
        if Unit.parse(self.inner.unit).size is not None:
            raise InputError(
                f"selector {str(self.inner)!r} has the unit {self.inner.unit!r}; prune cuts the passages that it "
                "chooses into sentences: leave the unit out"
            )
        check_range("tolerance", tolerance, 0, 1, "0 to 0.1 are usual")
        self.window = check_policy(window)
        self.tolerance, self.refill = tolerance, refill
        self._reranker = make_reranker(reranker or default_reranker(self._unit))

    def problem(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> SelectionProblem:
        """Return what `select` chooses from: the sentences of all candidates."""
        return selection_problem(query, candidates, self.tokens, budget_tokens, self._unit, MOST_UNITS)

    def _choose(self, problem: SelectionProblem) -> Choice:
        return self._choose_many([problem])[0]

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        choices = self.inner._choose_many([problem.passages for problem in problems])
        return [self._pruned(problem, choice) for problem, choice in zip(problems, choices, strict=True)]

    def _pruned(self, problem: SelectionProblem, choice: Choice) -> Choice:
        passages, taken = problem.passages, choice.order
        trace: dict[str, Any] = {"selector": self.inner.name}
        if choice.text is not None:
            return replace(choice, order=units_of(problem, taken), trace={**choice.trace, **trace})
        if not taken and passages.costs.min() > passages.capacity:
            taken = tuple(passages.ranking[:1])
        kept, value, counts = self._kept(problem, taken)
        while self.refill and (more := self._more(problem, taken, kept)):
            taken += more
            before = set(kept)
            kept, value, counts = self._kept(problem, taken)
            if set(kept) == before:
                break
        trace |= {"passages": [passages.chunks[index].id for index in taken], **counts}
        if not taken:
            trace["reason"] = choice.trace.get("reason") or f"{self.inner.name} took no passage"
        return Choice(kept, value, trace)

    def _kept(self, problem: SelectionProblem, taken: Order) -> tuple[Order, float, Mapping[str, Any]]:
        """Return the sentences of passages that stay, their value, and what the trace tells of it."""
        offered = [index for index in units_of(problem, taken) if problem.costs[index] <= problem.capacity]
        # Of more sentences than that the best by the first pass are looked at.
        best = set(sorted(offered, key=lambda index: -problem.relevance[index])[: self.max_units])
        offered = [index for index in offered if index in best]
        if not offered:
            return (), 0.0, {}
        pool = problem.subset(offered)
        scorer = pool.scorer(self._reranker, self.window)
        scored: list[int] = []

        def score(orders: Sequence[Order]) -> FloatArray:
            scored.append(len(orders))
            return scorer(orders)

        rows, value = eliminate(
            tuple(range(len(offered))), score, lambda order: self._fits(pool, order), self.tolerance
        )
        counts = {
            "reranker": self._reranker.name,
            "dropped": len(offered) - len(rows),
            "orders_scored": sum(scored),
            "scorer_calls": len(scored),
            "orders_computed": scorer.num_computed,
            "truncated": scorer.num_truncated,
        }
        return tuple(offered[row] for row in rows), value, counts

    def _more(self, problem: SelectionProblem, taken: Order, kept: Order) -> Order:
        """Return further passages that the selector chooses for the tokens that are left."""
        passages = problem.passages
        rest = [index for index in range(len(passages.chunks)) if index not in taken]
        left = problem.budget_tokens - self._cost(problem, kept) - problem.separator_tokens
        if not rest or left < 1:
            return ()
        choice = self.inner._choose(passages.subset(rest, budget_tokens=left))
        return tuple(rest[row] for row in choice.order) if choice.text is None else ()

    def _fits(self, problem: SelectionProblem, order: Order) -> bool:
        # What sentences cost together is known only when they stand below shared titles.
        return self._cost(problem, order) <= problem.budget_tokens

    def _cost(self, problem: SelectionProblem, order: Order) -> int:
        return int(self.tokens.count([problem.text(order)])[0]) if order else 0
