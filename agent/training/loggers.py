"""Loggers (W&B, CSV files, or none), and diagnostics of a trained agent on labelled questions.

Training never fails for a logger. Letters: `n` questions, `R` rerankers.
"""

from __future__ import annotations

import csv
import logging
import netrc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import numpy as np
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from numpy.typing import NDArray

from agent.config import Tracker
from agent.configurations import FloatArray
from agent.predict import ConfigurationAgent
from agent.training.data import TrainingTable

_log = logging.getLogger(__name__)

WANDB_SERVER = "https://api.wandb.ai"


@contextmanager
def open_logger(
    kind: Tracker,
    out_dir: Path,
    settings: Mapping[str, Any],
    *,
    project: str = "corag-agent",
    group: str | None = None,
    tags: Sequence[str] = (),
) -> Iterator[Logger | None]:
    """Yield a logger that writes under `out_dir`, and close it at the end.

    W&B runs online where this user is logged in, else offline, in which case no server is contacted; the environment
    variable WANDB_MODE decides first. WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_GROUP, WANDB_TAGS and WANDB_NOTES say
    where a run goes and what is noted of it. Nothing is reported about W&B itself unless WANDB_ERROR_REPORTING says so.
    If it cannot start, a warning says so and the figures go to a CSV file.

    Args:
        kind: What logs.
        out_dir: Folder, whose name is that of the run.
        settings: Of the run.
        project: Project of W&B, unless WANDB_PROJECT names one.
        group: Group of the run there, unless WANDB_RUN_GROUP names one.
        tags: Tags of the run there, besides those of WANDB_TAGS.
    """
    logger: Logger | None = None
    if kind == "wandb":
        with tolerated("start", f"the figures go to a CSV file under {out_dir}"):
            logger = _wandb(out_dir, project, group, tags)
    if logger is None and kind != "none":
        logger = CSVLogger(out_dir, name="csv")
    if logger is not None:
        logger.log_hyperparams(dict(settings))
    try:
        yield logger
    finally:
        if logger is not None:
            logger.finalize("success")
        if isinstance(logger, WandbLogger):
            with tolerated("end"):
                _finish(logger.experiment)


def log_result(logger: Logger | None, diagnostics: Diagnostics, checkpoint: Path) -> None:
    """Log what a trained agent does: confusion matrix, regret by reranker, the questions before and after the encoder.

    W&B gets tables and plots, and the checkpoint as an artifact; a CSV logger gets `confusion.csv`, `regret.csv` and
    `projection.csv` beside its figures.
    """
    if isinstance(logger, WandbLogger):
        with tolerated("take the result"):
            _log_to_wandb(logger, diagnostics, checkpoint)
    elif isinstance(logger, CSVLogger):
        for name, rows in diagnostics.tables().items():
            path = Path(logger.log_dir) / f"{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(rows)


def _log_to_wandb(logger: WandbLogger, diagnostics: Diagnostics, checkpoint: Path) -> None:
    import wandb

    tables = diagnostics.tables()
    best, predicted = diagnostics.best.tolist(), diagnostics.predicted.tolist()
    figures: dict[str, Any] = {
        "confusion": wandb.plot.confusion_matrix(y_true=best, preds=predicted, class_names=list(diagnostics.rerankers)),
        "regret_by_reranker": wandb.Table(columns=tables["regret"][0], data=tables["regret"][1:]),
    }
    for name, x in (("before", 1), ("after", 3)):
        data = [[*point[x : x + 2], point[0]] for point in tables["projection"][1:]]
        figures[f"projection_{name}"] = wandb.Table(columns=["x", "y", "best"], data=data)
    logger.experiment.log(figures)
    artifact = wandb.Artifact(f"agent-{logger.experiment.id}", type="model")
    # File by file: of a whole folder W&B prints a line.
    for file in sorted(checkpoint.iterdir()):
        artifact.add_file(str(file), name=file.name)
    logger.experiment.log_artifact(artifact)


@contextmanager
def tolerated(what: str, instead: str = "the work goes on without it") -> Iterator[None]:
    """Turn whatever W&B raises into a warning: it documents no closed set of errors, and training matters more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("W&B could not %s (%s); %s", what, error, instead)


def wandb_mode() -> str:
    """Return how W&B runs: as WANDB_MODE says, else `online` where this user is logged in, else `offline`.

    Logged in is who has a key in WANDB_API_KEY, or in the netrc file for the server, where `wandb login` puts it. The
    server is not asked.
    """
    if chosen := os.environ.get("WANDB_MODE"):
        return chosen
    if os.environ.get("WANDB_API_KEY"):
        return "online"
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or WANDB_SERVER).hostname
    try:
        hosts = netrc.netrc(os.environ.get("NETRC") or Path.home() / ".netrc").hosts
    except (OSError, netrc.NetrcParseError):
        hosts = {}
    return "online" if host in hosts else "offline"


def _finish(run: Any) -> None:
    """End a run; say how one that was written offline comes to the server."""
    offline = bool(run.offline)
    folder = Path(run.dir).parent
    run.finish()
    if offline:
        _log.info("the W&B run is on this machine alone; send it with: wandb sync %s", folder)


def _wandb(out_dir: Path, project: str, group: str | None, tags: Sequence[str]) -> WandbLogger:
    # W&B tells its makers how it is used and what fails, offline or not, unless this was set when it is imported.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    # Not through Lightning's `offline=True`, which would change the mode of the whole process.
    given = [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip()]
    # W&B reads its variables once for a process, whose runs may differ in them.
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or project,
        entity=os.environ.get("WANDB_ENTITY") or None,
        notes=os.environ.get("WANDB_NOTES") or None,
        group=os.environ.get("WANDB_RUN_GROUP") or group,
        tags=[*given, *tags],
        name=out_dir.name,
        dir=out_dir,
        resume="allow",
        mode=cast(Any, wandb_mode()),
        settings=wandb.Settings(silent=True, console="off"),
    )
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=run, save_dir=out_dir)


class Diagnostics(NamedTuple):
    """An agent on the questions of a table: best and predicted reranker of each, in label order.

    `regret` is the utility, or else the quality, that each prediction loses to the best, `before` are the features on
    their two principal axes, `after` the feature maps on theirs.
    """

    rerankers: tuple[str, ...]
    best: NDArray[np.int64]  # [n]
    predicted: NDArray[np.int64]  # [n]
    regret: FloatArray | None  # [n]
    before: FloatArray  # [n, 2]
    after: FloatArray  # [n, 2]

    def tables(self) -> dict[str, list[list[Any]]]:
        """Return heading and rows of each table.

        `confusion` counts how often each reranker (column) was predicted where another (row) was best, `regret` holds
        means by the best reranker, and `projection` the points of each question.
        """
        names = self.rerankers
        counts = np.zeros((len(names), len(names)), dtype=np.int64)
        np.add.at(counts, (self.best, self.predicted), 1)
        regret: list[list[Any]] = [["reranker", "best", "predicted", "regret"]]
        for i, name in enumerate(names):
            lost = None if self.regret is None or not counts[i].any() else float(self.regret[self.best == i].mean())
            regret.append([name, int(counts[i].sum()), int(counts[:, i].sum()), lost])
        points = np.hstack([self.before, self.after]).tolist()
        return {
            "confusion": [["best", *names], *([name, *row] for name, row in zip(names, counts.tolist(), strict=True))],
            "regret": regret,
            "projection": [
                ["best", "before_x", "before_y", "after_x", "after_y"],
                *([names[label], *point] for label, point in zip(self.best.tolist(), points, strict=True)),
            ],
        }


def diagnose(agent: ConfigurationAgent, table: TrainingTable) -> Diagnostics:
    """Return what an agent does on the questions of a table."""
    names = agent.config.rerankers
    # What nobody labelled has no place in the table.
    predictions = agent.predict(table.features, names)
    assert isinstance(predictions, list)
    predicted = np.array([names.index(prediction.reranker) for prediction in predictions], dtype=np.int64)
    chosen, values = predicted, table.quality
    if table.grid is not None:
        settings = [[found.iterations, found.exploration, found.cost_weight] for found in predictions]
        chosen, values = table.grid.nearest(predicted, settings, agent.config.ranges), table.utility
    regret = None if values is None else (values.max(axis=1) - values[np.arange(len(table)), chosen]).astype(np.float64)
    maps = agent.feature_maps(table.features)
    return Diagnostics(names, table.reranker, predicted, regret, principal_axes(table.features), principal_axes(maps))


def principal_axes(vectors: NDArray[np.floating]) -> FloatArray:
    """Return vectors `[n, d]` on their two principal axes, `[n, 2]`; the largest coordinate of each is positive."""
    centred = np.asarray(vectors, dtype=np.float64) - np.mean(vectors, axis=0, dtype=np.float64)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    points = centred @ axes[:2].T
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    largest = points[np.abs(points).argmax(axis=0), [0, 1]]
    return points * np.where(largest < 0, -1.0, 1.0)
