"""Where questions are labelled: in this process, or by workers of a Ray cluster. Both give the same units."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from corag.errors import CoragError, MissingExtraError, ModelError, ReaderError
from corag.models.ran import ran_in_all, recording
from corag.models.runtime import runtime
from corag.optional import require
from corag.text.find import find_data
from experiments.data.pools import Pool
from experiments.labels.config import LabelConfig
from experiments.labels.examples import Example, Examples, read_examples
from experiments.labels.question import Labelled, Labeller

Record = Callable[[str, Labelled], None]
"""Called with the key of a question and what the journal keeps of it."""

REASONS_TO_STOP = (MissingExtraError, ModelError, ReaderError, OSError, MemoryError)
"""What would fail for every question alike; anything else is one question's own failure and is recorded."""

LOCAL_BATCH = 64
"""Questions whose candidates are embedded at a time."""
RAY_BATCH = 8
"""Questions given to a worker at a time."""


class Worker:
    """Labels questions, and keeps the pools that are made of a whole corpus."""

    def __init__(self, examples: Examples, labeller: Labeller) -> None:
        self._examples = examples
        self._labeller = labeller
        self._pools: dict[int, Pool] = {}

    def prepare(self, sources: Sequence[int], *, quiet: bool) -> None:
        """Open the indexes of sources, and build those that are not there."""
        for source in sources:
            if self._examples.pool_name(source) == "corpus" and source not in self._pools:
                queries = self._examples.queries(source)
                self._pools[source] = self._examples.open_pool(source, queries, self._labeller.embedder, quiet=quiet)

    def label(self, examples: Sequence[Example]) -> Iterator[tuple[str, Labelled]]:
        """Yield key and unit of each question, all of one source; a failure has its error."""
        source = examples[0].source
        # What a question's candidates were embedded with, it depends on, too.
        with recording() as before:
            self.prepare([source], quiet=True)
            pool = self._pools.get(source)
            if pool is None:
                pool = self._examples.open_pool(
                    source, [example.query for example in examples], self._labeller.embedder
                )
        for example in examples:
            try:
                with recording() as models:
                    labelled = self._labeller.label(example.query, pool)
                labelled["models"] = ran_in_all([before(), models()])
            except REASONS_TO_STOP:
                raise
            except Exception as error:  # noqa: BLE001  (one question does not stop the sweep)
                labelled = self._labeller.failed(error)
            yield example.key, labelled


def label_on_ray(config: LabelConfig, missing: Sequence[Example], record: Record) -> None:
    """Label questions with workers of a Ray cluster, which each have models of their own."""
    # Ray asks nobody before it reports its use to its maker.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", "ray")
    started = not ray.is_initialized()
    if started:
        ray.init(address=config.address or "local", include_dashboard=False, log_to_driver=False)
    try:
        there = ray.cluster_resources()
        # Ray hides from a worker the GPUs that it has not asked for.
        gpus = 0 if config.device.startswith("cpu") else int(there.get("GPU", 0))
        num_workers = config.workers or gpus or max(1, int(there.get("CPU", 1)))
        actor = ray.remote(num_cpus=1, num_gpus=min(1, gpus / num_workers))(_RayWorker)
        batches = batches_of(missing, RAY_BATCH)
        workers = [actor.remote(_for_a_worker(config)) for _ in range(min(num_workers, len(missing)))]
        running = {worker.units.remote(batch): worker for worker, batch in zip(workers, batches, strict=False)}
        while running:
            (done,), _ = ray.wait(list(running))
            worker = running.pop(done)
            units = ray.get(done)
            if (batch := next(batches, None)) is not None:
                running[worker.units.remote(batch)] = worker
            for key, unit in units:
                record(key, unit)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise CoragError(
            f"a Ray worker was lost ({error}); run the same command again, it goes on from here, or leave out "
            "--engine ray"
        ) from error
    finally:
        if started:
            ray.shutdown()


class _RayWorker(Worker):
    """A worker with questions and models of its own."""

    def __init__(self, config: LabelConfig) -> None:
        self._config = config
        with runtime(config):
            super().__init__(read_examples(config), Labeller.of(config))

    def units(self, examples: Sequence[Example]) -> list[tuple[str, Labelled]]:
        """Return the keys and units of questions of one source."""
        with runtime(self._config):
            return list(self.label(examples))


def batches_of(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """Yield neighbours of one source, at most `size` at a time."""
    batch: list[Example] = []
    for example in examples:
        if batch and (len(batch) == size or batch[0].source != example.source):
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


def _for_a_worker(config: LabelConfig) -> LabelConfig:
    """Return the settings as a worker needs them that has another working folder and sees only its own GPU."""
    index = config.index
    if index is not None and "://" not in index:
        index = str(Path(index).resolve())
    data = str(find_data(config.data).resolve()) if config.data else ""
    run = None if config.run is None else str(Path(config.run).resolve())
    sources = tuple(
        source if source.run is None else replace(source, run=str(Path(source.run).resolve()))
        for source in config.sources
    )
    device = "cuda" if config.device.startswith("cuda") else config.device
    return replace(config, data=data, index=index, run=run, sources=sources, device=device)
