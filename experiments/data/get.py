"""`corag data list` and `corag data get`: public data sets by name, as data folders."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from common.checks import check_count
from common.storage import folder_lock, new_folder
from corag.cli.console import print_table, progress, say, stderr
from corag.errors import DataError, InputError
from corag.memory import cache_folder
from corag.text.data import data_cache, find_data, folder_name
from corag.text.documents import Document
from experiments.data.catalogue import DATA_SETS, DataSet, find_data_set
from experiments.data.config import comma_separated
from experiments.data.fetch import Files
from experiments.data.folder import (
    CORPUS_FILE,
    QUERIES_FILE,
    FolderWriter,
    is_at_hand,
    is_written,
    read_source,
    share_corpus,
    write_source,
)
from experiments.run.journal import digest

_STEP = 1_000
"""Passages or questions between two reports of progress."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class DataListConfig:
    """List the data sets that are available by name."""


@dataclass(frozen=True)
class GetConfig:
    """Fetch a data set by name and write it as a data folder; what was fetched before is not fetched again.

    Attributes:
        name: Name of the set (see `corag data list`), `ir_datasets:NAME` or `beir:NAME`.
        out: Where to put the folder; by default in the cache, where `--data NAME` finds it.
        splits: Splits to take, separated by commas; by default those of moderate size.
        limit: First questions of each split.
        passages: First passages of a corpus that all questions share, beside the evidence of these questions.
        corpus: Data folder whose corpus the questions are asked of, for a set that has no passages.
        overwrite: Replace the folder if it holds other data.
        quiet: Show no progress.
    """

    name: str
    out: str | None = None
    splits: str = ""
    limit: int | None = None
    passages: int | None = None
    corpus: str = ""
    overwrite: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("limit", "passages"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, "leave it out for all")


def list_data(_: DataListConfig) -> None:
    """Print the data sets as a table."""
    rows = [
        [
            one.name, one.what, f"{one.num_questions:,}", f"{one.num_passages:,}", f"{one.megabytes:,}", one.licence,
            one.home.removeprefix("https://").removeprefix("huggingface.co/datasets/"),
            "yes" if is_at_hand(one.name) else "",
        ]
        for one in DATA_SETS.values()
    ]  # fmt: skip
    print_table(["name", "what", "questions", "passages", "MB", "licence", "source", "at hand"], rows)
    say("Also ir_datasets:NAME (https://ir-datasets.com) and beir:NAME. Sizes are of the whole set, about.")
    say("Get one with: corag data get NAME")


def get_data(config: GetConfig) -> Path:
    """Write a data set as a data folder, and return the folder."""
    data_set = find_data_set(config.name)
    splits = tuple(comma_separated(config.splits) or data_set.default_splits or data_set.splits)
    _check(data_set, splits, config)
    out = Path(config.out) if config.out is not None else data_cache() / folder_name(data_set.name)
    settings = {"splits": list(splits), "limit": config.limit, "passages": config.passages, "corpus": config.corpus}
    # Of two processes with one folder the second waits and finds it whole.
    name = hashlib.sha256(str(out.absolute()).encode()).hexdigest()[:16]
    with folder_lock(cache_folder() / "locks", f"{name}.lock"):
        if not is_written(out, {"name": data_set.name, "settings": settings}, overwrite=config.overwrite):
            _write(out, data_set, splits, settings, config)
    record = read_source(out)
    questions = ", ".join(f"{number:,} {split}" for split, number in record["questions"].items())
    say(f"{record['passages']:,} passages; questions: {questions}")
    say(f"data folder in {out}; index it with: corag index --data {config.name if config.out is None else out}")
    return out


def _check(data_set: DataSet, splits: tuple[str, ...], config: GetConfig) -> None:
    if unknown := [split for split in splits if split not in data_set.splits]:
        raise InputError(f"{data_set.name} has no split {unknown[0]!r}; its splits are {', '.join(data_set.splits)}")
    if config.corpus and data_set.own_passages:
        raise InputError(f"{data_set.name} has its own passages; leave out --corpus")
    if not config.corpus and not data_set.own_passages:
        raise InputError(
            f"{data_set.name} has no passages; name a data folder whose corpus holds the evidence with --corpus, such "
            "as one got with: corag data get ir_datasets:dpr-w100"
        )


def _write(out: Path, data_set: DataSet, splits: tuple[str, ...], settings: dict[str, Any], config: GetConfig) -> None:
    """Fetch a set's files, and write them as a data folder, whole or not at all."""
    size = f", {data_set.megabytes:,} MB to fetch for all splits" if data_set.megabytes else ""
    say(f"{data_set.name}: {data_set.what}\nlicence: {data_set.licence}", stderr())
    say(f"source: {data_set.home}{size}", stderr())
    files = Files(data_set.files, quiet=config.quiet)
    needed = [places for part, places in data_set.files.items() if part not in data_set.splits or part in splits]
    places = list(dict.fromkeys(chain.from_iterable(needed)))
    for place in places:
        files.get(place)
    corpus = find_data(config.corpus) if config.corpus else None
    with new_folder(out) as draft:
        try:
            with FolderWriter(draft) as writer:
                _convert(writer, data_set, splits, files, config)
        except (KeyError, TypeError) as error:
            raise DataError(
                f"the files of {data_set.name} have another form than this version of CORAG knows ({error!r}); they "
                f"are described at {data_set.home}"
            ) from error
        if not writer.num_questions:
            raise DataError(f"{data_set.name} gave no question; its files hold something else")
        if corpus is not None:
            share_corpus(draft, corpus)
        if writer.num_repeated:
            say(f"{writer.num_repeated} questions whose id had come before were left out", stderr())
        record = {
            **{name: getattr(data_set, name) for name in ("name", "what", "licence", "home")},
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "files": places,
            "sha256": {name: digest(draft / name) for name in (CORPUS_FILE, QUERIES_FILE)},
            "settings": settings,
            "questions": writer.num_questions,
            "passages": writer.num_passages,
            "corag": importlib.metadata.version("corag"),
        }
        write_source(draft, record)


def _convert(writer: FolderWriter, data_set: DataSet, splits: tuple[str, ...], files: Files, config: GetConfig) -> None:
    """Write the questions of some splits, and the passages."""
    gold: set[str] = set()
    for split in splits:
        # Closed at once, so that no file stays open behind a limit.
        with closing(data_set.questions(files, split)) as converted:  # type: ignore[type-var]
            questions = islice((one for one in converted if one.question.strip()), config.limit)
            for question in _reported(questions, f"questions, {split}", quiet=config.quiet):
                writer.question(question, split)
                # Of a span the passage; ids may have a # of their own, as those of CodeSearchNet.
                gold.update(re.sub(r"#[0-9]+-[0-9]+\Z", "", name) for name in question.gold)
    if data_set.passages is not None:
        passages = _passages(data_set.passages(files), gold, config.passages)
        for passage in _reported(passages, "passages", quiet=config.quiet):
            writer.passage(passage)


def _passages(passages: Iterator[Document], gold: set[str], limit: int | None) -> Iterator[Document]:
    """Yield the passages of a shared corpus: all, or those that are evidence and up to `limit` others."""
    missing, others = set(gold), 0
    with closing(passages):  # type: ignore[type-var]
        for passage in passages:
            missing.discard(passage.id)
            others += passage.id not in gold
            if passage.id in gold or limit is None or others <= limit:
                yield passage
            elif not missing:
                return


def _reported(items: Iterator[Item], what: str, *, quiet: bool) -> Iterator[Item]:
    number = 0
    with progress(what, quiet=quiet) as report:
        for number, item in enumerate(items, start=1):
            yield item
            if not number % _STEP:
                report(number, 0)
        report(number, number)
