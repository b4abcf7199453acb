"""What a source of data is, and what its converter gives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from corag.text.documents import Document

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hub:
    """Files of a data set on the Hugging Face hub.

    Attributes:
        repo: Name of the data set.
        pattern: Which files, with `*`.
        revision: Commit, branch or tag.
        member: Pattern of the files in an archive.
    """

    repo: str
    pattern: str
    revision: str = "main"
    member: str = ""

    @property
    def address(self) -> str:
        """Where a person finds the files."""
        return f"https://huggingface.co/datasets/{self.repo}/tree/{self.revision.replace('/', '%2F')}"


@dataclass(frozen=True, slots=True)
class Url:
    """A file on the web.

    Attributes:
        url: Its address.
        md5: Its checksum, where the source gives one.
        member: Pattern of the files in an archive.
    """

    url: str
    md5: str = ""
    member: str = ""

    @property
    def pattern(self) -> str:
        """Name of the file."""
        return self.url.rpartition("/")[2]

    @property
    def address(self) -> str:
        """Where a person finds the file."""
        return self.url


Remote = Hub | Url


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a source, and the passages that come with it.

    Attributes:
        id: Unique name within the source.
        question: The question.
        answers: Reference answers, each once.
        gold: Ids of the passages that hold the evidence, or spans `id#start-end`.
        passages: Passages that this question brings to the corpus; those of other questions may be the same.
        pool: Whether these passages are the question's candidates.
        extra: Further fields of the line, JSON values.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    passages: tuple[Document, ...] = ()
    pool: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


class Inputs(Protocol):
    """The files of a source, read row by row."""

    def rows(self, part: str) -> Iterator[Row]:
        """Yield the rows of a part: of a split, or of another part that the source has."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set that can be had by name.

    Attributes:
        name: Name.
        what: What it holds, in a few words.
        licence: Licence of the data.
        home: Page about it.
        num_questions: Questions of all splits, about.
        num_passages: Passages, about.
        megabytes: Size of the download, about.
        splits: Its splits; the first ones come by default, see `num_default_splits`.
        parts: Files of each split, and of other parts such as the corpus.
        questions: Converter of a split.
        passages: Converter of a corpus that the questions share, where there is one.
        num_default_splits: How many splits are fetched by default; 0 for all.
        own_passages: Whether the source has passages at all; else another data folder's corpus is needed.
    """

    name: str
    what: str
    licence: str
    home: str
    num_questions: int
    num_passages: int
    megabytes: int
    splits: tuple[str, ...]
    parts: Mapping[str, tuple[Remote, ...]]
    questions: Callable[[Inputs, str], Iterator[Question]]
    passages: Callable[[Inputs], Iterator[Document]] | None = None
    num_default_splits: int = 0
    own_passages: bool = True

    @property
    def default_splits(self) -> tuple[str, ...]:
        """Splits that are fetched where none are named."""
        return self.splits[: self.num_default_splits or None]


def passage_id(prefix: str, *texts: str) -> str:
    """Return an id that depends on the texts alone, so that equal passages of several questions are one."""
    return f"{prefix}-{hashlib.sha256(chr(0).join(texts).encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def distinct(*answers: str | None) -> tuple[str, ...]:
    """Return answers in their order, each once, without empty ones."""
    return tuple(dict.fromkeys(answer.strip() for answer in answers if answer and answer.strip()))
