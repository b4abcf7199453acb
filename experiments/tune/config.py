"""The settings of `corag tune`; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agent.config import Tracker
from corag.errors import InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime
from corag.naming import Spelling, Spellings, split_parts
from corag.selectors.price import PREFERENCES, cost_weight_of
from experiments.data.config import CandidateSettings, spell_out
from experiments.run.track import Tracking, check_logger
from experiments.run.track import Wandb as Wandb

LEAST_QUESTIONS = 20
"""Fewer choose nothing: one question in five decides for itself."""
DEFAULT = "corag"
"""What is used where nothing is tuned."""
CONFIGURATIONS = (
    DEFAULT,
    "corag(cost_weight=0.02)",
    "corag(cost_weight=0.3)",
    "corag(unit=passage, reranker=minilm-multihop)",
    "corag(unit=passage, reranker=minilm-factoid)",
    "corag(unit=passage, reranker=minilm-longform)",
    "corag(unit=passage, reranker=minilm-softsim)",
    "corag(unit=passage, reranker=bm25)",
    "naive(reranker=minilm-multihop)",
    "naive(reranker=minilm-factoid)",
    "naive(reranker=minilm-softsim)",
    "naive(reranker=bm25)",
    "sentence-threshold(reranker=minilm-sentence)",
    "top-tokens",
)
"""Measured by default."""


@dataclass(frozen=True)
class TuneConfig(CandidateSettings, Runtime, Tracking):
    """Choose the best configuration for your questions, from 60 to 500 of them.

    Attributes:
        data: Data folder, by path or name, whose questions have answers, gold passages or both.
        out: Folder for the checkpoint, for `--agent`. An interrupted run resumes.
        splits: Splits of the questions, separated by commas.
        budget: Token budget of the context.
        configurations: Selectors to choose from, separated by commas; `corag` is always included.
        answer: Measure of the answer that counts: f1, or rougeL for long answers.
        evidence_weight: Weight of evidence recall in the quality; the answer has the rest. A question with one of both
            counts by that one.
        prefer: What 256 tokens cost, in units of quality: `quality`, `balanced`, `tokens`, or a number, such as 0.1;
            with 0 only quality counts.
        reader: Reader that answers; with `none` only evidence counts.
        index: Index of the corpus; by default one is built in the cache folder.
        seed: Seed of intervals and of the network.
        logger: Where the means of each configuration are logged besides: `wandb`, `csv` or `none`.
        quiet: Show no progress and no table.
    """

    data: str
    out: str
    splits: str = "train"
    budget: int = 256
    configurations: Spellings = ""
    answer: Literal["f1", "rougeL"] = "f1"
    evidence_weight: float = 0.5
    prefer: str = "quality"
    reader: Spelling = "minilm-reader"
    index: str | None = None
    seed: int = 0
    logger: Tracker = "none"
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        Runtime.__post_init__(self)
        check_logger(self.logger, self.out)
        spell_out(self, "reader")
        if not self.data:
            raise InputError("data is empty; give a data folder with --data, by path or name")
        if self.answer not in ("f1", "rougeL"):
            raise InputError(f"answer is {self.answer!r}; it must be f1 or rougeL")
        if not 0 <= self.evidence_weight <= 1:
            raise InputError(f"evidence_weight is a share from 0 to 1, got {self.evidence_weight}")
        _ = self.price

    @property
    def price(self) -> float:
        """What 256 tokens cost, in units of quality."""
        price = cost_weight_of(self.prefer)
        if not 0 <= price < float("inf"):
            raise InputError(f"prefer is {self.prefer!r}; give {', '.join(PREFERENCES)}, or a price of at least 0")
        return price

    def configuration_list(self) -> list[str]:
        """Return the spellings to choose from, the default first."""
        return list(dict.fromkeys((DEFAULT, *(split_parts(self.configurations) or CONFIGURATIONS))))
