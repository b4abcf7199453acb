"""Every configuration on a question: the rows that `corag label` and `corag tune` write.

The measures are those of `corag evaluate`. Memory is shared: a passage is encoded once for all rerankers, an order is
valued once by each, and a context is read once; so `seconds` are what a selection took after the ones before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corag.budget import Budget
from corag.naming import parse
from corag.selectors.base import BudgetedSelector
from corag.selectors.corag.agents import SHARED
from corag.selectors.corag.features import question_vectors
from corag.selectors.problem import SelectionProblem
from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Candidate, Embedder, Selection
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import Measuring
from experiments.evaluation.parts import Parts
from experiments.labels.table import MEASURES


class Labeller:
    """Measures configurations on questions.

    Args:
        config: Reader, budget, tokenizer and embedder; its methods are the configurations.
        configurations: Spellings of selectors.
        queries: Questions that may be asked.
    """

    def __init__(self, config: EvaluateConfig, configurations: Sequence[str], queries: Sequence[Query]) -> None:
        self._parts = Parts(config, queries)
        self.budget = Budget(config.budget, self._parts.prompted, config.budget_for)
        with SHARED.set({"encoder": self._parts.encoder}):
            selectors = dict(self._parts.methods(shared=True).selectors)
        self._problems: dict[Any, SelectionProblem] = {}
        self._selectors: dict[str, Any] = {}
        for name in configurations:
            selector = selectors[name]
            if isinstance(selector, BudgetedSelector) and _is_plain(name):
                self._selectors[name] = _WithSharedProblem(selector, self._problems)
            else:
                self._selectors[name] = selector

    @property
    def embedder(self) -> Embedder:
        """Embeds questions and passages."""
        return self._parts.embedder

    @property
    def tokenizer(self) -> str:
        """Name of what counts tokens."""
        return self._parts.tokens.name

    def rows(
        self,
        query: Query,
        candidates: Sequence[Candidate],
        documents: Mapping[str, Document],
        configurations: Sequence[str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return a row for each configuration, without what belongs to the question; all by default."""
        self._problems.clear()
        names = list(self._selectors) if configurations is None else configurations
        measuring = Measuring(
            {name: self._selectors[name] for name in names},
            self.budget,
            self._parts,
            reads=bool(query.answers),
            documents=documents,
        )
        [by_name] = measuring.rows([(query, candidates)])
        return [
            {
                "configuration": name,
                "budget_tokens": self.budget.tokens,
                **{measured: float(row[measured]) for measured in MEASURES if row.get(measured) is not None},
                **({} if row["failed"] else {"seconds": row["latency_ms"] / 1000}),
                "error": row.get("error"),
            }
            for name, row in by_name.items()
        ]

    def question(self, query: Query, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the vectors that an agent's features are made of; half precision is the table's."""
        problem = SelectionProblem(query.question, candidates, self._parts.tokens, self.budget.tokens)
        [vectors] = question_vectors([problem], self._parts.embedder)
        return {
            "similarities": vectors.similarities.astype(np.float32).tolist(),
            "query_vector": vectors.query.astype(np.float16).tolist(),
            "candidates_vector": vectors.candidates.astype(np.float16).tolist(),
        }


def _is_plain(configuration: str) -> bool:
    """Whether a selector chooses from the candidates themselves: not by an agent or another selector."""
    return not {"agent", "selector", "part"} & parse(configuration).settings.keys()


@dataclass
class _WithSharedProblem:
    """A selector whose problems, with the values of their orders, serve other selectors of the same unit, too."""

    selector: BudgetedSelector
    problems: dict[Any, SelectionProblem] = field(repr=False)

    @property
    def name(self) -> str:
        return self.selector.name

    def select(self, query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Selection:
        key = (query, budget_tokens, self.selector.unit, self.selector.max_units)
        if key not in self.problems:
            self.problems[key] = self.selector.problem(query, candidates, budget_tokens)
        return self.selector.select_from(self.problems[key])
