"""The whole job on the demo corpus: index, label, train, load, answer, compare, report; an interrupted run resumes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import corag
from common.storage import write_atomically
from corag.cli.console import progress, say, stdout
from corag.cli.explain import reply_page
from corag.index import update_index
from corag.models.runtime import Runtime, in_runtime
from corag.selectors.corag.search import Corag
from corag.text.chunking import ChunkConfig
from experiments.agents.targets import TargetConfig
from experiments.agents.train import TrainAgentConfig, train
from experiments.data.config import CandidateSettings
from experiments.demo import write_data_folder
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import NO_READER, EvaluateConfig
from experiments.labels.config import LabelConfig
from experiments.labels.label import label
from experiments.report.comparison import results_page, terminal_page
from experiments.report.results import Result
from experiments.run.track import Tracker, Tracking

METHODS = "naive,corag(agent=none),{best_single},corag"
QUESTION = "When are default parameter values evaluated?"
"""Answered at the end. Those of the data want explanations from several places, for readers with a language model;
labels and comparison measure what contexts hold, and read nothing."""
CONFIGURATIONS = (
    "corag(unit=sentence, reranker=minilm-late, cost_weight=0.02)",
    "corag(unit=sentence, reranker=minilm-late, cost_weight=0.2)",
    "corag(unit=passage, reranker=minilm-late, cost_weight=0.02)",
    "corag(unit=passage, reranker=bm25, cost_weight=0.02)",
)
"""What the agent chooses among: each values an order by what is known of its chunks, so labels take seconds."""

BUDGETS = (128, 256)
"""Token budgets to compare; labels, the printed table and times are for the last."""
CHUNK_TOKENS, NUM_CANDIDATES = 96, 8
"""Maximum tokens of a chunk, and chunks offered per question."""


@dataclass(frozen=True)
class DemoConfig(Runtime, Tracking):
    """Index a real corpus, label questions, train the agent, load it, and answer held-out questions.

    Attributes:
        out: Folder for all files of the demo.
        limit: The most questions of each split, the first ones; 76 are all.
    """

    out: str = "runs/demo"
    limit: int | None = 40
    logger: Tracker = field(default="wandb", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        CandidateSettings(limit=self.limit)  # refuses numbers below 1


@in_runtime
def demo(config: DemoConfig) -> Path:
    """Run the demo; return the path of its report."""
    started = time.perf_counter()
    out, budget = Path(config.out), BUDGETS[-1]
    data, index = out / "data", out / "index"

    with _step("Python's language reference as a data folder"):
        content = write_data_folder(data)
        say(
            f"  {len(content.documents)} topics ({len(content.contained)} more are parts of them), "
            f"{len(content.queries)} questions ({len(content.left_out)} left out for this Python)"
        )
    with _step("index"), progress("  embed") as bar:
        update_index(data, index, corag.embedder(), ChunkConfig(CHUNK_TOKENS), overwrite=True, report=bar)
    with _step("label"):
        labels = label(
            LabelConfig(
                data=str(data),
                out=str(out / "labels.parquet"),
                configurations=CONFIGURATIONS,
                reader=NO_READER,
                budget=budget,
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
                logger=config.logger,
            )
        )
    with _step("compare on held-out questions"):
        settings = EvaluateConfig(
            data=str(data),
            split="test",
            methods=METHODS.format(best_single=report.agent.config.fallback),
            pool="corpus",
            agent=str(report.checkpoint),
            reader=NO_READER,
            index=str(index),
            num_candidates=NUM_CANDIDATES,
            limit=config.limit,
            curves=False,
        )
        files = [out / f"evaluate-{tokens}.json" for tokens in BUDGETS]
        for tokens, file in zip(BUDGETS, files, strict=True):
            timed = 5 if tokens == budget else 0
            evaluate(replace(settings, budget=tokens, latency_questions=timed, out=str(file)))
        results = [Result.read(file) for file in files]
        shown = results[-1]
        title = f"{shown.questions} test questions, {budget} tokens, {NUM_CANDIDATES} candidates"
        terminal_page(shown, title).show()
    with _step("answer a question with the exported checkpoint"):
        embedder = corag.embedder()
        selector = Corag(agent=report.checkpoint, embedder=embedder)
        say(f"  {QUESTION}")
        asked: dict[str, Any] = {"method": selector, "embedder": embedder, "num_candidates": NUM_CANDIDATES}
        reply_page(corag.ask(QUESTION, index, budget_tokens=budget, **asked)).show()
    page = out / "report.html"
    title = "CORAG on Python's language reference"
    write_atomically(page, results_page({out.name: results}, title=title).html())
    say(f"\nreport in {page}; {time.perf_counter() - started:.0f} s in all")
    say(f"ask it yourself: corag ask 'your question' --index {index} --agent {report.checkpoint}")
    return page


@contextmanager
def _step(name: str) -> Iterator[None]:
    console, started = stdout(), time.perf_counter()
    console.print(f"[bold]{name}[/]")
    yield
    console.print(f"  {time.perf_counter() - started:.1f} s")
