"""Every configuration on a question: the rows that `corag label` and `corag tune` write.

The measures are those of `corag evaluate`. Memory is shared: a passage is encoded once for all rerankers, an order is
valued once by each, and a context is read once; so `seconds` are what a selection took after the ones before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corag.budget import Budget
from corag.models.trained import load_adapter
from corag.naming import PartName, parse
from corag.selectors.corag.features import question_vectors
from corag.selectors.problem import SelectionProblem
from corag.text.data import Query
from corag.text.documents import Document
from corag.types import Candidate, Embedder
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import Measuring
from experiments.evaluation.methods import with_shared_problem
from experiments.evaluation.metrics import LONG_ANSWER_WORDS, answer_words
from experiments.evaluation.parts import Parts
from experiments.labels.table import FIGURES


class Labeller:
    """Measures configurations on questions.

    Args:
        config: Reader, budget, tokenizer and embedder; its methods are the configurations.
        queries: Questions that may be asked.
        adapter: Folder of an adapter that replaces the shipped one of the same name; rows keep the name.

    Raises:
        ModelError: The adapter is missing or damaged.
    """

    def __init__(self, config: EvaluateConfig, queries: Sequence[Query], adapter: str = "") -> None:
        measured = {name: name for name in config.method_texts}
        if adapter:
            shipped = load_adapter(adapter).config.name
            measured = {name: _with_adapter(name, shipped, adapter) for name in measured}
        self._parts = Parts(config, queries)
        self.budget = Budget(config.budget, self._parts.prompted, config.budget_for)
        selectors = self._parts.methods(tuple(measured.values())).selectors
        self._problems: dict[Any, SelectionProblem] = {}
        self._selectors: dict[str, Any] = {}
        for name, spelling in measured.items():
            self._selectors[name] = with_shared_problem(selectors[spelling], name, self._problems)

    @property
    def embedder(self) -> Embedder:
        """Embeds questions and passages."""
        return self._parts.embedder

    @property
    def tokenizer(self) -> str:
        """Name of what counts tokens."""
        return self._parts.tokens.name

    def rows(
        self, query: Query, candidates: Sequence[Candidate], documents: Mapping[str, Document]
    ) -> list[dict[str, Any]]:
        """Return a row for each configuration, without what belongs to the question."""
        self._problems.clear()
        measuring = Measuring(
            self._selectors,
            self.budget,
            self._parts,
            reads=bool(query.answers),
            timed=True,
            documents=documents,
        )
        [by_name] = measuring.rows([(query, candidates)])
        return [
            {
                "configuration": name,
                "budget_tokens": self.budget.tokens,
                **{measured: float(row[measured]) for measured in FIGURES if row.get(measured) is not None},
                **({} if row["failed"] else {"seconds": row["seconds"]}),
                "error": row.get("error"),
            }
            for name, row in by_name.items()
        ]

    def question(self, query: Query, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Return the vectors that an agent's features are made of; half precision is the table's."""
        budget = self.budget.for_context(query.question)
        problem = SelectionProblem(query.question, candidates, self._parts.tokens, budget)
        [vectors] = question_vectors([problem], self._parts.embedder)
        return {
            "similarities": vectors.similarities.astype(np.float32).tolist(),
            "query_vector": vectors.query.astype(np.float16).tolist(),
            "candidates_vector": vectors.candidates.astype(np.float16).tolist(),
            "texts_vector": vectors.texts.astype(np.float32).tolist(),
            "long_form": answer_words(query.answers) >= LONG_ANSWER_WORDS,
        }


def _with_adapter(configuration: str, shipped: str, adapter: str) -> str:
    """Return a configuration with another adapter where it names the shipped one as its reranker."""
    written = parse(configuration)
    if written.settings.get("reranker") != shipped:
        return configuration
    return written.with_settings(reranker=PartName(shipped, {"adapter": adapter}))
