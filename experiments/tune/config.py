"""The settings of `corag tune`; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.config import KEEP
from corag.budget import AUTO
from corag.checks import check_range
from corag.errors import InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime
from corag.naming import Spelling, Spellings
from experiments.data.config import CandidateSettings, spell_out
from experiments.run.track import Tracking

PRICE = 0.01
"""What 256 tokens cost by default, in units of the metric: what the shipped agent was trained with."""
PREFERENCES: Mapping[str, float] = {"quality": 0.5, "balanced": 1.0, "tokens": 2.0}
"""Factors on the price of tokens by which configurations are compared."""
LEAST_QUESTIONS = 20
"""With fewer, each fold of the cross-validation has less than four."""


@dataclass(frozen=True)
class TuneConfig(CandidateSettings, Runtime, Tracking):
    """Tune the agent on your own questions (typical: 60-500).

    Attributes:
        data: Data folder, by path or name, whose questions have answers, gold passages or both.
        out: Folder for the checkpoint, for `--agent`. An interrupted run resumes.
        splits: Splits of the questions, separated by commas.
        budget: Token budget of the context.
        configurations: Selectors to choose from besides those that the agent knows, separated by commas.
        metric: Measure to maximize: `kept`, the mean of the recalls of answer words and evidence; `quality`, the mean
            of a reader's answer and of evidence; or a measure of the labels, such as rougeL or evidence_recall.
        keep: With the metric `kept`, the share of what filling the budget holds that has to be kept: of the
            configurations that do so on these questions, the one with the fewest tokens is used. 0 to go by the price
            of tokens instead, as for other metrics.
        prefer: Price of tokens: `balanced` (0.01 for 256 tokens, in units of the metric), `quality` (half of that),
            `tokens` (twice that), or another factor; with 0 only the metric counts.
        reader: Reader that answers, for measures of answers; `none` reads nothing.
        tokenizer: Tokenizer that counts tokens; see `corag evaluate`.
        index: Index of the corpus; by default one is built in the cache folder.
        seed: Seed of the folds and of the intervals.
        quiet: Show no progress and no table.
    """

    data: str
    out: str
    splits: str = "train"
    budget: int = 256
    configurations: Spellings = ""
    metric: str = "kept"
    keep: float = KEEP
    prefer: str = "balanced"
    reader: Spelling = "none"
    tokenizer: Spelling = AUTO
    index: str | None = None
    seed: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        Runtime.__post_init__(self)
        spell_out(self, "reader", "tokenizer")
        if not self.data:
            raise InputError("data is empty; give a data folder with --data, by path or name")
        check_range("keep", self.keep, 0, 1, "it is a share")
        _ = self.price

    @property
    def price(self) -> float:
        """What 256 tokens cost, in units of the metric."""
        try:
            factor = PREFERENCES.get(self.prefer) or float(self.prefer)
        except ValueError:
            factor = -1.0
        if not 0 <= factor < float("inf"):
            raise InputError(
                f"prefer is {self.prefer!r}; give {', '.join(PREFERENCES)}, or a factor on the price of tokens of at "
                "least 0, such as 2"
            )
        return PRICE * factor
