"""Where the figures of each epoch go: W&B, a CSV file, or nowhere. Training never fails for a logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger

from agent.config import Tracker

WANDB_PROJECT = "corag-agent"

_log = logging.getLogger(__name__)


@contextmanager
def open_logger(kind: Tracker, out_dir: Path, settings: Mapping[str, Any]) -> Iterator[Logger | None]:
    """Yield a logger that writes under `out_dir`, and close it at the end.

    W&B runs offline unless the user is logged in. If it cannot start, a warning says so and the figures
    go to a CSV file.
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
            logger.experiment.finish()


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

    logged_in = wandb.login(prompt=False, verify=False)
    logger = WandbLogger(
        project=WANDB_PROJECT,
        name=out_dir.name,
        save_dir=out_dir,
        # Not through `offline=True`, which would change the environment of the whole process.
        mode=None if logged_in else "offline",
        settings=wandb.Settings(silent=True, console="off"),
    )
    # The run starts at first use; an error has to come here.
    _ = logger.experiment
    return logger
