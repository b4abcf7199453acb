"""Sealed results: the only place where they are computed, and a register of every look at them.

`python -m experiments.protocol.sealed --challenger "corag(agent=my-agent)" --why "agent trained on kinds"` measures two
configurations on the sealed questions of all kinds and appends date, commit and figures to `register.jsonl`. First it
says what lead could be seen; `--power_only true` says that alone and looks at nothing.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corag.cli.console import progress, say
from corag.errors import DataError, InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling
from corag.text.visible import to_json
from experiments.protocol.alone import run_alone
from experiments.protocol.kinds import (
    KINDS_FILE,
    SEALED_FILE,
    Kind,
    divide_kind,
    groups_of,
    open_folder,
    read_kinds,
    sealed_ids,
)
from experiments.protocol.leads import Answer, Lead, Quality, lead, visible_lead
from experiments.run.journal import Journal, fingerprint, versions
from experiments.tune.configurations import DEFAULT, Configuration
from experiments.tune.sweep import Labels, Sweep, sweep_settings
from experiments.tune.table import SHIPPED, LabelRow, read_labels

REGISTER = Path(__file__).with_name("register.jsonl")
SHOWN = ("f1", "rougeL", "evidence_recall", "full_evidence", "answer_in_context", "cost_tokens")


@dataclass(frozen=True)
class SealedConfig(Runtime):
    """Compare two configurations on the sealed questions, and register the look.

    Attributes:
        challenger: Configuration: a selector, or `RETRIEVAL > SELECTOR`.
        why: What the look is for; stands in the register.
        baseline: Configuration to beat.
        only: Names of kinds, separated by commas; by default all.
        budget: Token budget of a context.
        answer: Figure of the answer: f1 or rougeL.
        evidence_weight: Weight of evidence recall in the quality; the answer has the rest.
        reader: Reader of the answers.
        power_only: Say what lead could be seen, and look at nothing.
        register: File that each look is appended to.
        kinds: YAML file with the kinds.
        sealed: List of the sealed questions.
        labels: Table of labels that the power is estimated from.
        journal: File that an interrupted look goes on from; it is deleted at the end.
        quiet: Show no progress.
    """

    challenger: str
    why: str = ""
    baseline: str = DEFAULT
    only: str | None = None
    budget: int = 256
    answer: Answer = "f1"
    evidence_weight: float = 0.5
    reader: Spelling = "minilm-reader"
    power_only: bool = False
    register: str = str(REGISTER)
    kinds: str = str(KINDS_FILE)
    sealed: str = str(SEALED_FILE)
    labels: str = str(SHIPPED)
    journal: str = "runs/sealed.journal.jsonl"
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.challenger == self.baseline:
            raise InputError(f"challenger and baseline are both {self.baseline!r}; give two configurations")
        if not self.power_only and not self.why.strip():
            raise InputError("why is empty; say in a few words what this look is for: --why '...'")


def power(config: SealedConfig) -> float | None:
    """Return the smallest lead that the sealed questions would show; None where the labels lack one of both.

    It is estimated from the differences on choosing questions, so nothing sealed is looked at.
    """
    ids = sealed_ids(Path(config.sealed))
    questions = sum(len(ids.get(kind.name, ())) for kind in read_kinds(config.kinds).named(config.only))
    if not questions or not Path(config.labels).is_file():
        return None
    quality = Quality(config.answer, config.evidence_weight)
    found = paired(read_labels(config.labels), config.challenger, config.baseline, quality)
    chosen = [(one, group) for part, group, one in found if part == "choosing"]
    if len(chosen) < 2:
        return None
    return visible_lead(np.array([one for one, _ in chosen]), [group for _, group in chosen], questions)


def paired(rows: Sequence[LabelRow], challenger: str, baseline: str, quality: Quality) -> list[tuple[str, str, float]]:
    """Return part, group and difference in quality of each question that has both configurations."""
    of_question: dict[tuple[str, str], dict[str, LabelRow]] = {}
    for row in rows:
        of_question.setdefault((row["kind"], row["query"]), {})[row["configuration"]] = row
    found = []
    for both in of_question.values():
        ours, theirs = (quality.of(both[name]) if name in both else None for name in (challenger, baseline))
        if ours is not None and theirs is not None:
            row = both[baseline]
            found.append((row["part"], f"{row['kind']}/{row['group']}", ours - theirs))
    return found


@in_runtime
def look(config: SealedConfig) -> dict[str, Any] | None:
    """Measure, append to the register, and return the entry; None where only the power was asked for."""
    if (could_see := power(config)) is not None:
        say(f"a lead of {could_see:.3f} would be seen in four of five runs at p < .05")
    elif config.power_only:
        raise DataError(
            f"{config.labels} lacks {config.challenger!r} or {config.baseline!r}, so the power is not known"
        )
    if config.power_only:
        return None
    kinds = read_kinds(config.kinds)
    both = tuple(map(Configuration.parse, (config.challenger, config.baseline)))
    measured = {kind.name: _measured(kind, both, config) for kind in kinds.named(config.only)}
    entry = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **commit(),
        "why": config.why,
        "challenger": config.challenger,
        "baseline": config.baseline,
        **{name: getattr(config, name) for name in ("budget", "answer", "evidence_weight", "reader")},
        "could_see": could_see,
        **results({name: one for name, one in measured.items() if one}, both, config),
        "versions": versions(),
    }
    append(Path(config.register), entry)
    for path in Path(config.journal).parent.glob(f"{Path(config.journal).name}.*"):
        path.unlink()
    return entry


def _measured(kind: Kind, both: Sequence[Configuration], config: SealedConfig) -> list[tuple[str, Labels]]:
    """Return group and labels of each sealed question of a kind."""
    folder = open_folder(kind.data)
    queries = divide_kind(folder, kind, sealed_ids(Path(config.sealed)).get(kind.name, frozenset()), 0.5)["sealed"]
    group = dict(zip([query.id for query in folder.queries], groups_of(folder, folder.queries), strict=True))
    sweep = Sweep(folder, kind.candidates(), sweep_settings(folder, both, config), both)
    work = fingerprint([asdict(kind), config.challenger, config.baseline, config.budget, config.reader, versions()])
    found = []
    with (
        Journal(Path(f"{config.journal}.{kind.name}"), work) as journal,
        progress(kind.name, quiet=config.quiet) as report,
    ):
        for query, labels in sweep.labels(queries, journal):
            found.append((f"{kind.name}/{group[query.id]}", labels))
            report(len(found), len(queries))
    return found


def results(
    measured: Mapping[str, Sequence[tuple[str, Labels]]], both: Sequence[Configuration], config: SealedConfig
) -> dict[str, Any]:
    """Return the lead over all kinds and of each, and the means of both configurations."""
    quality = Quality(config.answer, config.evidence_weight)
    challenger, baseline = map(str, both)

    def lead_in(rows: Sequence[tuple[str, Labels]]) -> Lead | None:
        pairs = [(quality.of(one[challenger]), quality.of(one[baseline]), group) for group, one in rows]
        known = [(ours - theirs, group) for ours, theirs, group in pairs if ours is not None and theirs is not None]
        return lead(np.array([one for one, _ in known]), [group for _, group in known]) if known else None

    def means(rows: Sequence[tuple[str, Labels]]) -> dict[str, dict[str, float]]:
        return {
            name: {
                figure: round(float(np.mean(values)), 4)
                for figure in SHOWN
                if (values := [one[name][figure] for _, one in rows if figure in one[name]])
            }
            for name in (challenger, baseline)
        }

    every = [row for rows in measured.values() for row in rows]
    if not every:
        raise DataError("no kind has sealed questions; draw some with: python -m experiments.protocol.draw")
    leads = {name: lead_in(rows) for name, rows in {"all": every, **measured}.items()}
    return {
        "leads": {name: None if one is None else _rounded(one) for name, one in leads.items()},
        "means": {name: means(rows) for name, rows in {"all": every, **measured}.items()},
    }


def _rounded(one: Lead) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(one).items()}


def commit() -> dict[str, Any]:
    """Return the commit that is measured, and whether files differ from it; None outside of a repository."""

    def git(*arguments: str) -> str | None:
        try:
            found = subprocess.run(
                ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=30, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return found.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "--short=12", "HEAD"), "changed_files": changed is None or bool(changed)}


def append(path: Path, entry: Mapping[str, Any]) -> None:
    """Append a line to the register; what stands there stays."""
    with path.open("a", encoding="utf-8") as file:
        file.write(to_json(entry) + "\n")
        file.flush()
        os.fsync(file.fileno())


def show(config: SealedConfig) -> None:
    """Look, and say what was found."""
    if (entry := look(config)) is None:
        return
    for name, found in entry["leads"].items():
        if found is not None:
            say(f"{name:20} {Lead(**{**found, 'questions': int(found['questions']), 'groups': int(found['groups'])})}")
    say(f"registered in {config.register}: look {len(read_register(Path(config.register)))}")


def read_register(path: Path = REGISTER) -> list[dict[str, Any]]:
    """Return all looks so far, oldest first."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(SealedConfig, show, arguments)


if __name__ == "__main__":
    sys.exit(main())
