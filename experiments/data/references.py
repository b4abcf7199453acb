"""`corag data references`: a reader writes reference answers for questions that have none, from their gold passages.

CORAG (section 5.1) makes the references of its long-form questions so. An interrupted run resumes question by question.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import corag
from common.checks import check_count
from common.configuration import spelling
from common.storage import new_folder
from corag.cli.console import progress, say
from corag.errors import DataError, InputError
from corag.models.runtime import Runtime, in_runtime, recording
from corag.readers.wrappers import CachedReader
from corag.registry import tokens as make_tokens
from corag.text.chunking import cut_to_tokens
from corag.text.data import DataFolder, Query, find_data, passage_at
from corag.text.documents import SEPARATOR
from corag.types import PromptedReader, Reader
from experiments.data.config import comma_separated
from experiments.data.folder import is_written, line_of, read_source, share_corpus, write_data, write_source
from experiments.data.splits import questions_of
from experiments.run.journal import Journal, fingerprint

READER_FIELD = "reference_reader"
"""Field of a question that names the reader of its reference answer."""
BATCH = 16
"""Questions that are given to the reader together, if it answers many at once; the most that a kill can cost."""


@dataclass(frozen=True)
class ReferencesConfig(Runtime):
    """Let a reader write reference answers from the gold passages of questions that have none; a run resumes.

    Attributes:
        data: Data folder, by path or name.
        out: Data folder to write: the same passages and questions, with the answers.
        reader: Reader, with settings: `openai(model=..., base_url=...)`. Every answer names it (`reference_reader`).
        splits: Splits of the questions, separated by commas; by default all.
        limit: First questions of each split.
        budget: Most tokens of gold passages in a context, as the reader counts them; what is longer is cut.
        overwrite: Replace `out` if it holds other data.
        quiet: Show no progress.
    """

    data: str
    out: str
    reader: str
    splits: str = ""
    limit: int | None = None
    budget: int = 3072
    overwrite: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("limit", "budget"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value, "typical: 3072 tokens")


@in_runtime
def write_references(config: ReferencesConfig) -> tuple[Path, int]:
    """Write a data folder with reference answers; return it, and the number of answers written.

    A reader that fails raises its error; what it answered before is kept for the next run.
    """
    source, out, reader = find_data(config.data), Path(config.out), corag.reader(config.reader)
    if out.absolute() == source.absolute():
        raise InputError(f"out is the data folder itself, {out}; give another one")
    folder = DataFolder.open(source)
    # A question that BEIR has in several splits is in the first, of those asked for if it can, as a line names one.
    asked = comma_separated(config.splits)
    ranked = sorted(folder.queries, key=lambda query: query.split not in asked)
    split = {query.id: query.split for query in reversed(ranked)}
    folder = replace(folder, queries=tuple(query for query in folder.queries if query.split == split[query.id]))
    queries = _unanswered(folder, config)
    settings: dict[str, Any] = {
        "reader": spelling(reader), "budget": config.budget, "splits": config.splits, "limit": config.limit,
    }  # fmt: skip
    work = fingerprint([str(source.resolve()), settings, [fingerprint(asdict(query)) for query in queries]])
    if not is_written(out, {"work": work}, overwrite=config.overwrite):
        journal_file = out.absolute().with_name(f".{out.absolute().name}.references.jsonl")
        with Journal(journal_file, work) as journal, recording() as models:
            _answer(journal, queries, folder, reader, config)
            answers = {name: answer for name, unit in journal.units.items() if (answer := unit["answer"])}
            known = read_source(source)
            with new_folder(out) as draft:
                share_corpus(draft, source)
                lines = (_line(query, answers.get(query.id), settings["reader"]) for query in folder.queries)
                write_data(draft, queries=lines)
                by = f"{len(answers)} reference answers by {settings['reader']}"
                written = {
                    "what": f"{known.get('what', source.name)}; {by}",
                    "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                    "references": {**settings, "models": models(), "answers": len(answers)},
                    "work": work,
                }
                write_source(draft, {"name": source.name, **known, **written})
            journal.remove()
    number = read_source(out)["references"]["answers"]
    say(f"{number} reference answers; data folder in {out}")
    return out, number


def _unanswered(folder: DataFolder, config: ReferencesConfig) -> list[Query]:
    """Return the questions that need an answer and have evidence in the corpus."""
    splits = comma_separated(config.splits) or list(dict.fromkeys(query.split for query in folder.queries))
    queries = [
        query
        for split in splits
        for query in islice((query for query in questions_of(folder, split) if not query.answers), config.limit)
        if any(passage_at(name, folder.documents) is not None for name in query.gold)
    ]
    if not queries:
        raise DataError(f"{folder.path} has no question of {', '.join(splits)} with evidence and without an answer")
    return queries


def _answer(
    journal: Journal, queries: Sequence[Query], folder: DataFolder, reader: Reader, config: ReferencesConfig
) -> None:
    """Add the answers that a journal lacks, by the questions' ids."""
    tokens = reader.tokens if isinstance(reader, PromptedReader) else make_tokens()

    def context(query: Query) -> str:
        passages = [passage for name in query.gold if (passage := passage_at(name, folder.documents)) is not None]
        return cut_to_tokens(SEPARATOR.join(passage.text for passage in passages), tokens, config.budget)

    # Asks readers for many answers at once if they can.
    many = CachedReader(reader, cache_mb=0)
    missing = [query for query in queries if query.id not in journal.units]
    with progress("references", quiet=config.quiet) as report:
        for start in range(0, len(missing), BATCH):
            report(len(journal.units), len(queries))
            batch = missing[start : start + BATCH]
            answers = many.answer_many([query.question for query in batch], list(map(context, batch)))
            for query, answer in zip(batch, answers, strict=True):
                journal.add(query.id, {"answer": answer.text.strip()})
        report(len(queries), len(queries))


def _line(query: Query, answer: str | None, reader: str) -> dict[str, Any]:
    return line_of(query) | ({} if answer is None else {"answers": [answer], READER_FIELD: reader})
