"""Training an agent: seeded, resumable, quiet.

At the end of each epoch the state goes to `<out_dir>/resume.safetensors`. A training that was killed and is
started again with the same data and settings continues there and ends with the same bits, because all
randomness of an epoch derives from (seed, epoch).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.rank_zero import rank_zero_only
from numpy.typing import NDArray

from agent.checkpoint import load, model_card, save
from agent.config import DESCRIPTIONS, AgentConfig, Keep, TrainConfig
from agent.errors import AgentError, CheckpointError
from agent.files import replace_file
from agent.model import AgentModel
from agent.predict import ConfigurationAgent
from agent.training.data import TrainingTable, check_disjoint, checked_descriptions
from agent.training.lightning_module import AgentModule
from agent.training.loggers import diagnose, log_result, open_logger
from agent.training.process import one_thread, quiet_lightning
from agent.training.resume import History, ResumeState, read_resume, write_resume

CHECKPOINT_DIR, RESUME_FILE, DONE_FILE = "checkpoint", "resume.safetensors", "training.json"


@dataclass(frozen=True)
class TrainReport:
    """The agent with the weights of the epoch kept, the folder it was saved to, and the figures of each epoch.

    These are `train_*`, and `val_*` if there were validation questions. `epochs_resumed` counts the epochs that earlier
    calls had done: all of them where the training was finished already. `keep` is that of the training's settings.
    """

    agent: ConfigurationAgent
    checkpoint: Path
    history: History
    epochs_resumed: int
    keep: Keep | None = None

    @property
    def best_epoch(self) -> int:
        """Index into `history` of the epoch kept."""
        return kept_epoch(self.history, self.keep)

    @property
    def monitor(self) -> str:
        """The figure that ranks the epochs; lower is better."""
        return monitored(self.history[0])[0]


def fit(
    train: TrainingTable,
    val: TrainingTable | None,
    config: AgentConfig,
    train_config: TrainConfig,
    out_dir: str | Path,
    *,
    descriptions: NDArray[np.float32] | None = None,
    facts: Mapping[str, object] | None = None,
    progress: bool | Callable[[int, int], None] = False,
) -> TrainReport:
    """Train an agent, save it to `<out_dir>/checkpoint` and return it.

    The best epoch is the one with the least validation regret (ties by validation loss), else the least validation
    loss, else the least training loss; among equals, the first. Regret is the utility that the predicted configuration
    loses to the best measured one if `val.utility` is given, else the quality that the predicted reranker loses to the
    best one if `val.quality` is. `train_config.keep` may want the last epoch instead.

    Several devices or machines train one agent if `train_config` names a strategy for them; all have to see `out_dir`,
    and the first process writes it. A finished training of the same tables and settings is not done again.

    No question of `val` may be in `train`. `descriptions` are the vectors of `config.described`, `[K, d]`; those of
    rerankers that are not labelled take no part in the training. `out_dir` also holds the logs and the state of an
    unfinished training; `facts`, such as data and commit, are added to the model card. `progress` shows Lightning's
    bar, or is called with (epochs done, epochs in all) after each.

    Raises:
        AgentError: The tables do not fit the configuration or each other or hold too little, or a loss is not finite.
        KeyboardInterrupt: It was interrupted; the next call goes on after the last whole epoch.
    """
    _check(train, val, config, train_config)
    described = checked_descriptions(config, descriptions)
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / RESUME_FILE
    fingerprint = _fingerprint(train, val, config, train_config, described)
    if (done := _finished(out_dir, fingerprint, train_config.keep)) is not None:
        return done
    state = read_resume(path, fingerprint) or ResumeState()
    epochs_resumed = len(state.history)
    trainer: pl.Trainer | None = None
    # Of several processes, the first alone logs and writes files.
    first = rank_zero_only.rank == 0
    with open_logger(train_config.logger if first else "none", out_dir, dataclasses.asdict(train_config)) as logger:
        told = progress if callable(progress) else None
        keeper = _EpochKeeper(path, fingerprint, state, train_config, logger, told)
        if epochs_resumed < train_config.epochs and not keeper.out_of_patience:
            model = AgentModel(config, train_config.seed)
            if state.model:
                model.load_weights(state.model)
            vectors = described.get(DESCRIPTIONS)
            module = AgentModule(model, config, train_config, train, val, epochs_resumed, state.optimizer, vectors)
            with quiet_lightning(), one_thread(), _interruptible(keeper):
                trainer = _trainer(module, keeper, validate=val is not None, progress=progress is True)
                trainer.fit(module)
                trainer.strategy.barrier()
            # Strategies that start processes of their own leave this one as it was: what counts is on the disk.
            state = read_resume(path, fingerprint) or state
        keeper.log_from(state.history)
        agent = ConfigurationAgent(config, {**state.best, **described})
        report = TrainReport(agent, out_dir / CHECKPOINT_DIR, state.history, epochs_resumed, train_config.keep)
        if first:
            trained_on = {} if trainer is None else {"trained on": _device(trainer)}
            card = model_card(config, _facts(train, val, train_config, report) | trained_on | dict(facts or {}))
            save(report.checkpoint, agent, card)
            log_result(logger, diagnose(agent, train if val is None else val), report.checkpoint)
            record = json.dumps({"fingerprint": fingerprint, "history": state.history}, indent=1)
            replace_file(out_dir / DONE_FILE, record)
    if trainer is not None:
        trainer.strategy.barrier()  # nobody reads the checkpoint before it is there
    if first:
        path.unlink(missing_ok=True)
    return report


def _trainer(module: AgentModule, keeper: _EpochKeeper, *, validate: bool, progress: bool) -> pl.Trainer:
    config = module.train_config
    names = ("accelerator", "devices", "strategy", "num_nodes")
    places: dict[str, Any] = {name: getattr(config, name) for name in names}
    if isinstance(config.devices, tuple):
        places["devices"] = list(config.devices)
    try:
        trainer = pl.Trainer(
            **places,
            precision=config.precision,
            max_epochs=config.epochs - module.first_epoch,
            callbacks=[keeper],
            reload_dataloaders_every_n_epochs=1,
            limit_val_batches=1.0 if validate else 0.0,
            num_sanity_val_steps=0,
            default_root_dir=keeper.path.parent,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=progress,
        )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        refused = ", ".join(f"{name}={value!r}" for name, value in places.items())
        raise AgentError(f"Lightning refuses {refused}: {error}") from error
    cores = os.cpu_count() or 1
    if trainer.strategy.root_device.type == "cpu" and trainer.num_devices > 4 * cores:
        raise AgentError(
            f"devices is {trainer.num_devices}, but on a CPU each of them is a process, and this machine has {cores} "
            "cores; lower devices"
        )
    return trainer


def _device(trainer: pl.Trainer) -> str:
    device = trainer.strategy.root_device
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"{trainer.num_devices * trainer.num_nodes} x {device.type}{name}, precision {trainer.precision}"


def _finished(out_dir: Path, fingerprint: str, keep: Keep | None) -> TrainReport | None:
    """Return the report of a finished training of the same data and settings, if there is one."""
    try:
        record = json.loads((out_dir / DONE_FILE).read_text(encoding="utf-8"))
        if record["fingerprint"] != fingerprint:
            return None
        history: History = tuple(record["history"])
        agent = load(out_dir / CHECKPOINT_DIR)
    except (OSError, ValueError, KeyError, TypeError, CheckpointError):
        return None  # missing or damaged: train again
    return TrainReport(agent, out_dir / CHECKPOINT_DIR, history, len(history), keep)


def monitored(figures: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the figures that rank the epochs, the first deciding, the next breaking ties."""
    if "val_regret" in figures:
        return ("val_regret", "val_loss")
    return ("val_loss",) if "val_loss" in figures else ("train_loss",)


def best_epoch(history: History) -> int:
    """Return the index of the best epoch, the first among equals."""
    names = monitored(history[0])
    return min(range(len(history)), key=lambda epoch: [history[epoch][name] for name in names])


def kept_epoch(history: History, keep: Keep | None) -> int:
    """Return the index of the epoch whose weights are kept."""
    return len(history) - 1 if keep == "last" else best_epoch(history)


class _EpochKeeper(pl.Callback):  # type: ignore[misc]
    """Keeps the weights that are wanted, the history and the resume file, and stops when patience runs out."""

    def __init__(
        self,
        path: Path,
        fingerprint: str,
        state: ResumeState,
        config: TrainConfig,
        logger: Logger | None,
        told: Callable[[int, int], None] | None,
    ) -> None:
        self.path = path
        self._fingerprint = fingerprint
        self._patience, self._keep = config.patience, config.keep
        self._logger, self._told, self._epochs = logger, told, config.epochs
        self.history, self.best = state.history, state.best
        self.interrupted = False
        self._num_logged = 0
        # A log that starts in the middle would be of no use, so the earlier epochs are logged again.
        self.log_from(self.history)

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to this process when going to another one."""
        return {**self.__dict__, "_logger": None, "_told": None}

    def log_from(self, history: History) -> None:
        """Log the epochs that were not logged yet."""
        if self._logger is not None:
            for epoch in range(self._num_logged, len(history)):
                self._logger.log_metrics(history[epoch], step=epoch)
            self._num_logged = len(history)

    @property
    def out_of_patience(self) -> bool:
        if self._patience is None or not self.history:
            return False
        return len(self.history) - 1 - best_epoch(self.history) >= self._patience

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: AgentModule) -> None:
        epoch, figures = len(self.history), pl_module.pop_figures()
        if not all(math.isfinite(value) for value in figures.values()):
            raise AgentError(f"the loss is not finite in epoch {epoch}: {figures}; lower lr or the loss weights")
        self.history = (*self.history, figures)
        if kept_epoch(self.history, self._keep) == epoch:
            self.best = pl_module.finished_weights()
        if trainer.is_global_zero:
            state = ResumeState(self.history, pl_module.model.weights(), self.best, pl_module.optimizer_arrays())
            write_resume(self.path, self._fingerprint, state)
        self.log_from(self.history)
        if self._told is not None:
            self._told(epoch + 1, self._epochs)
        if self.interrupted:
            raise KeyboardInterrupt
        trainer.should_stop = self.out_of_patience


def _check(train: TrainingTable, val: TrainingTable | None, config: AgentConfig, train_config: TrainConfig) -> None:
    train.check_fits(config)
    train.check_trainable()
    if train.quality is None and (train_config.regret_weight or train_config.temperature):
        raise AgentError(
            "regret_weight and temperature need the quality with each reranker; give the table its quality, or set "
            "both to 0"
        )
    if val is not None:
        if not len(val):
            raise AgentError("the validation table is empty; pass None to train without one")
        val.check_fits(config)
        check_disjoint(train, val)


def _fingerprint(
    train: TrainingTable,
    val: TrainingTable | None,
    config: AgentConfig,
    train_config: TrainConfig,
    described: Mapping[str, NDArray[np.float32]],
) -> str:
    parts = {
        "train": train.digest(),
        "val": None if val is None else val.digest(),
        "config": config.to_dict(),
        "train_config": dataclasses.asdict(train_config),
        "descriptions": [hashlib.sha256(vectors.tobytes()).hexdigest() for vectors in described.values()],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _facts(
    train: TrainingTable, val: TrainingTable | None, train_config: TrainConfig, report: TrainReport
) -> dict[str, object]:
    figures = {name: f"{value:.4f}" for name, value in report.history[report.best_epoch].items()}
    return {
        "training questions": f"{len(train)} (sha256 {train.digest()[:16]})",
        "validation questions": "none" if val is None else f"{len(val)} (sha256 {val.digest()[:16]})",
        "training": ", ".join(f"{name}={value}" for name, value in dataclasses.asdict(train_config).items()),
        "best epoch": f"{report.best_epoch} of {len(report.history)}, "
        + ("the last is kept" if report.keep == "last" else f"by {report.monitor}"),
        **figures,
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, lightning {pl.__version__}",
    }


@contextmanager
def _interruptible(keeper: _EpochKeeper) -> Iterator[None]:
    """Raise KeyboardInterrupt where Lightning, told to stop, ignores all further signals and leaves the process.

    Python drops one that is raised while an object is finalised, so the keeper raises it again after the epoch.
    """
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None

    def interrupt(number: int, frame: FrameType | None) -> None:
        keeper.interrupted = True
        signal.default_int_handler(number, frame)

    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except SystemExit as left:
        if isinstance(left.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from left
        raise
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
