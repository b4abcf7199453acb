"""`corag data list` and `corag data get`: public data sets by name, as data folders."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from corag.cli.console import Report, print_wide, progress, say, stderr
from corag.errors import DataError, InputError
from corag.models.engine.openvino import cache_folder
from corag.optional import require
from corag.text.documents import Document
from corag.text.find import data_cache, find_data, folder_name
from experiments.data.config import comma_separated
from experiments.data.folder import FolderWriter, new_folder, read_source, share_corpus, write_source
from experiments.data.sources.catalogue import SOURCES, find_source
from experiments.data.sources.fetch import EXTRA, UnfetchedError
from experiments.data.sources.files import Files
from experiments.data.sources.source import Question, Source

_STEP = 1_000
"""Passages or questions between two reports."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class ListConfig:
    """List the data sets that can be had by name.

    Attributes:
        at_hand: Only those that are at hand.
    """

    at_hand: bool = False


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
        from_: Folder with the source's files, brought by hand (`--from FOLDER`): nothing is fetched.
        overwrite: Replace the folder if it holds other data.
        quiet: Show no progress.
    """

    name: str
    out: str | None = None
    splits: str = ""
    limit: int | None = None
    passages: int | None = None
    corpus: str = ""
    from_: str | None = None
    overwrite: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("limit", "passages"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}; leave it out for all")


def list_data(config: ListConfig) -> None:
    """Print the data sets as a table."""
    rows = []
    for source in SOURCES.values():
        place = _place(source.name)
        if place is None and config.at_hand:
            continue
        rows.append(
            {
                "name": source.name,
                "what": source.what,
                "questions": f"{source.num_questions:,}",
                "passages": f"{source.num_passages:,}",
                "size": f"{source.megabytes:,} MB",
                "licence": source.licence,
                "home": source.home.removeprefix("https://").removeprefix("huggingface.co/datasets/"),
                "at_hand": "yes" if place is not None else "",
            }
        )
    columns = {"name": "name", "what": "what", "questions": "questions", "passages": "passages", "size": "download",
               "licence": "licence", "home": "source", "at_hand": "at hand"}  # fmt: skip
    print_wide(rows, columns, ("name", "what", "size", "at_hand"), left=("what", "licence", "home"))
    say("Also ir_datasets:NAME (https://ir-datasets.com) and beir:NAME. Sizes are of the whole set, about.")
    say("Get one with: corag data get NAME")


def get_data(config: GetConfig) -> Path:
    """Write a data set as a data folder, and return the folder.

    Raises:
        InputError: There is no set of that name, or it has no such split.
        DataError: It cannot be fetched, read or written, or the folder holds other data.
    """
    source = find_source(config.name)
    if config.from_ is not None and not Path(config.from_).is_dir():
        raise InputError(f"{config.from_} is not a folder; give the one with the source's files")
    splits = tuple(comma_separated(config.splits)) or source.default_splits
    if unknown := [split for split in splits if split not in source.splits]:
        raise InputError(f"{source.name} has no split {unknown[0]!r}; its splits are {', '.join(source.splits)}")
    if bool(config.corpus) == source.own_passages:
        raise InputError(
            f"{source.name} brings its own passages; leave out --corpus" if source.own_passages else
            f"{source.name} has no passages; name a data folder whose corpus holds the evidence with --corpus, such as "
            "one got with: corag data get ir_datasets:dpr-w100"
        )  # fmt: skip
    corpus = find_data(config.corpus) if config.corpus else None
    out = Path(config.out) if config.out is not None else data_cache() / folder_name(source.name)
    work = {"splits": list(splits), "limit": config.limit, "passages": config.passages, "corpus": config.corpus}
    with _alone(out):
        if _is_there(out, source, work, overwrite=config.overwrite):
            return out
        _introduce(source, config)
        files = Files(source, None if config.from_ is None else Path(config.from_), quiet=config.quiet)
        try:
            files.fetch(splits)
            _write(source, splits, files, corpus, out, work, config)
        except UnfetchedError as error:
            raise _to_bring(source, splits, error, config) from error
        except (KeyError, TypeError) as error:
            raise DataError(
                f"the files of {source.name} have another form than this version of CORAG knows ({error!r}); they are "
                f"named in {source.home}"
            ) from error
    return out


def _alone(out: Path) -> AbstractContextManager[Any]:
    """Return a lock, so that of two processes with one folder the second waits and finds it whole."""
    name = hashlib.sha256(str(out.absolute()).encode()).hexdigest()[:16]
    locks = cache_folder() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    lock: AbstractContextManager[Any] = require("filelock", EXTRA).FileLock(locks / f"{name}.lock")
    return lock


def _place(name: str) -> Path | None:
    try:
        return find_data(name)
    except DataError:
        return None


def _is_there(out: Path, source: Source, work: dict[str, Any], *, overwrite: bool) -> bool:
    """Return whether a folder holds this already; raise `DataError` where it holds anything else."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    record = read_source(out) or {}
    if (record.get("name"), record.get("settings")) == (source.name, work):
        return True
    if record and overwrite:
        return False
    held = f"{record['name']} with {record['settings']}" if record else "something else"
    raise DataError(
        f"{out} holds {held}; choose another folder with --out"
        + (", or replace it with --overwrite" if record else "")
    )  # fmt: skip


def _introduce(source: Source, config: GetConfig) -> None:
    size = f", {source.megabytes:,} MB to fetch for all splits" if source.megabytes and config.from_ is None else ""
    say(f"{source.name}: {source.what}", stderr())
    say(f"licence: {source.licence}", stderr())
    say(f"source: {source.home}{size}", stderr())


def _write(
    source: Source,
    splits: tuple[str, ...],
    files: Files,
    corpus: Path | None,
    out: Path,
    work: dict[str, Any],
    config: GetConfig,
) -> None:
    with new_folder(out, replace=config.overwrite) as draft:
        with FolderWriter(draft) as writer:
            gold: set[str] = set()
            for split in splits:
                with progress(f"questions, {split}", quiet=config.quiet) as report:
                    for question in _reported(_questions(source, files, split, config.limit), report):
                        writer.question(question, split)
                        if config.passages is not None:
                            gold.update(name.partition("#")[0] for name in question.gold)
            if source.passages is not None:
                with progress("passages", quiet=config.quiet) as report:
                    for passage in _reported(_passages(source, files, gold, config.passages), report):
                        writer.passage(passage)
        if not writer.num_questions:
            raise DataError(f"{source.name} gave no question; its files hold something else")
        if corpus is not None:
            share_corpus(draft, corpus)
        if writer.num_repeated:
            say(f"{writer.num_repeated} questions whose id had come before were left out", stderr())
        write_source(
            draft,
            {
                **{name: getattr(source, name) for name in ("name", "what", "licence", "home")},
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "files": list(files.used.values()),
                "settings": work,
                "questions": writer.num_questions,
                "passages": writer.num_passages,
                "corag": importlib.metadata.version("corag"),
            },
        )


def _questions(source: Source, files: Files, split: str, limit: int | None) -> Iterator[Question]:
    # Closed at once, so that nothing stays open behind a limit.
    with closing(source.questions(files, split)) as questions:  # type: ignore[type-var]
        yield from islice((one for one in questions if one.question.strip()), limit)


def _passages(source: Source, files: Files, gold: set[str], most: int | None) -> Iterator[Document]:
    """Yield the passages of a shared corpus: all, or so many of the first and those that are evidence."""
    assert source.passages is not None
    missing, others = set(gold), 0
    with closing(source.passages(files)) as passages:  # type: ignore[type-var]
        for passage in passages:
            if passage.id in missing:
                missing.discard(passage.id)
            elif most is not None and passage.id not in gold:
                others += 1
                if others > most:
                    if not missing:
                        return
                    continue
            yield passage


def _reported(items: Iterator[Item], report: Report) -> Iterator[Item]:
    number = 0
    for number, item in enumerate(items, start=1):
        yield item
        if not number % _STEP:
            report(number, 0)
    report(number, number)


def _to_bring(source: Source, splits: tuple[str, ...], error: UnfetchedError, config: GetConfig) -> DataError:
    """Return the error that names all files of a set."""
    wanted = [
        (remote.pattern, remote.address)
        for part, remotes in source.parts.items()
        if part not in source.splits or part in splits
        for remote in remotes
    ]
    listed = "; ".join(f"{name} from {address}" for name, address in dict.fromkeys(wanted or error.files))
    if config.from_ is not None:
        remedy = "leave out --from where there is a network, or bring these files into that folder"
    else:
        remedy = (
            "run the same command again where there is a network, or bring these files into a folder and add --from"
        )
    return DataError(f"{error.problem}; {remedy}: {listed}")
