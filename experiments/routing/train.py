"""A router over kinds of questions, from labels to a checkpoint and what it gains.

`python -m experiments.routing.train --config experiments/configs/router.yaml` makes the one that ships. The same labels
and settings give the same bytes.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corag.cli.console import say
from corag.errors import InputError
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.selectors.corag.routing import prices_of
from corag.selectors.corag.tuned import NETWORK
from experiments.agents.train import sha256
from experiments.data.config import comma_separated
from experiments.protocol.alone import run_alone
from experiments.protocol.leads import Answer, Quality
from experiments.routing.arrays import KindLabels, read_kind_labels
from experiments.routing.evaluate import Held, evaluate
from experiments.routing.fit import RouterSettings, fit_kinds
from experiments.routing.report import card, figures
from experiments.run.journal import versions, write_atomically
from experiments.tune.checkpoint import write_router
from experiments.tune.dial import plot_dial


@dataclass(frozen=True)
class TrainRouterConfig(Runtime):
    """Fit a router to labels over kinds, and say what it gains on questions that took no part.

    Attributes:
        labels: Tables of labels over kinds, separated by commas, each with what `experiments.routing.prepare` wrote.
        out: Folder for the checkpoint.
        answer: Figure of the answer that counts: f1 or rougeL.
        evidence_weight: Weight of evidence recall in the quality; the answer has the rest.
        prefer: What counts where the checkpoint is used and nothing else is said: quality, balanced, tokens, latency,
            or the price of a whole budget of tokens.
        router: How it is fitted.
        about: What the questions of a kind are, by its name, as in "questions about privacy policies".
        quiet: Show no progress.
    """

    labels: str
    out: str
    answer: Answer = "f1"
    evidence_weight: float = 0.5
    prefer: str = "quality"
    router: RouterSettings = field(default_factory=RouterSettings)
    about: dict[str, str] = field(default_factory=dict)
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.quality
        prices_of(self.prefer)
        if not comma_separated(self.labels):
            raise InputError("labels is empty; give at least one table of labels over kinds")

    @property
    def quality(self) -> Quality:
        """What makes one configuration better than another."""
        return Quality(self.answer, self.evidence_weight)


@in_runtime
def train_router(config: TrainRouterConfig) -> Path:
    """Evaluate, fit to all questions, and write the checkpoint; return its folder."""
    out, paths = Path(config.out), comma_separated(config.labels)
    if out.exists() and not out.is_dir():
        raise InputError(f"out is {config.out!r}, which is a file; give a folder")
    labels = read_kind_labels(paths, config.quality)
    work = out / "training"
    found = evaluate(labels, config.router, work, quiet=config.quiet)
    router = fit_kinds(labels, config.router, work / "all", config.about)
    out.mkdir(parents=True, exist_ok=True)
    if router.network is not None:
        shutil.copytree(work / "all" / "checkpoint", out / NETWORK, dirs_exist_ok=True)
    shown = found.get("choosing", found["documents"])
    write_atomically(out / "dial.svg", plot_dial(shown.curve()))
    write_atomically(out / "README.md", card(labels, router, found, _facts(config, paths)))
    write_router(out, labels.names, router, _record(config, labels, found))
    shutil.rmtree(work, ignore_errors=True)
    return out


def _record(config: TrainRouterConfig, labels: KindLabels, found: Mapping[str, Held]) -> dict[str, Any]:
    return {
        "prefer": config.prefer,
        "budget_tokens": labels.budget,
        "embedder": labels.embedder,
        "features": list(config.router.parts),
        "verdict": figures(found["documents"])["said"],
        "held_out": {protocol: figures(one) for protocol, one in found.items()},
        "settings": {name: value for name, value in asdict(config).items() if name not in ("out", "quiet")},
        "versions": versions(),
    }


def _facts(config: TrainRouterConfig, paths: Sequence[str]) -> dict[str, str]:
    router = config.router
    return {
        "labels": ", ".join(f"{Path(path).name} (sha256 {sha256(Path(path))[:16]})" for path in paths),
        "quality": f"{config.answer} and evidence recall, with weights {1 - config.evidence_weight:g} and "
        f"{config.evidence_weight:g}",
        "features": ", ".join(router.parts),
        "kinds are told apart by": router.tells,
        "unsure": f"{router.unsure:.0%} of the questions of known kinds",
        "least expected gain": f"{router.min_gain:g}",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(TrainRouterConfig, _train, arguments)


def _train(config: TrainRouterConfig) -> None:
    out = train_router(config)
    say((out / "README.md").read_text(encoding="utf-8").partition("## Held-out questions")[2])
    say(f"router and card in {out}; use it with: corag ask 'your question' --agent {out}")


if __name__ == "__main__":
    sys.exit(main())
