"""What trainings of shipped parts share: a fit that resumes after its last whole epoch, calibration, the card."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import WandbLogger

from agent.training.lightning import quiet_trainer, quiet_training, resume
from common.storage import folder_lock, write_atomically
from corag.cli.console import progress, say
from corag.cli.page import Block, Page, Section, Table
from corag.models.trained import Adapter, save_adapter
from corag.types import FloatArray
from experiments.adapters.config import AdapterTraining
from experiments.data.catalogue import DATA_SETS
from experiments.run.journal import commit, finished_record, versions
from experiments.run.track import TrackedRun

ADAPTER_DIR, RECORD_FILE = "adapter", "training.json"
SPLIT = """\
Questions that share a gold passage or its title are on the same side of the split (`experiments/data/splits.py`).
A distractor may be on both sides."""
LICENCE = """\
The weights derive from all-MiniLM-L6-v2 (Apache-2.0) and are Apache-2.0. They contain no text of the data, whose
licences are above."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a training ends with: the adapter, its figures, and for its card what was measured and how it was made."""

    adapter: Adapter
    figures: Mapping[str, Any]
    results: Sequence[Block]
    facts: Mapping[str, object]


Fit = Callable[..., None]
"""`fit` of one training, given its settings, the folder of its state, and where it logs."""


def train_once(config: AdapterTraining, work: str, learn: Callable[[Fit], Learned], *, about: str, use: str) -> Path:
    """Return the folder of the adapter that a finished training of the same work has left, or train and save it.

    `work` is a hash of everything that the weights depend on. An interrupted training resumes after the last epoch that
    `fit` has kept. The card says what the adapter is, `about`, and has the Python that makes it, `use`. The figures are
    in `training.json`; the training's run in W&B ends with them, and with the adapter as its model. In the end the
    state of the training, `epochs-*`, is deleted.
    """
    out, start = Path(config.out), time.perf_counter()
    folder = out / ADAPTER_DIR
    with folder_lock(out):
        if finished_record(out / RECORD_FILE, work) is not None and folder.is_dir():
            logger.info("%s is trained already; delete it to train again", folder)
        else:
            state = out / f"epochs-{work}"
            with TrackedRun("train", config, out, asdict(config)) as run:
                learned = learn(partial(fit, config, state, run.start(state)))
                hours = round((time.perf_counter() - start) / 3600, 2)
                card = _card(config, learned, about, use, hours)
                save_adapter(folder, learned.adapter, card)
                run.log_metrics(learned.figures)
                run.log_checkpoint(folder, {**learned.figures, "card": card})
            write_atomically(out / RECORD_FILE, json.dumps({"work": work, "figures": learned.figures}, indent=2) + "\n")
            for state in out.glob("epochs-*"):
                shutil.rmtree(state, ignore_errors=True)
    say(f"adapter in {folder}; its README.md has the results")
    return folder


def _card(config: Any, learned: Learned, about: str, use: str, hours: float) -> str:
    headings = [column.name for column in fields(config.sources[0])]
    licences = {name: data_set.licence for name, data_set in DATA_SETS.items()}
    rows = [[*map(str, asdict(of).values()), licences.get(of.data, "see the data")] for of in config.sources]
    installed = ", ".join(f"{package} {version}" for package, version in versions().items())
    settings = {name: value for name, value in config.work.items() if name not in ("data", "sources")}
    facts = {**learned.facts, "hours": hours, "settings": settings, "versions": installed, "commit": commit()}
    command = f"Made by `corag train {config.command}`."
    sections = [
        Section("Use", [f"`{use}`"]),
        Section("Results", [_unwrapped(block) if isinstance(block, str) else block for block in learned.results]),
        Section("Training", [Table([*headings, "licence"], rows), _unwrapped(SPLIT), facts_table(facts), command]),
        Section("Licence", [_unwrapped(LICENCE)]),
    ]
    return Page(learned.adapter.name, _unwrapped(about), sections).markdown()


def _unwrapped(text: str) -> str:
    """Return a text as one paragraph: a page takes each line for one."""
    return " ".join(text.split())


def facts_table(facts: Mapping[str, object]) -> Table:
    """Return facts as a table of two columns."""
    return Table(("fact", "value"), [(name, str(value)) for name, value in facts.items()])


def fit(
    config: AdapterTraining,
    state: Path,
    log: WandbLogger | None,
    module: pl.LightningModule,
    *,
    epochs: int,
    device: str,
    threads: int | None = None,
) -> None:
    """Train a module, from the last whole epoch that an earlier call with the same folder `state` has finished.

    What the module and its batches draw has to derive from seed, epoch and step.
    """
    with progress("train", quiet=config.quiet) as report, quiet_training(threads):
        shown = LambdaCallback(on_train_epoch_end=lambda trainer, _: report(trainer.current_epoch + 1, epochs))
        trainer = quiet_trainer(state, device, epochs, [shown], logger=log or False, log_every_n_steps=1)
        resume(trainer, module, state)


def fit_line(
    x: FloatArray, right: FloatArray, *, strength: float = np.inf, weight: FloatArray | None = None
) -> FloatArray:
    """Return the weights, `[d]`, of a logistic regression on `[n, d]`, and behind them its constant.

    `right` is 1 or 0, `[n]`; both have to occur. `strength` weighs the summed loss against half the squared weights,
    and `weight`, `[n]`, the loss of each row.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, tol=1e-8, max_iter=1000)
    model.fit(x, right, sample_weight=weight)
    weights: FloatArray = np.append(model.coef_[0], model.intercept_)
    return weights


def calibration_error(confidence: FloatArray, right: FloatArray) -> float:
    """Return the expected calibration error over ten bins of equal size (Naeini et al., 2015)."""
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, 10) if len(part)]
    return float(sum(len(p) * abs(confidence[p].mean() - right[p].mean()) for p in parts) / len(confidence))
