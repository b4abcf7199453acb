"""Work on a Ray cluster, on this machine or on many: workers with models of their own, and an embedder of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from corag.checks import check_choice
from corag.errors import CoragError, InputError
from corag.models.runtime import Runtime, current, use_runtime
from corag.naming import Spelling
from corag.optional import require
from corag.types import Embedder

Engine = Literal["local", "ray"]

Job = TypeVar("Job")
JobResult = TypeVar("JobResult")

CLUSTER = ("engine", "address", "workers")
"""Settings on which no result depends."""
MOST_LOSSES = 3
"""Workers that may be lost over one job; it may be the job that kills them."""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Where work is done. Commands that can share their work inherit these settings.

    Attributes:
        engine: `local` for this process, `ray` for workers of a Ray cluster. Both give the same results.
        address: Address of the Ray cluster; by default one is started on this machine. All its machines must see the
            same paths.
        workers: Number of Ray workers, one CPU each; by default one per GPU, or per CPU, of the cluster.
    """

    engine: Engine = "local"
    address: str | None = None
    workers: int | None = None

    def check_engine(self) -> None:
        """Raise `InputError` for settings that do not fit together."""
        check_choice("engine", self.engine, Engine)
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}; leave it out for one per CPU")
        if self.engine == "local" and (self.address, self.workers) != (None, None):
            raise InputError("address and workers are settings of engine 'ray'; add --engine ray, or leave them out")


class Workers(Generic[Job, JobResult]):
    """Workers of a Ray cluster; see `cluster_workers`."""

    def __init__(self, ray: Any, actors: Sequence[Any]) -> None:
        self._ray, self._actors = ray, actors

    def __len__(self) -> int:
        return len(self._actors)

    def map(self, jobs: Iterable[Job]) -> Iterator[tuple[int, JobResult]]:
        """Yield the number of each job, from 0, and its result, in the order in which they are done.

        Raises:
            CoragError: Several workers were lost over one job, or the cluster itself.
        """
        pool = self._ray.util.ActorPool(self._actors)
        try:
            yield from pool.map_unordered(lambda actor, job: actor.do.remote(*job), enumerate(jobs))
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except self._ray.exceptions.RayError as error:
            raise CoragError(
                f"{MOST_LOSSES} Ray workers were lost over the same work ({error}); run the same command again to "
                "resume, or leave out --engine ray"
            ) from error


@contextmanager
def cluster_workers(
    settings: ClusterSettings, make: Callable[[], Callable[[Job], JobResult]], most: int | None = None
) -> Iterator[Workers[Job, JobResult]]:
    """Start workers on the cluster that settings name, at most `most`, and end them.

    `make`, which is pickled, returns in a worker's process the function that does a job, under this process's `Runtime`
    and in its working folder.

    Raises:
        MissingExtraError: Ray is not installed.
        CoragError: There is no cluster at the address.
    """
    # Ray reports its use to its maker unless told otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", "ray")
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=settings.address or "local", include_dashboard=False, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise CoragError(
                f"there is no Ray cluster at {settings.address!r}: {error}; check --address, or leave it out for one "
                "on this machine"
            ) from error
    try:
        resources, runtime = ray.cluster_resources(), current()
        # Ray hides from a worker the GPUs that it has not requested.
        gpus = 0 if runtime.device.startswith("cpu") else int(resources.get("GPU", 0))
        num = settings.workers or gpus or max(1, int(resources.get("CPU", 1)))
        num = num if most is None else max(1, min(num, most))
        # Ray itself restarts a lost worker, and gives it the same work again.
        actor = ray.remote(num_cpus=1, num_gpus=min(1, gpus / num), max_restarts=-1, max_task_retries=MOST_LOSSES - 1)(
            _Worker
        )
        actors = [actor.remote(make, runtime, str(Path.cwd())) for _ in range(num)]
        try:
            yield Workers(ray, actors)
        finally:
            for each in actors:
                ray.kill(each)
    finally:
        if started:
            ray.shutdown()


class _Worker:
    """What runs in a worker's process, in the folder of the process that started it."""

    def __init__(self, make: Callable[[], Callable[[Any], Any]], runtime: Runtime, folder: str) -> None:
        os.chdir(folder)
        # A worker sees its own GPU alone.
        device = "cuda" if runtime.device.startswith("cuda") else runtime.device
        self._make, self._runtime = make, Runtime(**{**runtime.runtime_settings, "device": device})

    @cached_property
    def _work(self) -> Callable[[Any], Any]:
        # Made with the first job: an error of it is then an error of a job, and not a lost worker.
        return self._make()

    def do(self, number: int, job: Any) -> tuple[int, Any]:
        with use_runtime(self._runtime):
            return number, self._work(job)


class ClusterEmbedder:
    """An embedder that gives each worker of a cluster, made with `embedding_by`, a share of the texts."""

    def __init__(self, embedder: Embedder, workers: Workers[Sequence[str], NDArray[np.float32]]) -> None:
        self.name, self.dimension, self._workers = embedder.name, embedder.dimension, workers

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, `[n, d]`."""
        shares = [list(share) for share in np.array_split(np.array(texts, dtype=object), len(self._workers))]
        vectors = dict(self._workers.map([share for share in shares if share]))
        empty = np.zeros((0, self.dimension), np.float32)
        return np.concatenate([empty, *(vectors[number] for number in sorted(vectors))])


def embedding_by(spelled: Spelling) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Return the function that embeds texts in a worker."""
    from corag.models.cached import vectors_by
    from corag.registry import embedder

    return partial(vectors_by, embedder(spelled))
