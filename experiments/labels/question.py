"""One question under every configuration."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

import search
from corag.budget import Budget, BudgetFor, reader_and_tokens
from corag.errors import InputError
from corag.models.cached import CachedEmbedder, CachedEncoder, EncoderCounts
from corag.models.minilm import minilm_encoder
from corag.registry import EMBEDDERS, RERANKERS
from corag.rerankers.window import WindowPolicy
from corag.selectors.base import warn_if_few_fit
from corag.selectors.corag.features import question_vectors
from corag.selectors.corag.selector import LOGITS
from corag.selectors.problem import SelectionProblem, selection_problem
from corag.text.data import Query
from corag.text.units import PASSAGE, Unit
from corag.types import (
    Answer,
    BatchReader,
    Embedder,
    LimitedReranker,
    Order,
    Reader,
    Reranker,
    TokenCounter,
)
from experiments.data.pools import Pool
from experiments.evaluation.metrics import answer_figures, evidence_figures
from experiments.labels.config import Grid, LabelConfig
from experiments.labels.searches import TimedScoring, joined_tokens, search_all
from experiments.labels.table import FIGURES
from experiments.labels.work import total

Labelled = dict[str, Any]
"""What the journal keeps of a question: `rows`, one per configuration; `question`, its similarities and vectors;
`work`, the tokens that models read for it, as `experiments.labels.work` counts them."""

DEFAULT_SEARCH: Mapping[str, Any] = {"policy": "paper", "choice": "value-minus-cost"}

Searched = tuple[list[tuple[Order, dict[str, Any]]], dict[str, int]]
"""Order and figures of each configuration with a reranker, and the tokens that its model read."""


@dataclass(eq=False)
class Labeller:
    """Labels questions, and keeps what they have in common: models, and the states of passages.

    Attributes:
        rerankers: The rerankers of the grid, in its order.
        window: What is done with orders that are longer than a reranker's window.
        settings: Of every search, besides those of the grid.
        preset: Of every search, where one is given.
        encoder: What the rerankers and the embedder share, if they do.
    """

    rerankers: Sequence[Reranker]
    grid: Grid
    reader: Reader
    embedder: Embedder
    tokens: TokenCounter
    budget_tokens: int
    window: WindowPolicy
    encoder: CachedEncoder | None = None
    budget_for: BudgetFor = "prompt"
    unit: Unit = PASSAGE
    settings: Mapping[str, Any] = DEFAULT_SEARCH
    preset: search.Preset | None = None
    _counted: EncoderCounts = field(default_factory=EncoderCounts)

    @classmethod
    def of(cls, config: LabelConfig) -> Labeller:
        """Return a labeller with the parts that the settings name."""
        grid = config.grid()
        wants = [name for name in grid.rerankers if _shares(name)]
        shares = bool(wants) or config.embedder == "minilm"
        encoder = CachedEncoder(minilm_encoder()) if shares else None
        given = {"encoder": encoder}
        # Work that a reranker saved with a cache of its own would be charged to nobody.
        uncached = {**given, "cache_mb": 0}
        takes = "encoder" in EMBEDDERS.settings(config.embedder)
        embedder = EMBEDDERS.offer(config.embedder, given)
        reader, tokens = reader_and_tokens(config.reader, config.tokenizer)
        # A preset has a choice of its own.
        settings = {"policy": "paper"} | ({"choice": config.choice} if config.preset is None else {})
        offered = {} if config.preset is None else LOGITS
        return cls(
            [RERANKERS.offer(name, offered, **(uncached if name in wants else {})) for name in grid.rerankers],
            grid,
            reader,
            embedder if takes else CachedEmbedder(embedder, batch=1, cache_mb=0),
            tokens,
            config.budget,
            config.window,
            encoder,
            config.budget_for,
            Unit.parse(config.unit or "passage"),
            settings,
            config.preset,
        )

    @property
    def budget(self) -> Budget:
        """The budget of a prompt."""
        return Budget(self.budget_tokens, self.reader, self.budget_for)

    def label(self, query: Query, pool: Pool) -> Labelled:
        """Return what the journal keeps of a question."""
        asked = self.tokens.count([query.question]).item()
        problem, searches, texts = self._within_budget(query, pool, asked)
        rows = [row for of_reranker, _ in searches for row in of_reranker]
        costs = self.tokens.count([*texts.values()]).tolist() if texts else []
        figures = self._figures(query, problem, texts, costs)
        read_by = {order: asked + cost for order, cost in zip(texts, costs, strict=True)}
        question = self._question(problem.passages)
        reading = {
            "encoded": self._newly_encoded(),
            "read": sum(read_by.values()),
            "independent_read": sum(read_by[order] for order, _ in rows),
            "contexts": len(texts),
            "configurations": len(rows),
        }
        return {
            "rows": [{**row, **figures[order], "error": None} for order, row in rows],
            "question": question,
            "work": total([reading, *(of_reranker for _, of_reranker in searches)]),
        }

    def _within_budget(
        self, query: Query, pool: Pool, asked: int
    ) -> tuple[SelectionProblem, list[Searched], dict[Order, str]]:
        """Return the searches of a question, and the texts that they found, in whose prompts the budget holds."""

        def searched(room: int) -> tuple[SelectionProblem, list[Searched], dict[Order, str]]:
            started = perf_counter()
            problem = selection_problem(query.question, pool.candidates(query), self.tokens, room, self.unit)
            warn_if_few_fit(problem)
            problem_s = perf_counter() - started
            searches = [self._searches(problem, reranker, problem_s, asked) for reranker in self.rerankers]
            return problem, searches, {order: problem.text(order) for rows, _ in searches for order, _ in rows}

        found = self.budget.within(query.question, searched, lambda found: list(found[2].values()))
        for text in found[2].values():
            self.budget.check_window(query.question, text)
        return found

    def failed(self, error: Exception) -> Labelled:
        """Return what the journal keeps of a question that could not be labelled: the error, and no figures."""
        grid = self.grid
        configurations = itertools.product(self.rerankers, grid.explorations, grid.cost_weights, grid.iterations)
        failure = {"context": None, "error": f"{type(error).__name__}: {error}"}
        rows = [{**self._configuration(*one), **dict.fromkeys(FIGURES), **failure} for one in configurations]
        question = dict.fromkeys(("similarities", "query_vector", "candidates_vector", "num_candidates"))
        return {"rows": rows, "question": question, "work": {"encoded": self._newly_encoded()}}

    def _configuration(
        self, reranker: Reranker, exploration: float, cost_weight: float, iterations: int
    ) -> dict[str, Any]:
        return {
            "reranker": self.grid.rerankers[self.rerankers.index(reranker)],
            "iterations": iterations,
            "exploration": exploration,
            "cost_weight": cost_weight,
            "budget_tokens": self.budget_tokens,
        }

    def _searches(self, problem: SelectionProblem, reranker: Reranker, problem_s: float, asked: int) -> Searched:
        """Return order and figures of each configuration with a reranker, and the tokens that their models read."""
        before, started = self._counts(), perf_counter()
        scorer, scoring = problem.scorer(reranker, self.window), TimedScoring(problem)
        bound_s, bound = perf_counter() - started, self._counts() - before
        # What was remembered is charged what it took when it was computed.
        set_up_s = problem_s + bound_s - bound.seconds_run + bound.seconds_asked
        grid, rows, pair_tokens = self.grid, [], 0
        for exploration, cost_weight in itertools.product(grid.explorations, grid.cost_weights):
            settings = {**self.settings, "exploration": exploration}
            found = search_all(
                scoring, reranker, settings, cost_weight, self.window, grid.iterations, self.tokens, self.preset
            )
            for iterations, one in zip(grid.iterations, found, strict=True):
                pair_tokens += one.tokens_scored + asked * one.num_scored
                row = {
                    **self._configuration(reranker, exploration, cost_weight, iterations),
                    "orders_scored": one.num_scored,
                    "latency_ms": 1000 * (set_up_s + one.seconds),
                    "value": float(scorer([one.order])[0]) if one.order else 0.0,
                }
                rows.append((one.order, row))
        if isinstance(reranker, LimitedReranker) and reranker.max_tokens is None:
            # It has no model, so it has no window.
            return rows, {}
        reads_parts = bound.tokens_asked > 0
        joined = sum(joined_tokens(problem, order) + asked for order in scoring.order_s)
        return rows, {
            "joined": 0 if reads_parts else joined,
            "independent_encoded": bound.tokens_asked * len(rows),
            "independent_joined": 0 if reads_parts else pair_tokens,
            "cross_encoder_joined": pair_tokens,
        }

    def _figures(
        self, query: Query, problem: SelectionProblem, texts: Mapping[Order, str], costs: Sequence[int]
    ) -> dict[Order, dict[str, Any]]:
        answers = answer_all(self.reader, query.question, [*texts.values()])
        known: dict[str, Mapping[str, float]] = {}
        figures = {}
        for order, text, cost, answer in zip(texts, texts.values(), costs, answers, strict=True):
            if answer.confidence is not None and not math.isfinite(answer.confidence):
                raise InputError(
                    f"reader {self.reader.name!r} gave the confidence {answer.confidence}; it has to be a number from "
                    "0 to 1, or None"
                )
            if answer.text not in known:
                known[answer.text] = answer_figures(answer.text, query.answers)
            evidence = evidence_figures([problem.chunks[index] for index in order], query.gold)
            figures[order] = {
                **known[answer.text],
                "confidence": answer.confidence,
                **(evidence or dict.fromkeys(("evidence_recall", "evidence_precision", "full_evidence"))),
                "cost_tokens": cost if text else 0,
                "chunks": len(order),
                "context": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12],
            }
        return figures

    def _question(self, problem: SelectionProblem) -> dict[str, Any]:
        """Return the vectors that an agent's features are made of; half precision is the table's."""
        (vectors,) = question_vectors([problem], self.embedder)
        return {
            "similarities": vectors.similarities.astype(np.float32).tolist(),
            "query_vector": vectors.query.astype(np.float16).tolist(),
            "candidates_vector": vectors.candidates.astype(np.float16).tolist(),
            "num_candidates": len(problem.chunks),
        }

    def _counts(self) -> EncoderCounts:
        return EncoderCounts() if self.encoder is None else self.encoder.counts

    def _newly_encoded(self) -> int:
        """Return the tokens that went through the shared encoder since this was last asked, those of pools included."""
        counts = self._counts()
        spent, self._counted = counts - self._counted, counts
        return spent.tokens_run


def answer_all(reader: Reader, question: str, contexts: Sequence[str]) -> list[Answer]:
    """Return the answer of a question in each context, in shared batches where the reader makes them."""
    if isinstance(reader, BatchReader):
        return reader.answer_many([question] * len(contexts), contexts)
    return [reader.answer(question, context) for context in contexts]


def _shares(name: str) -> bool:
    return {"encoder", "cache_mb"} <= set(RERANKERS.settings(name))
