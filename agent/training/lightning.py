"""What trainings with Lightning share: batches, a quiet Trainer that keeps its last epoch, and going on from there."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


def loader_of(batches: Sequence[Any]) -> DataLoader[Any]:
    """Return whole batches as Lightning takes them."""
    # A generator of its own: a loader draws a seed for workers, though it has none.
    return DataLoader(batches, batch_size=None, generator=torch.Generator())


def quiet_trainer(folder: Path, device: str, epochs: int, hooks: Sequence[pl.Callback], **settings: Any) -> pl.Trainer:
    """Return Lightning's Trainer, on a device such as `cuda:1`. It keeps the last epoch in `folder`, and says nothing.

    It asks the module for batches anew at every epoch. `settings` are further ones of the Trainer.
    """
    kind, _, index = device.partition(":")
    return pl.Trainer(
        accelerator=kind,
        devices=[int(index)] if index else 1,
        max_epochs=epochs,
        callbacks=[*hooks, ModelCheckpoint(filename="last", **kept_in(folder))],
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        default_root_dir=folder,
        enable_model_summary=False,
        enable_progress_bar=False,
        **settings,
    )


def resume(trainer: pl.Trainer, module: pl.LightningModule, folder: Path) -> Path:
    """Train a module from the last epoch that `folder` has, and return the file of the last one."""
    last = folder / "last.ckpt"
    trainer.fit(module, ckpt_path=last if last.is_file() else None, weights_only=True)
    return last


def kept_in(folder: Path) -> dict[str, Any]:
    """Return the settings of a `ModelCheckpoint` that saves into `folder` at the end of an epoch."""
    return {"dirpath": folder, "enable_version_counter": False, "save_on_train_epoch_end": True}


@contextmanager
def quiet_training(threads: int | None) -> Iterator[None]:
    """Train without Lightning's notes and tips; a stopped training raises KeyboardInterrupt.

    `threads` are those on a CPU, None for all. With one the bits do not depend on the number of cores, and small layers
    gain little from more.
    """
    log, num_threads = logging.getLogger("lightning.pytorch"), torch.get_num_threads()
    level, handler = log.level, signal.getsignal(signal.SIGINT)
    try:
        torch.set_num_threads(threads or num_threads)
        log.setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            warnings.filterwarnings("ignore", message=".*is not empty.*|.*does not have many workers.*")
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
