"""Where questions are labelled: in this process, or by workers of a Ray cluster. Both give the same units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from corag.errors import MissingExtraError, ModelError, ReaderError
from corag.models.cluster import cluster_workers
from corag.models.ran import ran_in_all, recording
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
    with cluster_workers(config, partial(_labelling, config), most=len(missing)) as workers:
        for _, units in workers.map(batches_of(missing, RAY_BATCH)):
            for key, unit in units:
                record(key, unit)


def _labelling(config: LabelConfig) -> Callable[[Sequence[Example]], list[tuple[str, Labelled]]]:
    """Return what labels questions of one source in a worker."""
    worker = Worker(read_examples(config), Labeller.of(config))
    return lambda examples: list(worker.label(examples))


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
