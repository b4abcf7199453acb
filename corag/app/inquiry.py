"""What the page lets people set, and one question with what was computed for it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from corag.app.source import Evidence
from corag.checks import check_choice, check_count, check_range
from corag.selectors.problem import SelectionProblem, selection_problem
from corag.text.data import Query
from corag.text.units import Unit
from corag.types import Answer, Candidate, TokenCounter

MAX_QUESTION = 4_000
"""Characters of a question."""
MAX_BUDGET = 32_768
MAX_ITERATIONS = 60
POLICIES = ("paper", "public-code", "bayesian", "beam")
UNITS = ("passage", "sentence")
RERANKERS = (
    "minilm-multihop", "minilm-factoid", "minilm-longform", "minilm-sentence", "minilm-maxsim", "minilm-softsim",
    "minilm-cosine", "bm25",
)  # fmt: skip
ALL_METHODS = (
    "corag", "corag(unit=passage)", "corag(unit=sentence)", "naive", "upper(max_orders=20000)", "top-k", "mmr",
    "adagres", "submodular", "adaptive-k", "car", "similarity-cutoff", "prune", "sentence-threshold",
    "extractive-compression", "edc2", "crag", "self-route", "full", "none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """How a question is searched.

    Attributes:
        budget: Most tokens of the context.
        unit: `passage` or `sentence`.
        reranker: Name of the reranker.
        policy: What is scored next; see `search.SearchConfig`, as for the next three.
        iterations: Rounds of scoring.
        exploration: c.
        cost_weight: lambda.

    Raises:
        InputError: A setting is out of its bounds.
    """

    budget: int = 256
    unit: str = "passage"
    reranker: str = ""
    policy: str = "paper"
    iterations: int = 10
    exploration: float = 0.3
    cost_weight: float = 0.1

    def __post_init__(self) -> None:
        check_app_budget(self.budget)
        check_choice("unit", self.unit, UNITS)
        check_choice("policy", self.policy, POLICIES)
        check_count("iterations", self.iterations, "10 is usual", most=MAX_ITERATIONS)
        check_range("exploration", self.exploration, 0, 100, "0.3 is usual")
        check_range("cost_weight", self.cost_weight, 0, 100, "0.1 is usual")


@dataclass
class Inquiry:
    """One question with its candidates, and the values that were computed for it.

    Attributes:
        question: The question.
        query: What a data folder knows about it, or None.
        candidates: Best first.
        evidence: What is known about its evidence, or None.
        lock: Held while something is computed for it.
    """

    question: str
    query: Query | None
    candidates: list[Candidate]
    evidence: Evidence | None
    lock: threading.Lock = field(default_factory=threading.Lock)
    problems: dict[str, SelectionProblem] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)

    def problem(self, unit: str, tokens: TokenCounter, budget: int) -> SelectionProblem:
        """Return the problem of choosing passages or sentences under a budget."""
        if unit not in self.problems:
            self.problems[unit] = selection_problem(self.question, self.candidates, tokens, budget, Unit.parse(unit))
        return replace(self.problems[unit], budget_tokens=budget)


def check_app_budget(budget: int) -> int:
    """Return a budget; `InputError` for one that is out of its bounds."""
    check_count("budget", budget, "256 is usual", most=MAX_BUDGET)
    return budget
