"""The settings of a labelling; loads nothing heavy, so that the command line stays quick."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from common.configuration import split_parts
from corag.errors import InputError
from experiments.data.config import CandidateSettings, Part, SelectionSettings, comma_separated
from experiments.run.track import Tracking

CLASSES = (
    "corag(unit=sentence, reranker=fused)",
    "corag(unit=sentence, reranker=minilm-late)",
    "corag(unit=sentence, reranker=minilm-evidence)",
    "corag(unit=sentence, reranker=bm25)",
    "corag(unit=passage, reranker=minilm-late)",
)
"""What an agent chooses among; its second head predicts iterations, c and lambda."""
OF_AGENT = ("policy", "iterations", "exploration")
"""Settings of a search that a second head predicts, and with which policy."""


@dataclass(frozen=True)
class LabelSource(CandidateSettings):
    """Questions of a data folder, and where the candidates of each come from.

    `sample` is drawn by a hash of the questions' ids, and `num_candidates` is the most of a document, too. Questions on
    the held-out list of `experiments.protocol` are never labelled.

    Attributes:
        data: Data folder: below that of the labelling, or by name.
        split: Split of the questions.
        part: All of them, or the share that the shipped adapters have not learned from (held-out).
        with_gold: Only questions whose whole evidence is in the corpus.
        kind: Sources of one kind are left out together when an agent is tested on kinds that it does not know; by
            default the name of the data folder.
    """

    data: str
    split: str = "train"
    part: Part = "all"
    with_gold: bool = False
    kind: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "kind", self.kind or self.data)


@dataclass(frozen=True)
class LabelConfig(SelectionSettings, Tracking):
    """Measure every configuration on every question of data folders.

    Attributes:
        out: File for the table (Parquet). An interrupted run resumes; a larger limit or sample goes on from a smaller
            one, but not of shards.
        data: Data folder, by path or name; with sources, their parent folder, or empty to look up each by name.
        splits: Splits of the questions, separated by commas; without sources. Questions that name no split are divided
            by documents into train, dev and test.
        sources: Questions of several data folders, whose corpora are indexed separately; what one of them leaves open
            is as given for all.
        configurations: Selectors to measure, separated by commas; by default `corag` with rerankers that ship. Each
            `corag` that sets none of cost_weight and, of its search, policy, iterations and exploration is measured
            with every combination of the next three settings, unless these are empty.
        iterations: Numbers of iterations of the tree search, separated by commas.
        explorations: Values of c, separated by commas.
        cost_weights: Values of lambda, separated by commas.
        shard: `i/n` for the i-th of n shards of the questions, so that n processes share the work; each writes a table
            of its own, such as `labels.1-of-2.parquet`.
    """

    out: str
    data: str = ""
    splits: str = "train,dev"
    sources: tuple[LabelSource, ...] = ()
    configurations: str | tuple[str, ...] = ""
    iterations: str = "40"
    explorations: str = "0.001"
    cost_weights: str = "0,0.05,0.1,0.2,0.4,0.8"
    shard: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.data and not self.sources:
            raise InputError("data is empty; give a data folder with --data, by path or name")
        _ = self.number_of_shard
        for name in ("index", "run") if self.sources else ():
            if (given := getattr(self, name)) is not None:
                raise InputError(f"{name} is {given!r}, but every source has its own corpus; leave out one of the two")

    @property
    def number_of_shard(self) -> tuple[int, int]:
        """The shard that is asked for, from 1, and how many there are; by default the only one."""
        number, _, count = (self.shard or "1/1").partition("/")
        if not number.isdecimal() or not count.isdecimal() or not 1 <= int(number) <= int(count):
            raise InputError(f"shard is {self.shard!r}; write i/n with i from 1 to n, such as 1/2")
        return int(number), int(count)

    def configuration_list(self) -> list[str]:
        """Return the spellings of what is measured, each once."""
        texts = {"iterations": self.iterations, "explorations": self.explorations, "cost_weights": self.cost_weights}
        grid: list[tuple[Any, ...]] = []
        if any(map(comma_separated, texts.values())):
            kinds = (int, float, float)
            grid = [listed(name, text, kind) for (name, text), kind in zip(texts.items(), kinds, strict=True)]
        names: list[str] = []
        for part in split_parts(self.configurations) or split_parts(CLASSES):
            search = part.settings.get("search") or {}
            given = part.settings.keys() | search.keys()
            is_open = part.name == "corag" and not {"agent", "cost_weight", *OF_AGENT} & given
            names += [part.with_search(*settings) for settings in product(*grid)] if is_open else [part]
        return list(dict.fromkeys(names))


def listed(name: str, text: str, kind: type) -> tuple[Any, ...]:
    """Return the values between commas, each once; none, or one of another kind, is an `InputError`."""
    try:
        values = tuple(dict.fromkeys(map(kind, comma_separated(text))))
    except ValueError as error:
        raise InputError(f"{name} is {text!r}: {error}; give values separated by commas") from error
    if not values:
        raise InputError(f"{name} is empty; give at least one value, several separated by commas")
    return values
