"""Training: the agent, and the head of an evidence reranker, on the device and on the CPU."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import agent
import corag
from corag.rerankers.evidence.passages import PassageReader
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.signals import read_question, signals
from experiments.adapters.evidence.config import FitSettings
from experiments.adapters.evidence.fit import Example, fit_member, standards, tabulate
from experiments.agents.train import placed
from experiments.bench.gpu.made import SEED, World
from experiments.bench.gpu.stage import Stage

DIMENSION = 384
NUM_RERANKERS = 6


def train_agent(world: World, stage: Stage) -> None:
    """Train agents of the paper's size on made labels."""
    size = world.size
    config = agent.AgentConfig(
        feature_dim=DIMENSION,
        rerankers=tuple(f"reranker-{number}" for number in range(NUM_RERANKERS)),
        ranges=agent.Ranges(iterations=(1, 32), exploration=(0.0, 3.0), cost_weight=(0.0, 0.5)),
        embedder="minilm",
    )
    table = _table(size.rows)
    for device in dict.fromkeys((stage.device, "cpu")):
        with corag.runtime(device=device), tempfile.TemporaryDirectory() as out:
            training = placed(agent.TrainConfig(epochs=size.epochs, logger="none"))
            started = time.perf_counter()
            report = agent.fit(table, None, config, training, Path(out))
            seconds = time.perf_counter() - started
        stage.row(
            device=device,
            questions=size.rows,
            epochs=size.epochs,
            seconds=seconds,
            questions_per_s=round(size.rows * size.epochs / seconds),
            first_loss=report.history[0]["train_loss"],
            last_loss=report.history[-1]["train_loss"],
        )


def _table(rows: int) -> agent.TrainingTable:
    """Return labels in which directions of the features say which reranker is best."""
    rng = np.random.default_rng(SEED)
    features = rng.normal(size=(rows, DIMENSION)) / DIMENSION**0.5
    quality = features @ rng.normal(size=(DIMENSION, NUM_RERANKERS))
    settings = np.stack([rng.integers(1, 33, rows), rng.uniform(0, 3, rows), rng.uniform(0, 0.5, rows)], axis=1)
    return agent.TrainingTable(
        features=features.astype(np.float32),
        reranker=quality.argmax(axis=1),
        settings=settings.astype(np.float32),
        weight=np.ones(rows, dtype=np.float32),
        quality=quality.astype(np.float32),
        ids=tuple(f"q{row}" for row in range(rows)),
    )


def train_head(world: World, stage: Stage) -> None:
    """Describe the questions' candidates on the device, and fit a network that weighs sets of them."""
    reranker = EvidenceReranker(backend="torch")
    read = PassageReader(reranker.encoder)
    settings = FitSettings(epochs=world.size.epochs // 2 or 1)
    started, tables = time.perf_counter(), []
    # Describing a question takes a CPU as long as fitting to it.
    learnt = 6 * world.size.compared
    for query, pool in zip(world.queries[:learnt], world.pools[:learnt], strict=True):
        stage.check()
        question = read_question(reranker.encoder, query.question, reranker.parts.rarity)
        ids = [candidate.chunk.id for candidate in pool]
        gold = tuple(sorted(ids.index(name) for name in query.gold if name in ids))
        example = Example(query.id, signals(question, read([one.chunk.text for one in pool])), (gold,) if gold else ())
        if (table := tabulate(example, reranker.parts.max_size, settings)) is not None:
            tables.append(table)
    described_s = time.perf_counter() - started
    mean, scale = standards(tables)
    for device in dict.fromkeys((stage.device, "cpu")):
        stage.check()
        started = time.perf_counter()
        _, losses = fit_member(tables, mean, scale, settings, SEED, device)
        stage.row(
            device=device,
            questions=len(tables),
            epochs=settings.epochs,
            describe_s=described_s,
            seconds=time.perf_counter() - started,
            first_loss=losses[0],
            last_loss=losses[-1],
        )
