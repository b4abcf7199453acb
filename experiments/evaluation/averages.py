"""Means, totals and quantiles of the rows of a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corag.types import FloatArray
from experiments.evaluation.metrics import trade_off_efficiency

Row = Mapping[str, Any]
"""Figures of one method on one question; a figure that the question does not have is left out."""

MEANS = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "sub_em", "evidence_recall", "evidence_precision", "full_evidence",
    "context_recall", "cost_tokens", "chunks", "scorer_calls", "orders_scored", "value",
)  # fmt: skip
"""Figures that are averaged over the questions that have them; 0 where none has."""
SOME_MEANS = (
    "sentence_recall", "full_sentences", "answer_in_context", "diff_k", "redundancy", "change_in_tokens",
    "answer_similarity", "prompt_tokens", "served_tokens",
)  # fmt: skip
"""The same, of which some methods have none at all: null then, not 0."""
OF_ANSWERS = ("rouge1", "rouge2", "rougeL", "f1", "em", "sub_em")
"""Figures that are null where nothing is read."""
TOTALS = ("over_budget", "truncated", "empty", "failed")
"""Figures that are added up over questions."""


def average(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means, totals and latency quantiles of a method's rows.

    Questions on which the method failed are counted, and in no other figure. `tes` is over those with gold. Grades of
    a judge, and verdicts, with the number of replies without one, are there only if somebody was asked for them.
    """
    means = {name: [float(row[name]) for row in rows if name in row] for name in (*MEANS, *SOME_MEANS)}
    averages = {name: float(np.mean(values)) if values else None for name, values in means.items()}
    found = [(row["full_evidence"], row["chunks"]) for row in rows if "full_evidence" in row]
    errors = [row["error"] for row in rows if "error" in row]
    return {
        **{name: 0.0 if value is None and name in MEANS else value for name, value in averages.items()},
        "tes": mean_tes(np.array(found)) if found else None,
        **{name: int(sum(row.get(name, 0) for row in rows)) for name in TOTALS},
        **latency_figures([row["latency_ms"] for row in rows if "latency_ms" in row] or [0.0]),
        **judged_averages(rows),
        **verdict_averages(rows),
        **({"error": errors[0]} if errors else {}),
    }


def judged_averages(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the means of what a judge was asked for; None for what no reply told."""
    judged = [row for row in rows if "judged" in row]
    names = dict.fromkeys(name for row in judged for name in row["judged"])
    values = {name: [row[name] for row in judged if name in row] for name in names}
    means = {name: float(np.mean(found)) if found else None for name, found in values.items()}
    return {**means, "judge_unusable": sum(row.get("judge_unusable", 0) for row in judged)} if judged else {}


def verdict_averages(rows: Sequence[Row]) -> dict[str, Any]:
    """Return accuracy, and balanced accuracy: the mean of the accuracies for each right verdict.

    A verifier that always says the same has a balanced accuracy of one half.
    """
    decided = [row for row in rows if "accuracy" in row]
    if not decided:
        return {}
    labels = sorted({row["label"] for row in decided})
    by_label = [[row["accuracy"] for row in decided if row["label"] == label] for label in labels]
    return {
        "accuracy": float(np.mean([row["accuracy"] for row in decided])),
        "balanced_accuracy": float(np.mean([np.mean(values) for values in by_label])),
        "verdict_unusable": sum(row["verdict_unusable"] for row in decided),
    }


def latency_figures(latencies_ms: Sequence[float]) -> dict[str, float | None]:
    """Return median and 95% quantile; None without any."""
    quantiles = np.percentile(latencies_ms, [50, 95]).tolist() if len(latencies_ms) else [None, None]
    return dict(zip(("latency_ms_median", "latency_ms_p95"), quantiles, strict=True))


def mean_tes(accuracy_and_chunks: FloatArray) -> float:
    """Return the trade-off efficiency score of questions, `[q, 2]`: how much of the evidence was found, and chunks."""
    return trade_off_efficiency(*accuracy_and_chunks.mean(axis=0).tolist())
