"""The whole job on the demo corpus: index, label, train, load, answer, compare, report; an interrupted run resumes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import corag
from agent import TrainConfig
from corag.cli.console import say, stdout
from corag.cli.explain import reply_page
from corag.cli.index import IndexConfig
from corag.cli.index import run as build_index
from corag.cli.page import Page, Section
from corag.models.runtime import Runtime, in_runtime
from corag.selectors.corag.search import Corag
from experiments.agents.targets import TargetConfig
from experiments.agents.train import TrainAgentConfig, train
from experiments.data.config import CandidateSettings
from experiments.demo import write_data_folder
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import NO_READER, EvaluateConfig
from experiments.labels.config import LabelConfig
from experiments.labels.label import label
from experiments.report.comparison import headline, remarks
from experiments.run.track import Tracker, Tracking

METHODS = "top-k,naive,corag(agent=none),corag"
"""What is compared: the retriever's order, filling, the default, and what was trained."""
QUESTION = "When are default parameter values evaluated?"
"""Answered at the end. Those of the data want explanations from several places, for readers with a language model;
labels and comparison measure what contexts hold, and read nothing."""
CONFIGURATIONS = (
    "corag",
    "corag(unit=sentence, reranker=minilm-late)",
    "corag(unit=sentence, reranker=minilm-evidence)",
    "corag(unit=passage, reranker=minilm-late)",
)
"""What the agent chooses among: they share what is known of each text, so labels take seconds."""

BUDGETS = (256, 1024)
"""Token budgets to compare."""
LABEL_BUDGET = 256
CHUNK_TOKENS, NUM_CANDIDATES = 80, 20
"""Maximum tokens of a chunk, and chunks offered per question."""


@dataclass(frozen=True)
class DemoConfig(Runtime, Tracking):
    """Index a real corpus, label questions, train the agent, load it, and answer held-out questions.

    Attributes:
        out: Folder for all files of the demo.
        limit: The most questions of each split, the first ones; 76 are all.
    """

    out: str = "runs/demo"
    limit: int | None = 24
    logger: Tracker = field(default="wandb", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        CandidateSettings(limit=self.limit)  # refuses numbers below 1


@in_runtime
def demo(config: DemoConfig) -> Path:
    """Run the demo; return the path of its report."""
    started = time.perf_counter()
    out = Path(config.out)
    data, index = out / "data", out / "index"

    with _step("Python's language reference as a data folder"):
        content = write_data_folder(data)
        say(
            f"  {len(content.documents)} topics ({len(content.contained)} more are parts of them), "
            f"{len(content.queries)} questions ({len(content.left_out)} left out for this Python)"
        )
    with _step("index"):
        build_index(IndexConfig(str(data), str(index), max_tokens=CHUNK_TOKENS, precision=config.precision))
    with _step("label"):
        labels = label(
            LabelConfig(
                data=str(data),
                out=str(out / "labels.parquet"),
                configurations=CONFIGURATIONS,
                iterations="",
                explorations="",
                cost_weights="",
                reader=NO_READER,
                budget=LABEL_BUDGET,
                pool="corpus",
                index=str(index),
                num_candidates=NUM_CANDIDATES,
                max_tokens=CHUNK_TOKENS,
                limit=config.limit,
            )
        )
    with _step("train the configuration agent"):
        report = train(
            TrainAgentConfig(
                labels=str(labels),
                out=str(out / "agent"),
                own_splits=True,
                # A tenth of the questions would be left: the 10% rule is for thousands.
                target=TargetConfig(margin=0.0),
                # So that the questions of split dev, which choose no epoch, tell whether the agent gains.
                training=TrainConfig(keep="last"),
                logger=config.logger,
            )
        )
    with _step("compare on questions of other topics, which nothing was learned from"):
        settings = EvaluateConfig(
            data=str(data),
            split="test",
            methods=METHODS,
            pool="corpus",
            agent=str(report.checkpoint),
            reader=NO_READER,
            index=str(index),
            num_candidates=NUM_CANDIDATES,
            limit=config.limit,
            budgets=BUDGETS,
            latency_questions=0,
            out=str(out / "comparison"),
        )
        [results] = compare(settings).values()
        Page("", "", [Section("", [headline(results), *remarks(results)])]).show()
    with _step("answer a question with the exported checkpoint"):
        embedder = corag.embedder()
        selector = Corag(agent=report.checkpoint, embedder=embedder)
        say(f"  {QUESTION}")
        asked: dict[str, Any] = {"method": selector, "embedder": embedder, "num_candidates": NUM_CANDIDATES}
        reply_page(corag.ask(QUESTION, index, budget_tokens=LABEL_BUDGET, **asked)).show()
    page = out / "comparison" / "comparison.html"
    say(f"\nreport in {page}; {time.perf_counter() - started:.0f} s in all")
    say(f"ask it yourself: corag ask 'your question' --index {index} --agent {report.checkpoint}")
    return page


@contextmanager
def _step(name: str) -> Iterator[None]:
    console, started = stdout(), time.perf_counter()
    console.print(f"[bold]{name}[/]")
    yield
    console.print(f"  {time.perf_counter() - started:.1f} s")
