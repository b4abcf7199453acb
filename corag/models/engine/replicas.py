"""A model on one or several devices: batches run side by side, and those that do not fit the memory are halved."""

from __future__ import annotations

import logging
import math
import queue
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from corag.errors import ModelError
from corag.models.ran import Ran, note

logger = logging.getLogger(__name__)

Rows = NDArray[np.intp]
"""Positions of a batch's rows in what is to be run."""
Model = TypeVar("Model")
Result = TypeVar("Result")

_FULL = re.compile(r"out of memory|can't allocate memory|bad_alloc", re.IGNORECASE)


class Job(NamedTuple, Generic[Model, Result]):
    """What is done with batches.

    Attributes:
        run: Runs one batch with one of the models.
        tokens: Tokens of a batch, padding included.
    """

    run: Callable[[Model, Rows], Result]
    tokens: Callable[[Rows], int]


class Replicas(Generic[Model]):
    """The same model on each of its devices; the values of a batch do not depend on which of them runs it.

    Args:
        models: The model on each device.
        record: What is noted when it runs; see `corag.models.ran`.
    """

    def __init__(self, models: Sequence[Model], record: Ran | None = None) -> None:
        self.models = tuple(models)
        self.record = record
        self._free: queue.SimpleQueue[Model] = queue.SimpleQueue()
        for model in self.models:
            self._free.put(model)
        self._fits = math.inf
        """Tokens of the largest batch that may fit; less once one did not."""

    def run(self, batches: Iterable[Rows], job: Job[Model, Result]) -> Iterator[tuple[Rows, Result]]:
        """Run batches and yield what came of each, in order; a batch that is halved comes as several.

        Raises:
            ModelError: A single row does not fit the memory of its device.
        """
        if self.record is not None:
            note(self.record)
        if len(self.models) == 1:
            for rows in batches:
                yield from self._fitted(self.models[0], rows, job)
            return
        with ThreadPoolExecutor(len(self.models)) as pool:
            running: deque[Future[list[tuple[Rows, Result]]]] = deque()
            for rows in batches:
                running.append(pool.submit(self._on_a_free_one, rows, job))
                if len(running) > 2 * len(self.models):
                    yield from running.popleft().result()
            for one in running:
                yield from one.result()

    def _on_a_free_one(self, rows: Rows, job: Job[Model, Result]) -> list[tuple[Rows, Result]]:
        model = self._free.get()
        try:
            return list(self._fitted(model, rows, job))
        finally:
            self._free.put(model)

    def _fitted(self, model: Model, rows: Rows, job: Job[Model, Result]) -> Iterator[tuple[Rows, Result]]:
        """Run a batch, in halves of halves as far as the memory asks for it."""
        waiting = [rows]
        while waiting:
            batch = waiting.pop()
            tokens = job.tokens(batch)
            found = [] if len(batch) > 1 and tokens > self._fits else _tried(job.run, model, batch)
            if found:
                yield batch, found[0]
            elif len(batch) == 1:
                raise ModelError(self._too_large(tokens))
            else:
                if tokens <= self._fits:
                    self._fits = tokens // 2
                    logger.warning(
                        "a batch of %d tokens did not fit the memory of %s; batches have at most %d from now on: "
                        "--batch_tokens %d asks for that at once",
                        tokens, self._place(), self._fits, self._fits,
                    )  # fmt: skip
                waiting += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]

    def _too_large(self, tokens: int) -> str:
        name = "the model" if self.record is None else f"the model {self.record.model!r}"
        return (
            f"{name} ran out of memory on {self._place()} with a single text of {tokens} tokens; free the memory that "
            "other programs hold, give fewer tokens at once (max_tokens), --precision bf16, or another --device"
        )

    def _place(self) -> str:
        return "its device" if self.record is None else f"{self.record.device} ({self.record.hardware})"


def _tried(run: Callable[[Model, Rows], Result], model: Model, rows: Rows) -> list[Result]:
    """Return the result, or nothing where the memory was too small."""
    try:
        return [run(model, rows)]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Only here, where the error no longer holds what it was raised with, is there something to free.
    free_memory()
    return []


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device has too little memory."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and _FULL.search(str(error)) is not None


def free_memory() -> None:
    """Give back what PyTorch holds of the devices' memory without using it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    elif torch is not None and torch.backends.mps.is_available():
        torch.mps.empty_cache()
