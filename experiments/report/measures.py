"""The table of measures: what `corag evaluate` measures, and how every result, table, page and plot shows it.

A new measure is one entry in `MEASURES`: it is then computed for every question and method, summed up in result.json
and `.rows.jsonl`, and shown on the terminal, in reports, in studies of papers and in W&B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.types import FloatArray
from experiments.report.difference import Difference, Statistic, first, paired_difference

if TYPE_CHECKING:
    from experiments.evaluation.outcome import Outcome

Row = Mapping[str, Any]
"""Values of one method on one question, by name; a value that the question does not have is left out."""


@dataclass(frozen=True)
class Measure:
    """One measure.

    Attributes:
        name: Its name in results and rows.
        title: Its heading.
        direction: 1 if more is better, -1 if less is, 0 for neither.
        format: How a value is shown.
        of: Its value on one question, None or NaN if it has none; without a function the row has it already,
            from the clock, a judge or a verifier.
        partial: Whether only some data sets or methods have it: null, not 0, where none has, and left out of tables.
        parts: Values of rows that it is made of; by default its own.
        statistic: What it is of the means of its parts; by default the mean of the first.
        total: In place of means: of the values of all questions, `[n]`, a sum or a quantile. It has no interval.
    """

    name: str
    title: str
    direction: int = 1
    format: str = ".3f"
    of: Callable[[Outcome], float | None] | None = None
    partial: bool = False
    parts: tuple[str, ...] = ()
    statistic: Statistic = first
    total: Callable[[FloatArray], Any] | None = None

    def text(self, value: Any) -> str:
        """Return a value as tables show it; a dash for None."""
        if value is None:
            return "-"
        return format(value, self.format) if isinstance(value, float) else f"{value:,}"

    def values(self, *of_methods: Sequence[Row]) -> FloatArray:
        """Return the parts, `[methods, n, k]`, of the rows of methods, NaN for what a question does not have."""
        names = self.parts or (self.name,)
        cells = [row.get(name) for rows in of_methods for row in rows for name in names]
        return np.array(cells, dtype=float).reshape(len(of_methods), -1, len(names))

    def summary(self, rows: Sequence[Row]) -> Any:
        """Return the measure over questions; where none has it None, or 0 for one that counts."""
        [values] = self.values(rows)
        values = values[~np.isnan(values).any(axis=1)]
        if not len(values):
            return None if self.partial or self.total is not _total else 0
        return self.total(values[:, 0]) if self.total is not None else float(self.statistic(values.mean(axis=0)))

    def difference(self, ours: Sequence[Row], theirs: Sequence[Row] | None = None) -> Difference | None:
        """Return how much more one method has than another, given rows of both in one order; None where it has none.

        Without the other, it is the measure itself with its interval.
        """
        values = self.values(ours) if theirs is None else self.values(ours, theirs)
        known = ~np.isnan(values).any(axis=(0, 2))
        if self.total is not None or not known.any():
            return None
        groups = np.array([row.get("group", str(number)) for number, row in enumerate(ours)])
        return paired_difference(*values[:, known], groups=groups[known].tolist(), statistic=self.statistic)


def _total(values: FloatArray) -> int:
    return int(values.sum())


_p95 = partial(np.percentile, q=95)


def _tes(means: FloatArray) -> FloatArray:
    """Return accuracy / ln(1 + mean chunks), 0 without any: the trade-off efficiency score of CAR (section 5.1)."""
    accuracy, chunks = np.moveaxis(means, -1, 0)
    scores: FloatArray = np.divide(accuracy, np.log1p(chunks), out=np.zeros_like(accuracy), where=chunks > 0)
    return scores


def _balanced(means: FloatArray) -> FloatArray:
    """Return the mean of the accuracies for either right verdict: one half for who always says the same."""
    accuracy, share, accuracy_on_first = np.moveaxis(means, -1, 0)
    both = (share > 0) & (share < 1)
    share = np.where(both, share, 0.5)
    halves = (accuracy_on_first / share + (accuracy - accuracy_on_first) / (1 - share)) / 2
    scores: FloatArray = np.where(both, halves, accuracy)
    return scores


def _answer(name: str, title: str, **settings: Any) -> Measure:
    return Measure(name, title, of=lambda one: one.answers.get(name), **settings)


def _evidence(name: str, title: str, **settings: Any) -> Measure:
    return Measure(name, title, of=lambda one: one.evidence.get(name), **settings)


_LIST = [
    _answer("answer_recall", "answer recall", partial=True),
    Measure("context_recall", "context recall", of=lambda one: one.context_recall, partial=True),
    Measure("cost_tokens", "tokens", -1, ".1f", of=lambda one: one.cost),
    _answer("rouge1", "ROUGE-1"),
    _answer("rouge2", "ROUGE-2"),
    _answer("rougeL", "ROUGE-L"),
    _answer("f1", "F1"),
    _answer("em", "exact match"),
    _answer("sub_em", "substring match"),
    _evidence("evidence_recall", "evidence recall"),
    _evidence("evidence_precision", "evidence precision"),
    _evidence("full_evidence", "full evidence"),
    _evidence("sentence_recall", "sentence recall", partial=True),
    _evidence("full_sentences", "full sentences", partial=True),
    _evidence("character_recall", "character recall", partial=True),
    _evidence("character_precision", "character precision", partial=True),
    _evidence("character_iou", "character IoU", partial=True),
    _answer("answer_in_context", "answer in context", partial=True),
    Measure("chunks", "chunks", 0, ".2f", of=lambda one: len(one.selection)),
    Measure("value", "value", 0, of=lambda one: one.selection.value),
    Measure("scorer_calls", "scorer calls", -1, ".1f", of=lambda one: one.selection.trace.scorer_calls),
    Measure("orders_scored", "orders scored", -1, ".1f", of=lambda one: one.selection.trace.orders_scored),
    Measure("diff_k", "diff-k", -1, ".2f", of=lambda one: one.diff_k, partial=True),
    Measure("redundancy", "redundancy", -1, of=lambda one: one.redundancy, partial=True),
    Measure("change_in_tokens", "change in tokens, %", -1, ".0f", of=lambda one: one.change_in_tokens, partial=True),
    Measure("answer_similarity", "answer similarity", of=lambda one: one.answer_similarity, partial=True),
    Measure("prompt_tokens", "prompt tokens", -1, ".1f", of=lambda one: one.prompt_tokens, partial=True),
    Measure("served_tokens", "served tokens", -1, ".1f", of=lambda one: one.served_tokens, partial=True),
    Measure("tes", "TES", parts=("full_evidence", "chunks"), statistic=_tes, partial=True),
    Measure("recall_tes", "TES of recall", parts=("evidence_recall", "chunks"), statistic=_tes, partial=True),
    Measure("judge", "judged grade", partial=True),
    Measure("mention", "correct mention", partial=True),
    Measure("answer_relevancy", "answer relevancy", partial=True),
    Measure("contextual_relevancy", "contextual relevancy", partial=True),
    Measure("faithfulness", "faithfulness", partial=True),
    Measure("hallucination", "hallucination", -1, partial=True),
    Measure("judge_unusable", "unusable judgements", -1, partial=True, total=_total),
    Measure("accuracy", "accuracy", partial=True),
    Measure(
        "balanced_accuracy", "balanced accuracy", partial=True, statistic=_balanced,
        parts=("accuracy", "right_is_first", "accuracy_on_first"),
    ),
    Measure("over_budget", "over budget", -1, of=lambda one: int(one.is_over_budget), total=_total),
    Measure("truncated", "truncated", -1, of=lambda one: one.selection.trace.truncated, total=_total),
    Measure("empty", "empty", -1, of=lambda one: int(len(one.selection) == 0), total=_total),
    Measure("failed", "failed", -1, total=_total),
    Measure("latency_ms_median", "ms, cold", -1, ".1f", parts=("latency_ms",), total=np.median),
    Measure("latency_ms_p95", "ms, cold, 95%", -1, ".1f", parts=("latency_ms",), total=_p95),
    Measure("warm_latency_ms_median", "ms, warm", -1, ".1f", parts=("warm_latency_ms",), total=np.median),
    Measure("warm_latency_ms_p95", "ms, warm, 95%", -1, ".1f", parts=("warm_latency_ms",), total=_p95),
]  # fmt: skip

MEASURES: dict[str, Measure] = {one.name: one for one in _LIST}
"""All measures, by name, in the order in which they are shown.

`tes` is the trade-off efficiency score of CAR (section 5.1), `diff_k` that of Adaptive-k (section 5.5), change in
tokens and answer similarity those of CRAG (section 3.1.3), the judged ones follow `experiments.evaluation.judge`, and
context recall and those of characters `experiments.evaluation.metrics`.
"""
OF_ANSWERS = ("rouge1", "rouge2", "rougeL", "f1", "em", "sub_em")
"""Null if nothing was read."""
OF_TIME = ("latency_ms_median", "latency_ms_p95", "warm_latency_ms_median", "warm_latency_ms_p95")
"""Null if no selection was timed."""


def measure(name: str) -> Measure:
    """Return a measure by name; a name that is not in the table is one of ir-measures, in the rows already."""
    return MEASURES.get(name) or Measure(name, name, partial=True)


def measured(outcome: Outcome) -> dict[str, Any]:
    """Return every value that one question has."""
    values = {one.name: one.of(outcome) for one in MEASURES.values() if one.of is not None}
    return {name: value for name, value in values.items() if value is not None and value == value}  # not NaN


def summaries(rows: Sequence[Row]) -> dict[str, Any]:
    """Return every measure over the rows of a method; those of a judge or verifier, if one was asked.

    Questions on which the method failed are counted, and in no other measure; the first error is in `error`.
    """
    computed = {one.name for one in MEASURES.values() if one.of is not None}
    present = computed.union(*rows, *(row.get("judged", ()) for row in rows))
    shown = [one for one in MEASURES.values() if not one.partial or present.issuperset(one.parts or (one.name,))]
    errors = [row["error"] for row in rows if "error" in row]
    return {one.name: one.summary(rows) for one in shown} | ({"error": errors[0]} if errors else {})
