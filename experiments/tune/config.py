"""The settings of `corag tune`; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from corag.errors import InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime
from corag.naming import Spelling, Spellings, split_parts
from corag.registry import RERANKERS
from corag.selectors.price import COST_WEIGHT, price_factor
from experiments.data.config import CandidateSettings, spell_out
from experiments.run.track import Tracker as Tracker
from experiments.run.track import Tracking, check_logger
from experiments.run.track import Wandb as Wandb

LEAST_QUESTIONS = 20
"""Fewer choose nothing: one question in five decides for itself."""
DEFAULT = "corag"
"""What is used where nothing is tuned."""
FORMS = ("corag(unit=passage, reranker={})", "naive(reranker={})")
"""Measured by default with every reranker that needs no download."""
OTHERS = ("corag(cost_weight=0.02)", "corag(cost_weight=0.3)", "sentence-threshold", "top-tokens")
"""Measured by default besides."""


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
        prefer: Price of tokens: `quality` (half the usual 0.1 for 256 tokens, in units of quality), `balanced` (0.1),
            `tokens` (twice that), or another factor; with 0 only quality counts.
        reader: Reader that answers; with `none` only evidence counts.
        index: Index of the corpus; by default one is built in the cache folder.
        seed: Seed of intervals and of the network.
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
        return COST_WEIGHT * price_factor(self.prefer)

    def configuration_list(self) -> list[str]:
        """Return the spellings to choose from, the default first."""
        usual = (*(form.format(name) for form in FORMS for name in RERANKERS.local), *OTHERS)
        return list(dict.fromkeys((DEFAULT, *(split_parts(self.configurations) or usual))))
