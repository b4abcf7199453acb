"""The settings of `corag tune`; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass

from agent.config import Tracker
from corag.errors import InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime
from corag.naming import Spelling
from corag.selectors.corag.routing import Prices, prices_of
from experiments.data.config import CandidateSettings, spell_out
from experiments.protocol.leads import Answer, Quality
from experiments.run.track import Tracking, check_logger
from experiments.run.track import Wandb as Wandb

LEAST_QUESTIONS = 20
"""Fewer choose nothing: one question in five decides for itself."""


@dataclass(frozen=True)
class TuneConfig(CandidateSettings, Runtime, Tracking):
    """Choose the configuration that serves your questions best, from 60 to 500 of them.

    Attributes:
        data: Data folder, by path or name, whose questions have answers, gold passages or both.
        out: Folder for the checkpoint: `--agent` takes it. An interrupted run resumes.
        splits: Splits of the questions, separated by commas.
        budget: Token budget of a context.
        configurations: Configurations to choose from, separated by commas: a selector, or `RETRIEVAL > SELECTOR`; by
            default those that labels over kinds are made of.
        answer: Figure of the answer that counts: f1, or rougeL for long answers.
        evidence_weight: Weight of evidence recall in the quality; the answer has the rest. A question with one of both
            counts by that one.
        prefer: What counts besides quality: quality alone, balanced, tokens, latency, or the price of a whole budget of
            tokens in units of quality, such as 0.1. It can be changed when the checkpoint is used.
        reader: Reader of the answers; `none` reads nothing, and evidence alone counts.
        index: Index of the corpus; by default one is built in the cache folder.
        labels: Table of labels over kinds; by default the one that ships.
        seed: Seed of intervals and of the router.
        logger: Where the means of each configuration are logged besides: `wandb`, `csv` or `none`.
        quiet: Show no progress and no table.
    """

    data: str
    out: str
    splits: str = "train"
    budget: int = 256
    configurations: str = ""
    answer: Answer = "f1"
    evidence_weight: float = 0.5
    prefer: str = "quality"
    reader: Spelling = "minilm-reader"
    index: str | None = None
    labels: str | None = None
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
        if self.run is not None:
            raise InputError(f"run {self.run!r} gives the candidates, so nothing is known about retrieval; use --pool")
        _ = self.quality
        _ = self.prices

    @property
    def quality(self) -> Quality:
        """What makes one configuration better than another."""
        return Quality(self.answer, self.evidence_weight)

    @property
    def prices(self) -> Prices:
        """What tokens and time cost."""
        return prices_of(self.prefer)
