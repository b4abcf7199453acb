"""Lightning's loggers: W&B, CSV files, or none. No work fails for a logger."""

from __future__ import annotations

import logging
import netrc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger

from agent.config import Tracker

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

    W&B runs online or offline, see `wandb_mode`; WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_GROUP, WANDB_TAGS and
    WANDB_NOTES override the arguments. If it cannot start, a warning says so and the figures go to a CSV file.

    Args:
        kind: What logs.
        out_dir: Folder, whose name is that of the run.
        settings: Of the run.
        project: Project of W&B.
        group: Group of the run there.
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
                run = logger.experiment
                offline, folder = bool(run.offline), Path(run.dir).parent
                run.finish()
                if offline:
                    _log.info("the W&B run is on this machine alone; send it with: wandb sync %s", folder)


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


def _wandb(out_dir: Path, project: str, group: str | None, tags: Sequence[str]) -> WandbLogger:
    # W&B reports how it is used and what fails, offline or not, unless this was set when it is imported.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    given = [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip()]
    # Not through Lightning's `offline=True`, which would change the mode of the whole process. The variables are read
    # here, because W&B reads them once for a process, whose runs may differ in them.
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
