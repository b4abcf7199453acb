"""Ablations: agents trained with every combination of some settings, each over several seeds, in one table.

Every run has a folder of its own, and resumes there: a sweep that was stopped goes on where it stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from common.storage import folder_lock, write_atomically
from corag.cli.console import progress, say
from corag.cli.page import Page, Section, Table
from corag.errors import InputError
from corag.models.runtime import Runtime, in_runtime
from corag.registry import nearest
from corag.text.visible import to_json
from experiments.agents.train import TrainAgentConfig, fit, known_labels
from experiments.labels.table import Labels, read_labels
from experiments.run.journal import fingerprint

SUMMARY_FILE, PAGE_FILE = "summary.json", "report.html"
METRIC = "val_regret"
COLUMNS = {"val_regret": "regret", "val_loss": "loss", "best_epoch": "best epoch"}
"""Figures of the tables and their headings; `summary.json` has all."""
SEED = "training.seed"
OWN = (SEED, "out", "quiet")
"""What a sweep sets itself, and no setting may vary."""


@dataclass(frozen=True)
class SweepConfig(Runtime):
    """Train agents with every combination of some settings, over seeds, and rank them by validation regret.

    Attributes:
        base: Settings of `corag train agent` that all runs share, such as `--base.labels FILE`; its `out` is the folder
            of the sweep, with a subfolder for each run.
        vary: Settings by their dotted names, such as `training.lr`, each with the values to try; written in the file.
            A setting that changes the utility, such as `target.metric`, also changes the unit of the regret.
        seeds: Seeds of the training; each combination is trained with each of them.
        out: Folder of the sweep, instead of the one in `base`.
        quiet: Show no progress and no table.
    """

    base: TrainAgentConfig
    vary: dict[str, list[Any]]
    seeds: tuple[int, ...] = (0, 1, 2)
    out: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is not None:
            object.__setattr__(self, "base", replace(self.base, out=self.out))
            object.__setattr__(self, "out", None)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise InputError(f"seeds are {list(self.seeds)}; give at least one, and each once")
        for name, values in self.vary.items():
            if name in OWN:
                raise InputError(f"vary names {name!r}, which a sweep sets itself; leave it out")
            if not values or len({json.dumps(value) for value in values}) < len(values):
                raise InputError(f"vary gives {name!r} the values {values}; give at least one, and each once")


@in_runtime
def sweep(config: SweepConfig) -> dict[str, Any]:
    """Train what is not trained yet; write `report.html` and `summary.json` into the sweep's folder.

    A run that cannot be trained (a loss that is not finite, nothing to learn) is recorded with its error; the others go
    on. Of several processes with one `out`, one works and the others wait.

    Returns:
        The content of `summary.json`: a row for each combination, best first, with the `figures` of the best epochs:
        mean, standard deviation (over seeds, n - 1), lowest and highest; and the regret `by_seed`.

    Raises:
        InputError: A name or value is wrong, or there are no validation questions to compare by.
        DataError: The labels cannot be read.
    """
    combinations = plan(config)  # before any training, so that a mistake in the last one is found first
    tables = {name: read_labels(name) for name in {run.labels: None for _, runs in combinations for run in runs}}
    out, rows = Path(config.base.out), []
    with folder_lock(out, ".sweep.lock"):
        with progress("sweep", quiet=config.quiet) as report:
            for number, (settings, runs) in enumerate(combinations):
                report(number, len(combinations))
                rows.append(_row(settings, [_trained(run, tables[run.labels], out.name) for run in runs]))
            report(len(combinations), len(combinations))
        # Combinations of which no run could be trained come last.
        rows.sort(key=lambda row: row["figures"][METRIC]["mean"] if row["figures"] else np.inf)
        summary: dict[str, Any] = {"metric": METRIC, "seeds": list(config.seeds), "vary": config.vary}
        summary |= {"base": asdict(config.base), "rows": rows}
        write_atomically(out / SUMMARY_FILE, to_json(summary, indent=2) + "\n")
        page = sweep_page(summary, out.name)
        write_atomically(out / PAGE_FILE, page.html())
    if not config.quiet:
        page.show()
    say(f"report and figures in {out}: {PAGE_FILE} and {SUMMARY_FILE}")
    return summary


def plan(config: SweepConfig) -> list[tuple[Mapping[str, Any], list[TrainAgentConfig]]]:
    """Return each combination: what is varied, by dotted name, and all settings of its runs, one for each seed.

    An unknown name, a wrong value, or one that breaks a rule of the training is an `InputError`.
    """
    combinations: list[tuple[Mapping[str, Any], list[TrainAgentConfig]]] = []
    for values in product(*config.vary.values()):
        settings, runs = dict(zip(config.vary, values, strict=True)), []
        for seed in config.seeds:
            out = str(Path(config.base.out) / _folder_name(settings, seed))
            run = replace(config.base, out=out, quiet=True)
            for name, value in {**settings, SEED: seed}.items():
                run = with_setting(run, name, value)
            runs.append(run)
        combinations.append((settings, runs))
    return combinations


def _row(settings: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the runs of a combination reached, one of each seed."""
    trained = [record for record in records if "figures" in record]
    names = dict.fromkeys(name for record in trained for name in record["figures"])
    figures = {}
    for name in names:
        values = [record["figures"][name] for record in trained if name in record["figures"]]
        sd = stdev(values) if len(values) > 1 else 0.0
        figures[name] = {"mean": fmean(values), "sd": sd, "min": min(values), "max": max(values)}
    return {
        "settings": dict(settings),
        "runs": len(records),
        "errors": [record["error"] for record in records if "error" in record],
        "by_seed": {str(record["seed"]): record["figures"][METRIC] for record in trained},
        "figures": figures,
    }


def sweep_page(summary: Mapping[str, Any], title: str) -> Page:
    """Return the page of a sweep: its best combination, and a line for each with what it is behind the best."""
    rows, vary, seeds = summary["rows"], summary["vary"], summary["seeds"]
    best, verdict = rows[0], "No run could be trained."
    if regret := best["figures"].get(METRIC):
        verdict = f"{_listed(best['settings'])} has the lowest validation regret, {regret['mean']:.4f}"
        spread = f" ± {regret['sd']:.4f} over {len(best['by_seed'])} seeds."
        verdict += spread if len(best["by_seed"]) > 1 else ", with one seed, which tells nothing about chance."
    lines, notes = [], []
    for row in rows:
        cells, failed = [], len(row["errors"])
        for name in COLUMNS:
            spread, several = row["figures"].get(name), len(row["by_seed"]) > 1
            digits = 4 if name.startswith("val_") else int(several)
            over_seeds = f" ± {spread['sd']:.{digits}f}" if spread is not None and several else ""
            cells.append("-" if spread is None else f"{spread['mean']:.{digits}f}{over_seeds}")
        runs = f"{row['runs']}, {failed} failed" if failed else str(row["runs"])
        lines.append([_listed(row["settings"]), runs, *cells, "-" if row is best else _behind(best, row)])
        if failed:
            first = f"could not be trained; the first: {row['errors'][0]}"
            notes.append(f"{failed} of {row['runs']} runs with {_listed(row['settings'])} {first}")
    if any(name.startswith("target.") for name in vary):
        notes.append("A setting of the target changes what regret is measured in; compare within one value of it.")
    about = (
        f"{len(rows)} combinations of {', '.join(vary) or 'nothing'}, seeds {', '.join(map(str, seeds))}. "
        "Regret is the utility that is lost to the best measured configuration of each validation question."
    )
    table = Table(["settings", "runs", *COLUMNS.values(), "behind the best"], lines)
    return Page(f"Sweep {title}", verdict, [Section("Each combination, best first", [table, *notes])], about)


def _behind(best: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return how much higher a combination's regret is than the best one's, with the 95% interval over common seeds.

    By Student's t: two or three seeds that agree are too few for a bootstrap.
    """
    seeds = [seed for seed in row["by_seed"] if seed in best["by_seed"]]
    if len(seeds) < 2:
        return "-"
    ours, theirs = ([of["by_seed"][seed] for seed in seeds] for of in (row, best))
    mean, interval = fmean(ours) - fmean(theirs), ttest_rel(ours, theirs).confidence_interval()
    low, high = (mean, mean) if np.isnan(interval.low) else (interval.low, interval.high)
    return f"{mean:+.4f} ({low:+.4f} to {high:+.4f})"


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "these settings"


def _trained(run: TrainAgentConfig, labels: Labels, group: str) -> dict[str, Any]:
    """Return the figures of a run, or why it could not be trained; a finished training is not done again."""
    record: dict[str, Any] = {"seed": run.training.seed}
    try:
        report = fit(known_labels(labels, run), run, group=group)
    except InputError as error:
        return {**record, "error": str(error)}
    figures = report.history[report.best_epoch]
    if METRIC not in figures:
        raise InputError(
            f"there are no validation questions, and without them no {METRIC}; give a share of the questions, or the "
            "split to validate on"
        )
    return {**record, "figures": {**figures, "best_epoch": report.best_epoch + 1, "epochs": len(report.history)}}


def _folder_name(settings: Mapping[str, Any], seed: int) -> str:
    values = {**settings, "seed": seed}
    shown = {name: "x".join(map(str, value)) if isinstance(value, list) else value for name, value in values.items()}
    name = "_".join(f"{name.rpartition('.')[2]}={value}" for name, value in shown.items())
    return f"{re.sub(r'[^A-Za-z0-9._=-]+', '-', name)[:80]}_{fingerprint(values)[:8]}"


def with_setting(config: Any, name: str, value: Any) -> Any:
    """Return settings with another value of one of them, by its dotted name; a list where a tuple belongs.

    An unknown name or a wrong value is an `InputError`.
    """
    first, _, rest = name.partition(".")
    known = [one.name for one in fields(config)] if is_dataclass(config) else []
    if first not in known:
        raise InputError(f"there is no setting {name!r}{nearest(first, known)}")
    before = getattr(config, first)
    if is_dataclass(before) and not rest:
        raise InputError(f"{name} is a group of settings; name one, such as {name}.{fields(before)[0].name}")
    value = with_setting(before, rest, value) if rest else value
    try:
        return replace(config, **{first: tuple(value) if isinstance(before, tuple) else value})
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{name} cannot be {value!r}: {error}") from error
