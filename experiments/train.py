"""From a label table to a trained agent."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

import agent
import corag
from corag.errors import DataError, InputError
from experiments.label import read_questions, read_table
from experiments.pools import embed_all

logger = logging.getLogger(__name__)

SETTINGS = ("iterations", "exploration", "cost_weight")
EVERY_QUESTION = -1.0
"""The margin with which every question that can be answered at all counts for the reranker label."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TrainAgentConfig:
    """Train the configuration agent on a label table.

    Attributes:
        labels: The table that `corag label` wrote.
        out: Folder for the checkpoint (`checkpoint/`), logs, and the state of an unfinished training.
        train_split: Split to learn from.
        val_split: Split that chooses the best epoch; empty for none.
        metric: Figure of the table that makes one configuration better than another.
        margin: A question counts for the reranker label when the best reranker is better than the next by more than
            this share (the paper's rule is 10% ROUGE-L).
        training: The training's own settings.
        quiet: No progress.
    """

    labels: str
    out: str
    train_split: str = "train"
    val_split: str = "dev"
    metric: str = "rougeL"
    margin: float = 0.1
    training: agent.TrainConfig = field(default_factory=lambda: agent.TrainConfig(logger="wandb"))
    quiet: bool = False


def train(config: TrainAgentConfig) -> agent.TrainReport:
    """Train an agent and save its checkpoint; an interrupted training goes on where it stopped.

    Raises:
        DataError: The table is damaged or has no such split or figure.
        agent.AgentError: There is too little to learn from.
    """
    rows, metadata = read_table(config.labels)
    questions = {(row["data"], row["query"]): row["question"] for row in read_questions(config.labels)[0]}
    rows = [{**row, "question": questions[row["data"], row["query"]]} for row in rows]
    rows = _with_metric(rows, config)
    training = _of_split(rows, config.train_split, config.labels)
    validation = _of_split(rows, config.val_split, config.labels) if config.val_split else None
    rerankers = tuple(dict.fromkeys(row["reranker"] for row in rows))
    embedder = corag.embedder(metadata["embedder"])
    agent_config = agent.AgentConfig(
        feature_dim=embedder.dimension,
        rerankers=rerankers,
        ranges=agent.Ranges(
            iterations=_range(rows, "iterations"),
            exploration=_range(rows, "exploration"),
            cost_weight=_range(rows, "cost_weight"),
        ),
        embedder=metadata["embedder"],
        fixed=best_single(training, config.metric),
    )
    settings = metadata["settings"]
    data = "/".join(Path(settings["data"]).parts[-2:])  # a model card names the data, not the machine it lay on
    facts = {
        "labels": f"{len(rows)} rows over {len(questions)} questions of {data}",
        "label": f"{config.metric} of the answer by reader {settings['reader']} at {settings['budget']} tokens",
        "candidates": f"{settings['num_candidates']}, chunks of {settings['max_tokens']} tokens",
        "best single configuration": agent_config.fixed,
        "commit": commit(),
    }
    return agent.fit(
        targets(training, rerankers, embedder, config),
        targets(validation, rerankers, embedder, config) if validation else None,
        agent_config,
        config.training,
        config.out,
        facts=facts,
        progress=not config.quiet,
    )


def targets(
    rows: Sequence[Row], rerankers: Sequence[str], embedder: corag.types.Embedder, config: TrainAgentConfig
) -> agent.TrainingTable:
    """Return what the agent should have said for each question.

    The best reranker is that of the configuration with the highest metric; among equals the one that scored the
    fewest orders, then chose the fewest tokens. The settings are the mean of those that do as well with it: most
    questions have many, and always taking the cheapest would teach the agent to search too little. A reranker's quality
    is the best that any setting reached with it.
    """
    labels, settings, weights, qualities, ids, questions = [], [], [], [], [], []
    for (_, query), group in groupby(rows, key=lambda row: (row["data"], row["query"])):
        of_query = list(group)
        best = min(of_query, key=lambda row: (-row[config.metric], row["orders_scored"], row["cost_tokens"]))
        quality = [max(row[config.metric] for row in of_query if row["reranker"] == name) for name in rerankers]
        first, second = sorted(quality, reverse=True)[:2] if len(quality) > 1 else (quality[0], quality[0])
        equals = [r for r in of_query if r["reranker"] == best["reranker"] and r[config.metric] == best[config.metric]]
        labels.append(rerankers.index(best["reranker"]))
        settings.append([float(np.mean([row[name] for row in equals])) for name in SETTINGS])
        weights.append(float(first > (1 + config.margin) * second))
        qualities.append(quality)
        ids.append(query)
        questions.append(of_query[0]["question"])
    return agent.TrainingTable(
        features=embed_all(embedder, questions),
        reranker=np.array(labels, dtype=np.int64),
        settings=np.array(settings, dtype=np.float32),
        weight=np.array(weights, dtype=np.float32),
        quality=np.array(qualities, dtype=np.float32),
        ids=tuple(ids),
    )


def best_single(rows: Sequence[Row], metric: str) -> agent.FixedConfiguration:
    """Return the configuration with the highest mean metric; among equals the one that scored the fewest orders."""
    totals: dict[tuple[str, int, float, float], list[float]] = {}
    for row in rows:
        key = (row["reranker"], row["iterations"], row["exploration"], row["cost_weight"])
        sums = totals.setdefault(key, [0.0, 0.0])
        sums[0] += row[metric]
        sums[1] += row["orders_scored"]
    best = min(totals, key=lambda key: (-totals[key][0], totals[key][1]))
    return agent.FixedConfiguration(*best)


def commit() -> str:
    """Return the commit of the source tree, marked when it has changes; `unknown` outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def _with_metric(rows: Sequence[Row], config: TrainAgentConfig) -> list[Row]:
    """Return the rows that have the metric: questions without gold have no evidence figures."""
    numbers = [name for name in rows[0] if any(isinstance(row[name], int | float) for row in rows)]
    if config.metric not in numbers:
        raise InputError(
            f"metric {config.metric!r} is no figure of {config.labels}; its figures are {', '.join(numbers)}"
        )
    kept = [row for row in rows if row[config.metric] is not None]
    if len(kept) < len(rows):
        logger.warning("%d of %d rows have no %s and are left out", len(rows) - len(kept), len(rows), config.metric)
    return kept


def _of_split(rows: Sequence[Row], split: str, path: str) -> list[Row]:
    chosen = [row for row in rows if row["split"] == split]
    if not chosen:
        raise DataError(
            f"{path} has no rows of split {split!r}; its splits are {', '.join(sorted({row['split'] for row in rows}))}"
        )
    return chosen


def _range(rows: Sequence[Row], name: str) -> tuple[Any, Any]:
    values = [row[name] for row in rows]
    return min(values), max(values)
