"""One way to train what ships: Lightning's loop, resumed after its last whole epoch, and a record of the finished."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint

from agent.training.fit import calm
from corag.cli.console import Report, progress
from corag.models.trained import Adapter, save_adapter
from corag.writing import write_atomically
from experiments.adapters.config import AdapterTraining
from experiments.run.journal import finished_record
from experiments.run.track import TrackedRun

ADAPTER_DIR, RECORD_FILE = "adapter", "training.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AdapterReport:
    """The adapter's folder, and its figures: of each test by method, or of each set of questions."""

    adapter: Path
    figures: Mapping[str, Any]


def finished_report(out: Path, work: str) -> AdapterReport | None:
    """Return the report of a finished training of the same work in `out`, if there is one."""
    adapter = out / ADAPTER_DIR
    if (record := finished_record(out / RECORD_FILE, work)) is None or not adapter.is_dir():
        return None
    logger.info("%s is trained already; delete it to train again", adapter)
    return AdapterReport(adapter, record["figures"])


def ship(config: AdapterTraining, adapter: Adapter, card: str, figures: Mapping[str, Any], work: str) -> AdapterReport:
    """Save an adapter with its card, record that the work is finished, and delete the state of the training.

    The adapter is logged as the model of the training's run in W&B.
    """
    out = Path(config.out)
    save_adapter(out / ADAPTER_DIR, adapter.tensors, adapter.config, card)
    with TrackedRun("train", config, out, asdict(config)) as run:
        run.start(out / f"epochs-{work}")  # which has the id of the run
        run.log_checkpoint(out / ADAPTER_DIR, {**figures, "card": card})
    write_atomically(out / RECORD_FILE, json.dumps({"work": work, "figures": figures}, indent=2) + "\n")
    for state in (*out.glob("epochs-*"), out / "draft"):
        shutil.rmtree(state, ignore_errors=True)
    return AdapterReport(out / ADAPTER_DIR, figures)


def fit(
    module: pl.LightningModule,
    data: pl.LightningDataModule,
    config: AdapterTraining,
    work: str,
    *,
    epochs: int,
    device: str,
    threads: int | None = None,
    callbacks: Sequence[pl.Callback] = (),
    **trainer_settings: Any,
) -> None:
    """Train a module for some epochs, from the last whole one that an earlier call for the same work has finished.

    Args:
        module: What is trained; all that it draws has to derive from seed and step.
        data: Its batches, asked for anew in each epoch; all that they draw has to derive from seed and epoch.
        config: Settings of the training.
        work: Hash of everything that the weights depend on.
        epochs: Epochs in all.
        device: Where: cpu, cuda:N or mps.
        threads: CPU threads; None for PyTorch's default.
        callbacks: Further callbacks of Lightning.
        trainer_settings: Further settings of Lightning's `Trainer`.
    """
    folder = Path(config.out) / f"epochs-{work}"
    last = folder / "last.ckpt"
    kind, _, index = device.partition(":")
    keeper = ModelCheckpoint(folder, filename="last", enable_version_counter=False, save_on_train_epoch_end=True)
    with (
        TrackedRun("train", config, Path(config.out), asdict(config)) as run,
        progress("train", quiet=config.quiet) as report,
        calm(threads),
    ):
        trainer = pl.Trainer(
            accelerator={"cuda": "gpu"}.get(kind, kind),
            devices=[int(index or 0)] if kind == "cuda" else 1,
            max_epochs=epochs,
            callbacks=[*callbacks, _Progress(report), keeper],
            logger=run.start(folder) or False,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
            reload_dataloaders_every_n_epochs=1,
            default_root_dir=folder,
            enable_model_summary=False,
            enable_progress_bar=False,
            **trainer_settings,
        )
        trainer.fit(module, datamodule=data, ckpt_path=last if last.is_file() else None, weights_only=True)


@dataclass(frozen=True)
class Epoch:
    """The batches of an epoch, made one after the other as they are asked for."""

    length: int
    make: Callable[[], Iterator[Any]]

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return self.make()


class _Progress(pl.Callback):  # type: ignore[misc]
    def __init__(self, report: Report) -> None:
        self._report = report

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._report(trainer.current_epoch + 1, trainer.max_epochs)
