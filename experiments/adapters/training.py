"""What trainings of shipped parts share: they are done once, logged, and described by a card; and calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import WandbLogger

from agent.training.lightning import train_once
from corag.cli.console import say
from corag.cli.page import Block, Page, Section, Table
from corag.models.trained import Adapter, save_adapter
from corag.types import FloatArray
from experiments.adapters.config import AdapterTraining
from experiments.data.catalogue import DATA_SETS
from experiments.run.journal import commit, versions
from experiments.run.track import TrackedRun

ADAPTER_DIR = "adapter"
SPLIT = """\
Questions that share a gold passage or its title are on the same side of the split (`experiments/data/splits.py`).
A distractor may be on both sides."""
LICENCE = """\
The weights derive from all-MiniLM-L6-v2 (Apache-2.0) and are Apache-2.0. They contain no text of the data, whose
licences are above."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a training ends with: the adapter, its figures, and for its card what was measured and how it was made."""

    adapter: Adapter
    figures: Mapping[str, Any]
    results: Sequence[Block]
    facts: Mapping[str, object]


Learn = Callable[[Path, WandbLogger | None], Learned]
"""A training, given the folder of its state, as `agent.training.lightning.train_module` keeps it, and where it logs."""


def train_adapter(config: AdapterTraining, work: str, learn: Learn, about: str) -> Path:
    """Return the folder of the adapter that a finished training of the same work has left, or train and save it.

    `work` is a hash of everything that the weights depend on. The card says what the adapter is, `about`. The figures
    are in `training.json`; the training's run in W&B ends with them, and with the adapter as its model.
    """
    out, start = Path(config.out), time.perf_counter()
    folder = out / ADAPTER_DIR

    def train(state: Path) -> dict[str, Any]:
        with TrackedRun("train", config, out, asdict(config)) as run:
            learned = learn(state, run.start(state))
            hours = round((time.perf_counter() - start) / 3600, 2)
            card = _card(config, learned, about, hours)
            save_adapter(folder, learned.adapter, card)
            run.log_metrics(learned.figures)
            run.log_checkpoint(folder, {**learned.figures, "card": card})
        return {"figures": learned.figures}

    train_once(out, work, folder, train)
    say(f"adapter in {folder}; its README.md has the results")
    return folder


def _card(config: Any, learned: Learned, about: str, hours: float) -> str:
    headings = [column.name for column in fields(config.sources[0])]
    licences = {name: data_set.licence for name, data_set in DATA_SETS.items()}
    rows = [[*map(str, asdict(of).values()), licences.get(of.data, "see the data")] for of in config.sources]
    installed = ", ".join(f"{package} {version}" for package, version in versions().items())
    settings = config.measured_settings("data", "sources")
    facts = {**learned.facts, "hours": hours, "settings": settings, "versions": installed, "commit": commit()}
    command = f"Made by `corag train {config.command}`."
    sections = [
        Section("Use", [f'`corag.reranker("{learned.adapter.name}")`']),
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
