"""Where figures go: W&B, CSV files, or nowhere. Training never fails for a logger."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
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
    logger = _start(kind, out_dir)
    if logger is not None:
        logger.log_hyperparams(dict(settings))
    try:
        yield logger
    finally:
        if logger is not None:
            logger.finalize("success")
        if isinstance(logger, WandbLogger):
            with _survived("end"):
                logger.experiment.finish()


def log_result(logger: Logger | None, diagnostics: Diagnostics, checkpoint: Path) -> None:
    """Log what a trained agent does: confusion matrix, regret by reranker, the questions before and after the encoder.

    W&B gets tables and plots, and the checkpoint as an artifact; a CSV logger gets `confusion.csv`, `regret.csv` and
    `projection.csv` beside its figures.
    """
    if isinstance(logger, WandbLogger):
        with _survived("take the result"):
            _log_to_wandb(logger, diagnostics, checkpoint)
    elif isinstance(logger, CSVLogger):
        _log_to_csv(Path(logger.log_dir), diagnostics)


def _log_to_wandb(logger: WandbLogger, diagnostics: Diagnostics, checkpoint: Path) -> None:
    import wandb

    names = list(diagnostics.rerankers)
    confusion = wandb.plot.confusion_matrix(
        y_true=diagnostics.best.tolist(), preds=diagnostics.predicted.tolist(), class_names=names
    )
    regret = diagnostics.regret_table()
    table = wandb.Table(columns=list(regret[0]), data=[list(row.values()) for row in regret])
    figures: dict[str, Any] = {"confusion": confusion, "regret_by_reranker": table}
    for name, points in (("before", diagnostics.before), ("after", diagnostics.after)):
        rows = [[*point, names[label]] for point, label in zip(points.tolist(), diagnostics.best.tolist(), strict=True)]
        figures[f"projection_{name}"] = wandb.Table(columns=["x", "y", "best"], data=rows)
    logger.experiment.log(figures)
    artifact = wandb.Artifact(f"agent-{logger.experiment.id}", type="model")
    artifact.add_dir(str(checkpoint))
    logger.experiment.log_artifact(artifact)


def _log_to_csv(folder: Path, diagnostics: Diagnostics) -> None:
    names = diagnostics.rerankers
    confusion = zip(names, diagnostics.confusion().tolist(), strict=True)
    _write_csv(folder / "confusion.csv", [["best", *names], *([name, *row] for name, row in confusion)])
    regret = diagnostics.regret_table()
    _write_csv(folder / "regret.csv", [list(regret[0]), *(list(row.values()) for row in regret)])
    points = zip(diagnostics.best.tolist(), diagnostics.before.tolist(), diagnostics.after.tolist(), strict=True)
    header = ["best", "before_x", "before_y", "after_x", "after_y"]
    _write_csv(folder / "projection.csv", [header, *([names[label], *old, *new] for label, old, new in points)])


def _write_csv(path: Path, rows: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


@contextmanager
def _survived(what: str) -> Iterator[None]:
    """Turn whatever W&B raises into a warning: it documents no closed set of errors, and training matters more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - see above
        _log.warning("W&B could not %s (%s); training goes on without", what, error)


def _start(kind: Tracker, out_dir: Path) -> Logger | None:
    if kind == "none":
        return None
    if kind == "wandb":
        try:
            return _start_wandb(out_dir)
        except Exception as error:  # noqa: BLE001 - W&B documents no closed set of errors, and training matters more
            _log.warning("W&B could not start (%s); the figures go to a CSV file under %s", error, out_dir)
    return CSVLogger(out_dir, name="csv")


def _start_wandb(out_dir: Path) -> WandbLogger:
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
