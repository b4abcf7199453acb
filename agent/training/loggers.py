"""Where figures go: W&B, CSV files, or nowhere. Training never fails for a logger."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger

from agent.config import Tracker
from agent.training.diagnostics import Diagnostics

WANDB_PROJECT = "corag-agent"

_log = logging.getLogger(__name__)


@contextmanager
def open_logger(kind: Tracker, out_dir: Path, settings: Mapping[str, Any]) -> Iterator[Logger | None]:
    """Yield a logger that writes under `out_dir`, and close it at the end.

    W&B runs offline unless the environment variable WANDB_MODE says otherwise. If it cannot start, a warning says so
    and the figures go to a CSV file.
    """
    logger: Logger | None = None
    if kind == "wandb":
        with tolerated("start", f"the figures go to a CSV file under {out_dir}"):
            logger = _wandb(out_dir)
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
                logger.experiment.finish()


def log_result(logger: Logger | None, diagnostics: Diagnostics, checkpoint: Path) -> None:
    """Log what a trained agent does: confusion matrix, regret by reranker, the questions before and after the encoder.

    W&B gets tables and plots, and the checkpoint as an artifact; a CSV logger gets `confusion.csv`, `regret.csv` and
    `projection.csv` beside its figures.
    """
    if isinstance(logger, WandbLogger):
        with tolerated("take the result"):
            _log_to_wandb(logger, diagnostics, checkpoint)
    elif isinstance(logger, CSVLogger):
        for name, (columns, rows) in diagnostics.tables().items():
            path = Path(logger.log_dir) / f"{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([columns, *rows])


def _log_to_wandb(logger: WandbLogger, diagnostics: Diagnostics, checkpoint: Path) -> None:
    import wandb

    tables = diagnostics.tables()
    best, predicted = diagnostics.best.tolist(), diagnostics.predicted.tolist()
    columns, regret = tables["regret"]
    _, points = tables["projection"]
    figures: dict[str, Any] = {
        "confusion": wandb.plot.confusion_matrix(y_true=best, preds=predicted, class_names=list(diagnostics.rerankers)),
        "regret_by_reranker": wandb.Table(columns=columns, data=regret),
    }
    for name, x in (("before", 1), ("after", 3)):
        data = [[*point[x : x + 2], point[0]] for point in points]
        figures[f"projection_{name}"] = wandb.Table(columns=["x", "y", "best"], data=data)
    logger.experiment.log(figures)
    artifact = wandb.Artifact(f"agent-{logger.experiment.id}", type="model")
    artifact.add_dir(str(checkpoint))
    logger.experiment.log_artifact(artifact)


@contextmanager
def tolerated(what: str, instead: str = "the work goes on without it") -> Iterator[None]:
    """Turn whatever W&B raises into a warning: it documents no closed set of errors, and training matters more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("W&B could not %s (%s); %s", what, error, instead)


def _wandb(out_dir: Path) -> WandbLogger:
    import wandb

    logger = WandbLogger(
        project=WANDB_PROJECT,
        name=out_dir.name,
        save_dir=out_dir,
        # Not through `offline=True`, which would change the environment of the whole process.
        mode=os.environ.get("WANDB_MODE", "offline"),
        settings=wandb.Settings(silent=True, console="off"),
    )
    # The run starts at first use; an error has to come here.
    _ = logger.experiment
    return logger
