"""Training an agent with Lightning: seeded, resumable, quiet.

The last epoch and the best one are under `<out_dir>/epochs-<hash of the work>`. A training that was killed and is
started again with the same data and settings continues there and ends with the same bits, because all randomness of an
epoch derives from (seed, epoch).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.loggers.logger import DummyLogger

from agent.checkpoint import load, model_card, save
from agent.config import AgentConfig, TrainConfig
from agent.predict import ConfigurationAgent
from agent.training.data import TrainingTable
from agent.training.lightning import LAST, train_module, train_once
from agent.training.module import AgentModule
from common.errors import InputError

CHECKPOINT_DIR, BEST = "checkpoint", "best.ckpt"


@dataclass(frozen=True)
class TrainReport:
    """The result of a training: the agent with the weights of the epoch kept, and the folder that it was saved to.

    Attributes:
        history: Figures of each epoch: `train_*`, and `val_*` if there were validation questions.
        epochs_resumed: Epochs that earlier calls had done: all of them if the training was finished already.
        best_epoch: Index into `history` of the epoch kept.
    """

    agent: ConfigurationAgent
    checkpoint: Path
    history: tuple[dict[str, float], ...]
    epochs_resumed: int
    best_epoch: int

    @property
    def monitor(self) -> str:
        """The figure that ranks the epochs; lower is better."""
        return _monitored(self.history[0])


def _monitored(row: Mapping[str, float]) -> str:
    return next(name for name in ("val_regret", "val_loss", "train_loss") if name in row)


def _rank(row: Mapping[str, float]) -> tuple[float, float]:
    """Return what ranks an epoch, lower is better: the monitored figure, ties by the validation loss."""
    return row[_monitored(row)], row.get("val_loss", 0.0)


def fit(
    train: TrainingTable,
    val: TrainingTable | None,
    config: AgentConfig,
    train_config: TrainConfig,
    out_dir: str | Path,
    *,
    device: str = "auto",
    facts: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
    logger: Callable[[Path], Logger | None] | None = None,
) -> TrainReport:
    """Train an agent, save it to `<out_dir>/checkpoint` and return it.

    The best epoch is the one with the least validation regret (ties by validation loss), else the least validation
    loss, else the least training loss; ties go to the first. Regret is the quality that the predicted configuration
    loses to the best one, if `val.quality` is given. With `train_config.keep="last"` the last epoch is kept instead.

    A finished training of the same tables and settings is not done again. Of several processes with one `out_dir`, one
    trains and the others wait.

    No question of `val` may be in `train`. `device` is `cpu`, `cuda`, `cuda:1`, `mps` or the like; `auto` is a GPU if
    there is one. `facts`, such as data and commit, are added to the model card.

    `progress` is called with (epochs done, epochs in all) after each. `logger` makes Lightning's logger of the figures
    of each epoch; it is called with the folder of the training if something is left to do.

    Raises:
        InputError: The tables do not fit the configuration or each other or hold too little, or a loss is not finite.
        KeyboardInterrupt: It was interrupted; the next call goes on after the last whole epoch.
    """
    _check(train, val, config)
    checkpoint = Path(out_dir) / CHECKPOINT_DIR
    tables = [table.digest() for table in (train, val) if table is not None]
    parts = json.dumps([tables, config.to_dict(), dataclasses.asdict(train_config)], sort_keys=True, default=str)
    figures = _Figures(progress, train_config.epochs)

    def learn(state: Path) -> dict[str, Any]:
        state.mkdir(parents=True, exist_ok=True)
        module = AgentModule(config, train_config, train, val)
        trainer = train_module(
            module, state, device=device, epochs=train_config.epochs, hooks=[figures],
            # Lightning's own callbacks may insist on a logger.
            logger=(logger and logger(state)) or DummyLogger(),
            limit_val_batches=0.0 if val is None else 1.0,
        )  # fmt: skip
        file = state / (LAST if train_config.keep == "last" else BEST)
        kept = torch.load(file, map_location="cpu", weights_only=True)
        module.load_state_dict(kept["state_dict"])
        root = trainer.strategy.root_device
        name = torch.cuda.get_device_name(root) if root.type == "cuda" else root.type
        about = _facts(train, val, train_config, figures.history, kept["epoch"])
        card = model_card(config, about | {"trained on": name} | dict(facts or {}))
        save(checkpoint, ConfigurationAgent(config, module.finished_weights()), card)
        return {"best_epoch": kept["epoch"], "history": figures.history}

    record, is_done = train_once(Path(out_dir), hashlib.sha256(parts.encode()).hexdigest(), checkpoint, learn)
    history = tuple(record["history"])
    return TrainReport(
        load(checkpoint), checkpoint, history, len(history) if is_done else figures.resumed, record["best_epoch"]
    )


class _Figures(pl.Callback):  # type: ignore[misc]
    """Collects the figures of each epoch, logs them, saves the best epoch and stops where one is not finite."""

    def __init__(self, progress: Callable[[int, int], None] | None, epochs: int) -> None:
        self.history: list[dict[str, float]] = []
        self.resumed = 0
        self._progress, self._epochs = progress, epochs

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = state["history"]
        self.resumed = len(self.history)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # A logger that was killed may have lost the epochs before: W&B, offline, those of the last 15 seconds.
        for epoch in range(self.resumed):
            self._log(trainer, epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = len(self.history)
        row = {name: float(value) for name, value in trainer.callback_metrics.items()}
        if not all(math.isfinite(value) for value in row.values()):
            raise InputError(f"the loss is not finite in epoch {epoch}: {row}; lower lr or the loss weights")
        self.history.append(row)
        self._log(trainer, epoch)
        # Not by a ModelCheckpoint, which forgets the best epoch if the folder was moved, and compares in float32.
        if all(_rank(row) < _rank(earlier) for earlier in self.history[:-1]):
            trainer.save_checkpoint(Path(trainer.default_root_dir) / BEST, weights_only=True)
        if self._progress is not None:
            self._progress(epoch + 1, self._epochs)

    def _log(self, trainer: pl.Trainer, epoch: int) -> None:
        step = trainer.global_step * (epoch + 1) // len(self.history)
        for logger in trainer.loggers:
            logger.log_metrics({**self.history[epoch], "epoch": epoch}, step=step)


def _check(train: TrainingTable, val: TrainingTable | None, config: AgentConfig) -> None:
    train.check_fits(config)
    train.check_trainable()
    if val is None:
        return
    val.check_fits(config)
    if not len(val):
        raise InputError("the validation table is empty; pass None to train without one")
    if shared := sorted(set(train.ids) & set(val.ids)):
        raise InputError(
            f"{len(shared)} questions are in both training and validation, such as {shared[0]!r}; "
            "split by question, and by document where questions share one"
        )


def _facts(
    train: TrainingTable,
    val: TrainingTable | None,
    train_config: TrainConfig,
    history: Sequence[Mapping[str, float]],
    best: int,
) -> dict[str, object]:
    figures = {name: f"{value:.4f}" for name, value in history[best].items()}
    kept = "the last is kept" if train_config.keep == "last" else f"by {_monitored(history[best])}"
    return {
        "training questions": f"{len(train)} (sha256 {train.digest()[:16]})",
        "validation questions": "none" if val is None else f"{len(val)} (sha256 {val.digest()[:16]})",
        "training": ", ".join(f"{name}={value}" for name, value in dataclasses.asdict(train_config).items()),
        "best epoch": f"{best} of {len(history)}, {kept}",
        **figures,
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, lightning {pl.__version__}",
    }
