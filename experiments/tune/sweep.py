"""Every configuration on every question: the rows that labels and `corag tune` are made of.

The rows are those of `corag evaluate`; memory is shared, so that a passage is encoded once for all rerankers that are
named, and a context is read once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Any

import numpy as np

from corag.budget import Budget
from corag.selectors.corag.agents import SHARED
from corag.text.data import DataFolder, Query
from experiments.data.config import CandidateSettings
from experiments.data.pools import Pool, open_pool
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.measure import measure, select
from experiments.evaluation.parts import Parts
from experiments.run.journal import Journal
from experiments.tune.configurations import Configuration

FIGURES = (
    "f1", "rougeL", "em", "evidence_recall", "full_evidence", "answer_in_context", "cost_tokens", "chunks",
    "orders_scored", "latency_ms",
)  # fmt: skip
"""What is kept of a row; a figure that a question does not have is left out."""

TIMED = 10
"""Questions on which the time of each configuration is measured."""

Labels = dict[str, dict[str, float]]
"""Figures of a question by configuration."""


def sweep_settings(folder: DataFolder, configurations: Sequence[Configuration], settings: Any) -> EvaluateConfig:
    """Return how configurations are measured; `settings` have `budget`, for the context, and `reader`."""
    return EvaluateConfig(
        data=str(folder.path),
        methods=",".join(dict.fromkeys(one.selector for one in configurations)),
        latency_questions=0,
        budget=settings.budget,
        budget_for="context",
        reader=settings.reader,
    )


@dataclass
class Sweep:
    """Questions of one data folder under configurations.

    Attributes:
        folder: The data folder.
        candidates: Where candidates come from; what a configuration says about retrieval comes first.
        config: Reader, budget, tokenizer and embedder.
        configurations: What is measured.
        index: Index of the corpus; by default one is built in the cache folder.
    """

    folder: DataFolder
    candidates: CandidateSettings
    config: EvaluateConfig
    configurations: Sequence[Configuration]
    index: str | None = None
    _parts: Parts | None = field(default=None, init=False)
    _selectors: dict[str, Any] = field(default_factory=dict, init=False)

    def labels(self, queries: Sequence[Query], journal: Journal) -> Iterator[tuple[Query, Labels]]:
        """Yield the labels of each question; what the journal lacks is measured and recorded first."""
        pools: dict[str | None, Pool] = {}
        for query in queries:
            known: Labels = journal.units.get(self._key(query), {})
            missing = [one for one in self.configurations if str(one) not in known]
            if missing and not pools:
                pools = self._pools([one for one in queries if self._lacks(one, journal)])
            if missing:
                known = {**known, **self._measured(query, missing, pools)}
                journal.add(self._key(query), known)
            yield query, {str(one): known[str(one)] for one in self.configurations}

    def seconds(self, queries: Sequence[Query], number: int = TIMED) -> dict[str, float]:
        """Return the median processor seconds of a selection by each configuration, over so many questions.

        They do not depend on what else runs on the machine. Each configuration has models of its own, so that what
        others encoded saves it nothing. The first question warms up and does not count.
        """
        # Spread out: questions side by side may share a document, whose passages are then no longer new.
        places = np.linspace(0, len(queries) - 1, min(number + 1, len(queries)))
        timed = [queries[int(place)] for place in places]
        pools, parts = self._pools(timed), self._parts_of(timed)
        selectors = dict(parts.methods(shared=False).selectors)
        budget = Budget(self.config.budget, parts.prompted, self.config.budget_for)
        spent: dict[str, list[float]] = {str(one): [] for one in self.configurations}
        for query in timed:
            for one in self.configurations:
                candidates = pools[one.retrieval].candidates(query)
                started = process_time()
                found, _ = select(selectors[one.selector], query, candidates, budget)
                if not isinstance(found, Exception):
                    spent[str(one)].append(process_time() - started)
        return {name: float(np.median(times[1:] or times)) if times else 0.0 for name, times in spent.items()}

    def _key(self, query: Query) -> str:
        return f"{self.config.budget} {query.id}"

    def _lacks(self, query: Query, journal: Journal) -> bool:
        known = journal.units.get(self._key(query), {})
        return any(str(one) not in known for one in self.configurations)

    def _pools(self, queries: Sequence[Query]) -> dict[str | None, Pool]:
        parts = self._parts_of(queries)
        retrievals = dict.fromkeys(one.retrieval for one in self.configurations)
        return {
            retrieval: open_pool(
                self.folder,
                queries,
                parts.embedder,
                replace(self.candidates, retrieval=retrieval or self.candidates.retrieval),
                index=self.index,
                documents_limit=self.candidates.num_candidates,
                quiet=True,
            )
            for retrieval in retrievals
        }

    def _parts_of(self, queries: Sequence[Query]) -> Parts:
        if self._parts is None:
            self._parts = Parts(self.config, lambda _: None, queries=queries)
            with SHARED.set({"encoder": self._parts.encoder}):
                self._selectors = dict(self._parts.methods(shared=True).selectors)
        return self._parts

    def _measured(
        self, query: Query, configurations: Sequence[Configuration], pools: Mapping[str | None, Pool]
    ) -> Labels:
        assert self._parts is not None
        parts, found = self._parts, Labels()
        budget = Budget(self.config.budget, parts.prompted, self.config.budget_for)
        for retrieval in dict.fromkeys(one.retrieval for one in configurations):
            named = {str(one): one for one in configurations if one.retrieval == retrieval}
            [rows] = measure(
                [(query, pools[retrieval].candidates(query))],
                {name: self._selectors[one.selector] for name, one in named.items()},
                budget,
                parts.tokens,
                reader=parts.reader if query.answers else None,
                embedder=parts.embedder,
                documents=self.folder.documents,
            )
            found |= {name: kept(row) for name, row in rows.items()}
        return found


def kept(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a row that labels keep; a selection that failed found and answered nothing."""
    if row.get("failed"):
        return {"failed": 1.0}
    return {name: float(row[name]) for name in FIGURES if name in row}
