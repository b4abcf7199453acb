"""Ablations: agents trained with every combination of some settings, each over several seeds, in one table.

Every run has a folder of its own. A sweep that was stopped goes on where it stopped: finished runs are known by a
fingerprint of their settings and labels, an unfinished one resumes its own training.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import agent
from corag.cli.console import progress
from corag.errors import InputError
from corag.models.runtime import Runtime, in_runtime
from corag.text.visible import to_json
from experiments.agents.sweep_report import METRIC, markdown, page, said, show
from experiments.agents.train import TrainAgentConfig, sha256, train
from experiments.labels.arrays import label_paths
from experiments.run.journal import fingerprint, finished_record, write_atomically
from experiments.run.track import grouped, noted

RUN_FILE, SUMMARY_FILE, MARKDOWN_FILE, PAGE_FILE = "run.json", "summary.json", "summary.md", "report.html"
SEED = "training.seed"
OWN = (SEED, "out", "quiet")
"""What a sweep sets itself, and no setting may vary."""


@dataclass(frozen=True)
class SweepConfig(Runtime):
    """Train agents with every combination of some settings, over seeds, and rank them by validation regret.

    Attributes:
        base: Settings that all runs share; its `out` is the folder of the sweep, with a subfolder for each run.
        vary: Settings by their dotted names, such as `training.lr`, each with the values to try; written in the file.
            A setting that changes the utility, such as `target.metric`, also changes the unit of the regret.
        seeds: Seeds of the training; each combination is trained with each of them.
        wandb_sweep: Write the sweep as a W&B sweep file of this name instead of running it.
        quiet: Show no progress and no table.
    """

    base: TrainAgentConfig
    vary: dict[str, list[Any]]
    seeds: tuple[int, ...] = (0, 1, 2)
    wandb_sweep: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds are {list(self.seeds)}; give at least one, and each once")
        for name, values in self.vary.items():
            if name in OWN:
                raise InputError(f"vary names {name!r}, which a sweep sets itself; leave it out")
            if not values or len({json.dumps(value) for value in values}) < len(values):
                raise InputError(f"vary gives {name!r} the values {values}; give at least one, and each once")


class Run(NamedTuple):
    """One training: what is varied, by dotted name, all settings, and a fingerprint of settings and labels."""

    settings: Mapping[str, Any]
    config: TrainAgentConfig
    work: str


@in_runtime
def sweep(config: SweepConfig) -> dict[str, Any]:
    """Train what is not trained yet; write `report.html`, `summary.json` and `summary.md` into the sweep's folder.

    A run that cannot be trained (a loss that is not finite, nothing to learn) is recorded with its error; the others go
    on.

    Returns:
        The content of `summary.json`: a row for each combination, best first, with the `figures` of the best epochs:
        mean, standard deviation (over seeds, n - 1), lowest and highest; and the regret `by_seed`.

    Raises:
        InputError: A name or value is wrong, or there are no validation questions to compare by.
        DataError: The labels cannot be read.
    """
    runs = plan(config)  # before any training, so that a mistake in the last combination is found first
    records: list[dict[str, Any]] = []
    out = Path(config.base.out)
    with noted(grouped(config.base.wandb, out.name)), progress("sweep", quiet=config.quiet) as report:
        for number, run in enumerate(runs):
            report(number, len(runs))
            records.append(finished_record(Path(run.config.out) / RUN_FILE, run.work) or _trained(run))
        report(len(runs), len(runs))
    summary: dict[str, Any] = {
        "metric": METRIC,
        "seeds": list(config.seeds),
        "vary": config.vary,
        "base": {name: value for name, value in _measured(config.base).items() if name not in OWN},
        "rows": ranked(records),
    }
    write_atomically(out / SUMMARY_FILE, to_json(summary, indent=2) + "\n")
    write_atomically(out / MARKDOWN_FILE, markdown(summary))
    write_atomically(out / PAGE_FILE, page(summary, out.name))
    if not config.quiet:
        show(summary, out.name)
    return summary


def plan(config: SweepConfig) -> list[Run]:
    """Return all runs, each combination with all seeds, in the order of the file.

    An unknown name or a wrong value is an `InputError`, a value that breaks a rule of the training an
    `agent.AgentError`.
    """
    labels = _digests(config.base.labels)
    runs = []
    for values in product(*config.vary.values()):
        settings = dict(zip(config.vary, values, strict=True))
        for seed in config.seeds:
            changed = with_settings(config.base, {**settings, SEED: seed})
            of_run = labels if changed.labels == config.base.labels else _digests(changed.labels)
            # Labels count by what they hold, wherever they lie.
            own = {name: value for name, value in _measured(changed).items() if name not in ("out", "quiet", "labels")}
            work = fingerprint([own, of_run])
            folder = Path(config.base.out) / _folder_name(settings, seed, work)
            runs.append(Run(settings, replace(changed, out=str(folder), quiet=True), work))
    return runs


def with_settings(config: TrainAgentConfig, changes: Mapping[str, Any]) -> TrainAgentConfig:
    """Return a configuration with other values for some settings, given by dotted name.

    Values are read as on the command line: a list becomes a tuple where one is expected. Errors are as for `plan`.
    """
    flat = flattened(asdict(config))
    if unknown := [name for name in changes if name not in flat]:
        raise InputError(f"{unknown[0]!r} is no setting; the settings are {', '.join(flat)}")
    try:
        parsed = _parser().parse_object({**flat, **changes})
    except ArgumentError as error:
        raise InputError(f"{said(changes)} cannot be: {' '.join(str(error).split())}") from error
    return TrainAgentConfig(**vars(_parser().instantiate(parsed)))


@lru_cache(maxsize=1)
def _parser() -> Any:
    """Return what reads values as the command line does; building it takes longer than reading."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(TrainAgentConfig)
    return parser


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted name; `descriptions` are one setting, whatever the names in it."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, Mapping) and name != "descriptions"
        flat |= flattened(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat


def _measured(config: TrainAgentConfig) -> dict[str, Any]:
    """Return the settings by dotted name, but for what is noted in W&B."""
    flat = flattened(asdict(config))
    return {name: value for name, value in flat.items() if not name.startswith("wandb.")}


def ranked(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each combination, lowest mean regret first, then in the order of the records.

    Combinations of which no run could be trained come last.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(json.dumps(record["settings"], sort_keys=True), []).append(record)
    rows = []
    for of_group in groups.values():
        # Seconds are missing where a run was resumed, and all figures where it failed.
        found = [record["figures"] for record in of_group if "figures" in record]
        names = dict.fromkeys(name for figures in found for name in figures)
        rows.append(
            {
                "settings": of_group[0]["settings"],
                "runs": len(of_group),
                "errors": [record["error"] for record in of_group if "error" in record],
                "by_seed": {str(one["seed"]): one["figures"][METRIC] for one in of_group if "figures" in one},
                "figures": {name: _spread([one[name] for one in found if name in one]) for name in names},
            }
        )
    return sorted(rows, key=lambda row: row["figures"][METRIC]["mean"] if row["figures"] else np.inf)


def wandb_sweep(config: SweepConfig) -> dict[str, Any]:
    """Return the sweep as W&B has it: a grid over the same values, each run a `corag train` in a folder of its own.

    Format: https://docs.wandb.ai/guides/sweeps/define-sweep-configuration
    """
    plan(config)
    unset = flattened(asdict(TrainAgentConfig(config.base.labels, config.base.out)))
    flat = flattened(asdict(config.base))
    shared = {name: value for name, value in flat.items() if value != unset[name]} | {"labels": config.base.labels}
    shared["training.logger"] = "wandb"
    # Project and user are the sweep's.
    place = {name: value for name in ("project", "entity") if (value := shared.pop(f"wandb.{name}", None)) is not None}
    fixed = {name: value for name, value in shared.items() if name not in (*OWN, *config.vary)}
    varied = {**config.vary, SEED: list(config.seeds)}
    return {
        "name": Path(config.base.out).name,
        **place,
        "program": "corag",
        # W&B gives a run's name to the process and not to the command, so a shell puts it in.
        "command": [
            "${env}", "sh", "-c",
            f'exec "$0" train --out={shlex.quote(config.base.out)}/"$WANDB_RUN_ID" --quiet=true "$@"',
            "${program}", "${args}",
        ],
        "method": "grid",
        "metric": {"name": METRIC, "goal": "minimize"},
        "parameters": {
            **{name: {"value": list(value) if isinstance(value, tuple) else value} for name, value in fixed.items()},
            **{name: {"values": values} for name, values in varied.items()},
        },
    }  # fmt: skip


def write_wandb_sweep(config: SweepConfig, path: str) -> None:
    """Write the sweep as a W&B sweep file."""
    import yaml  # type: ignore[import-untyped]

    write_atomically(Path(path), yaml.safe_dump(wandb_sweep(config), sort_keys=False, allow_unicode=True))


def _trained(run: Run) -> dict[str, Any]:
    started = time.perf_counter()
    record: dict[str, Any] = {"work": run.work, "settings": dict(run.settings), "seed": run.config.training.seed}
    try:
        report = train(run.config)
    except agent.AgentError as error:
        record["error"] = str(error)
    else:
        figures = report.history[report.best_epoch]
        if METRIC not in figures:
            raise InputError(
                f"there are no validation questions, and without them no {METRIC}; give a share of the questions, or "
                "the split to validate on"
            )
        # An earlier call may have done some epochs, and its time is not known.
        seconds = {} if report.epochs_resumed else {"seconds": time.perf_counter() - started}
        record["figures"] = {**figures, "best_epoch": report.best_epoch + 1, "epochs": len(report.history), **seconds}
    write_atomically(Path(run.config.out) / RUN_FILE, to_json(record, indent=2) + "\n")
    return record


def _digests(labels: str) -> list[str]:
    """Return a hash of each label table; of one that is missing nothing, as the training will say so."""
    return [sha256(file) for file in label_paths(labels) if file.is_file()]


def _folder_name(settings: Mapping[str, Any], seed: int, work: str) -> str:
    said = "_".join([*(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items()), f"seed={seed}"])
    return f"{re.sub(r'[^A-Za-z0-9._=-]+', '-', said)[:80]}_{work[:8]}"


def _spread(values: Sequence[float]) -> dict[str, float]:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "sd": sd, "min": min(values), "max": max(values)}
