"""One queue of what a reader is asked, across questions and configurations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from multiprocessing.pool import AsyncResult, ThreadPool
from typing import NamedTuple

from corag.models.chat import Chat
from corag.readers.wrappers import SelfConsistentReader
from corag.types import Answer, BatchReader, Reader
from experiments.evaluation.measure import Prompt


class Reading(NamedTuple):
    """The answers to some prompts, or their places in the queue."""

    answers: dict[Prompt, Answer]
    asked: dict[Prompt, AsyncResult[Answer]]

    @property
    def is_done(self) -> bool:
        """Whether `result` need not wait."""
        return all(answer.ready() for answer in self.asked.values())

    def result(self) -> dict[Prompt, Answer]:
        """Return the answers, waiting for them; what the reader raised is raised."""
        return {**self.answers, **{prompt: answer.get() for prompt, answer in self.asked.items()}}


class Readings(AbstractContextManager["Readings"]):
    """Reads each distinct prompt once: a server's at most `concurrency` at the same time, any other reader's at once.

    With the block its threads end; a request that is under way then is given up.
    """

    def __init__(self, reader: Reader, concurrency: int) -> None:
        self._reader = reader
        # Unlike those of `concurrent.futures`, these threads do not keep an interrupted process waiting for a reply.
        self._pool = ThreadPool(concurrency) if is_served(reader) else None

    def ask(self, prompts: Sequence[Prompt]) -> Reading:
        """Ask for answers, in the order of the calls."""
        distinct = list(dict.fromkeys(prompts))
        if self._pool is not None:
            return Reading({}, {prompt: self._pool.apply_async(self._reader.answer, prompt) for prompt in distinct})
        if isinstance(self._reader, BatchReader) and distinct:
            answers = self._reader.answer_many(*map(list, zip(*distinct, strict=True)))
        else:
            answers = [self._reader.answer(*prompt) for prompt in distinct]
        return Reading(dict(zip(distinct, answers, strict=True)), {})

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.terminate()


def is_served(reader: Reader) -> bool:
    """Return whether a reader asks a server, which works on many prompts at the same time."""
    return isinstance(reader.readers[0] if isinstance(reader, SelfConsistentReader) else reader, Chat)
