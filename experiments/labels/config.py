"""The settings of a labelling; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from agent.config import Tracker, spelled
from corag.errors import InputError
from corag.models.cluster import ClusterSettings
from corag.models.cluster import Engine as Engine
from corag.naming import Spellings, split_parts
from experiments.data.config import CandidateSettings, SelectionSettings, comma_separated
from experiments.run.track import Tracking, check_logger
from experiments.run.track import Wandb as Wandb

SharePart = Literal["training", "held-out", "all"]


@dataclass(frozen=True)
class LabelSource(CandidateSettings):
    """Questions of a data folder, and where the candidates of each come from.

    `sample` is drawn by a hash of the questions' ids, and `num_candidates` is the most of a document, too.

    Attributes:
        data: Data folder: below that of the labelling, or by name.
        split: Split of the questions.
        part: `training`, without the held-out share; `held-out`, only that share; or `all`.
        held_out: Held-out share, split by documents as for the shipped adapters.
        with_gold: Only questions whose whole evidence is in the corpus.
    """

    data: str
    split: str = "train"
    part: SharePart = "all"
    held_out: float = 0.2
    with_gold: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.held_out <= 1:
            raise InputError(f"held_out of source {self.data!r} is a share from 0 to 1, got {self.held_out}")


@dataclass(frozen=True)
class LabelConfig(SelectionSettings, Tracking, ClusterSettings):
    """Measure every configuration on every question of data folders.

    Each source has its own pool, number of candidates, limit and sample, and its corpus is indexed separately.

    Attributes:
        out: File for the table (Parquet). An interrupted run resumes.
        data: Data folder, by path or name; with sources, their parent folder, or empty to look up each by name.
        splits: Splits of the questions, separated by commas; without sources. Questions that name no split are divided
            by documents into train, dev and test.
        sources: Questions of several data folders.
        configurations: Selectors to measure, separated by commas; by default the grid of the next four settings.
        rerankers: Separated by commas; by default the best of those that need no download.
        iterations: Numbers of iterations of the paper's search, separated by commas.
        explorations: Values of c, separated by commas.
        cost_weights: Values of lambda, separated by commas.
        preset: Label the grid with the search of `corag(preset=paper)`, on logits where a reranker has them.
        shard: `i/n` for the i-th of n shards of the questions, so that n processes share the work. Each keeps a journal
            beside `out`, and the last one to finish writes the table. On machines without a shared disk, copy the
            journals into one folder and run the command without `shard`.
        logger: Where the means of each configuration are logged besides: `wandb`, `csv` or `none`.
    """

    out: str
    data: str = ""
    splits: str = "train,dev"
    sources: tuple[LabelSource, ...] = ()
    configurations: Spellings = ""
    rerankers: Spellings = "minilm-multihop,minilm-factoid,minilm-longform,minilm-softsim,bm25"
    iterations: str = "2,5,10"
    explorations: str = "0.1,0.6"
    cost_weights: str = "0.0,0.3"
    preset: Literal["paper"] | None = None
    shard: str = ""
    logger: Tracker = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data and not self.sources:
            raise InputError("data is empty; give a data folder with --data, by path or name")
        if self.reader == "none":
            raise InputError("reader is 'none', but labels measure answers; name a reader, such as minilm-reader")
        check_logger(self.logger, self.out)
        self.check_engine()
        self.parsed_shard()
        if not self.configuration_list():
            raise InputError(f"rerankers is {self.rerankers!r}; name at least one")
        if self.sources and self.index is not None:
            raise InputError(f"index is {self.index!r}, but every source has its own corpus; leave out one of both")

    def parsed_shard(self) -> tuple[int, int] | None:
        """Return number and count of the shard that is asked for; None for all questions."""
        if not self.shard:
            return None
        number, slash, count = self.shard.partition("/")
        if not slash or not number.isdecimal() or not count.isdecimal() or not 1 <= int(number) <= int(count):
            raise InputError(f"shard is {self.shard!r}; write i/n with i from 1 to n, such as 1/2")
        return int(number), int(count)

    def configuration_list(self) -> list[str]:
        """Return the spellings of what is measured, each once."""
        if given := split_parts(self.configurations):
            return list(dict.fromkeys(given))
        base = "preset=paper" if self.preset else f"unit={self.unit or 'passage'}"
        names = [f"corag({base}, reranker={name})" for name in dict.fromkeys(split_parts(self.rerankers))]
        settings = product(
            listed("explorations", self.explorations, float),
            listed("cost_weights", self.cost_weights, float),
            sorted(listed("iterations", self.iterations, int)),
        )
        return [
            spelled(name, count, exploration, cost_weight)
            for name, (exploration, cost_weight, count) in product(names, list(settings))
        ]


def listed(name: str, text: str, kind: type) -> tuple[Any, ...]:
    """Return the values between commas, each once; none, or one of another kind, is an `InputError`."""
    try:
        values = tuple(dict.fromkeys(map(kind, comma_separated(text))))
    except ValueError as error:
        raise InputError(f"{name} is {text!r}: {error}; give values separated by commas") from error
    if not values:
        raise InputError(f"{name} is {text!r}; give at least one value, several separated by commas")
    return values
