"""What trainings share: batches, and that they are done once, say nothing and resume after their last epoch."""

from __future__ import annotations

import json
import logging
import shutil
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader

from common.checkpoint import load_checkpoint
from common.errors import InputError, ModelError
from common.storage import folder_lock, write_atomically

LAST, RECORD_FILE = "last.ckpt", "training.json"


def loader_of(batches: Sequence[Any]) -> DataLoader[Any]:
    """Return whole batches as Lightning takes them."""
    # A generator of its own: a loader draws a seed for workers, though it has none.
    return DataLoader(batches, batch_size=None, generator=torch.Generator())


def train_once(
    out: Path, work: str, checkpoint: Path, train: Callable[[Path], Mapping[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Return the record of a training, `training.json` in `out`, and whether it was finished already.

    A finished one of the same `work` that left a whole `checkpoint` is not done again. Else `train` leaves one and
    returns what is recorded; it is given the folder that keeps the state of an unfinished training. A training that
    ends well deletes its state and those of others that began here. Of several processes, one trains and the others
    wait.
    """
    with folder_lock(out):
        record = _finished(out / RECORD_FILE, work, checkpoint)
        is_done = record is not None
        if record is None:
            record = {"work": work, **train(out / f"epochs-{work[:12]}")}
            write_atomically(out / RECORD_FILE, json.dumps(record, indent=1) + "\n")
        for state in out.glob("epochs-*"):
            shutil.rmtree(state, ignore_errors=True)
    return record, is_done


def _finished(path: Path, work: str, checkpoint: Path) -> dict[str, Any] | None:
    """Return the record of a finished training of the same work, if there is one and its checkpoint is whole."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        load_checkpoint(checkpoint)
        return record if record["work"] == work else None
    except (OSError, ValueError, KeyError, TypeError, ModelError):
        return None


def train_module(
    module: pl.LightningModule,
    state: Path,
    *,
    device: str,
    epochs: int,
    hooks: Sequence[pl.Callback],
    logger: Logger | None = None,
    **settings: Any,
) -> pl.Trainer:
    """Train a module from the last whole epoch that an earlier call with the same `state` has finished.

    That epoch is in the file `LAST` of this folder. What the module and its batches draw has to derive from seed, epoch
    and step; the module is asked for batches anew at every epoch. `device` is such as `cuda:1`; `settings` are further
    ones of Lightning's Trainer, which says nothing.

    Raises:
        InputError: Lightning refuses the device.
        KeyboardInterrupt: It was interrupted.
    """
    kind, _, index = device.partition(":")
    last = state / LAST
    with _quiet():
        try:
            trainer = pl.Trainer(
                accelerator=kind,
                devices=[int(index)] if index else 1,
                max_epochs=epochs,
                logger=logger or False,
                callbacks=[
                    *hooks,
                    ModelCheckpoint(state, last.stem, enable_version_counter=False, save_on_train_epoch_end=True),
                ],
                reload_dataloaders_every_n_epochs=1,
                num_sanity_val_steps=0,
                default_root_dir=state,
                enable_model_summary=False,
                enable_progress_bar=False,
                log_every_n_steps=1,
                **settings,
            )
        except (MisconfigurationException, ValueError) as error:
            raise InputError(f"Lightning refuses device {device!r}: {error}") from error
        trainer.fit(module, ckpt_path=last if last.is_file() else None, weights_only=True)
    return trainer


@contextmanager
def _quiet() -> Iterator[None]:
    """Train without Lightning's notes and tips; a stopped training raises KeyboardInterrupt.

    It runs in one thread on a CPU: the bits then do not depend on the number of cores, and small layers gain little
    from more.
    """
    log, num_threads = logging.getLogger("lightning.pytorch"), torch.get_num_threads()
    level, handler = log.level, signal.getsignal(signal.SIGINT)
    try:
        torch.set_num_threads(1)
        log.setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            notes = ".*is not empty.*|.*does not have many workers.*|.*dirpath has changed.*"
            warnings.filterwarnings("ignore", message=notes)
            yield
    except SystemExit as left:
        # Lightning, told to stop, ignores all further signals and leaves the process.
        if isinstance(left.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from left
        raise
    finally:
        log.setLevel(level)
        torch.set_num_threads(num_threads)
