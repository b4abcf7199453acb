"""Labels over kinds: every configuration on questions of every kind, as one small table.

`python -m experiments.tune.label --out runs/kinds/kinds.parquet` measures them. It can be stopped at any moment; run
again, it goes on. Kinds take turns, so that what stands after an hour holds all of them. Sealed questions take no part.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from corag.checks import check_count
from corag.cli.console import progress, say
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling
from experiments.data.pools import content_hash
from experiments.protocol.alone import run_alone
from experiments.protocol.kinds import (
    KINDS_FILE,
    SEALED_FILE,
    Kind,
    Kinds,
    divide_kind,
    groups_of,
    open_folder,
    read_kinds,
    sealed_ids,
)
from experiments.run.journal import TABLE, Journal, fingerprint, output_file, versions
from experiments.tune.configurations import Configuration, parse_configurations, to_label
from experiments.tune.sweep import Labels, Sweep, sweep_settings
from experiments.tune.table import write_labels


@dataclass(frozen=True)
class LabelKindsConfig(Runtime):
    """Measure configurations on the questions of kinds that are not sealed.

    Attributes:
        out: File for the table (Parquet); a journal of each kind stands beside it.
        kinds: YAML file with the kinds.
        sealed: List of the sealed questions.
        only: Names of kinds, separated by commas; by default all.
        training: The most training questions of a kind.
        choosing: The most choosing questions of a kind.
        round: Questions of a kind that are measured before the next kind is.
        configurations: Configurations, separated by commas; by default those of `experiments.tune.configurations`.
        budget: Token budget of a context.
        reader: Reader of the answers.
        quiet: Show no progress.
    """

    out: str
    kinds: str = str(KINDS_FILE)
    sealed: str = str(SEALED_FILE)
    only: str | None = None
    training: int = 100
    choosing: int = 50
    round: int = 15
    configurations: str = ""
    budget: int = 256
    reader: Spelling = "minilm-reader"
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("training", "choosing", "round"):
            check_count(name, getattr(self, name), "50 is usual", least=1)


@in_runtime
def label_kinds(config: LabelKindsConfig) -> Path:
    """Measure, and return the path of the table."""
    out = output_file(config.out, TABLE)
    described = read_kinds(config.kinds)
    kinds = [_OfKind(kind, described.choosing, config) for kind in described.named(config.only)]
    kinds = [kind for kind in kinds if kind.questions]
    rounds = -(-max(len(kind.questions) for kind in kinds) // config.round)
    with progress("label", quiet=config.quiet) as report:
        total = sum(len(kind.questions) for kind in kinds)
        for number in range(1, rounds + 1):
            for kind in kinds:
                kind.measure(number * config.round)
                report(sum(len(one.labels) for one in kinds), total)
            write_labels(out, [row for kind in kinds for row in kind.rows()], _metadata(config, described))
    return out


class _OfKind:
    """The questions of one kind; training and choosing ones take turns."""

    def __init__(self, kind: Kind, choosing: float, config: LabelKindsConfig) -> None:
        self.kind, self._config = kind, config
        self._folder = open_folder(kind.data)
        self._group = dict(
            zip(
                (query.id for query in self._folder.queries), groups_of(self._folder, self._folder.queries), strict=True
            )
        )
        parts = divide_kind(self._folder, kind, sealed_ids(Path(config.sealed)).get(kind.name, frozenset()), choosing)
        most = {"training": config.training, "choosing": config.choosing}
        placed = [
            ((place + 0.5) / min(most[part], len(parts[part])), part, query)  # type: ignore[index]
            for part in most
            for place, query in enumerate(parts[part][: most[part]])  # type: ignore[index]
        ]
        self.questions = [(part, query) for _, part, query in sorted(placed, key=lambda one: one[0])]
        self.labels: dict[str, Labels] = {}

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """What is measured on this kind."""
        if self._config.configurations:
            return parse_configurations(self._config.configurations)
        return to_label(from_corpus=self.kind.pool == "corpus")

    def measure(self, first: int) -> None:
        """Measure the first so many questions."""
        config, kind = self._config, self.kind
        settings = sweep_settings(self._folder, self.configurations, config)
        work = [asdict(kind), content_hash(self._folder, self._folder.queries, None), config.budget, config.reader]
        path = Path(config.out).with_suffix(f".{kind.name}.jsonl")
        with Journal(path, fingerprint([*work, versions()["corag"]])) as journal:
            # Models and passages of a kind are let go when its turn ends.
            sweep = Sweep(self._folder, kind.candidates(), settings, self.configurations)
            for query, labels in sweep.labels([query for _, query in self.questions[:first]], journal):
                self.labels[query.id] = labels

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each question and configuration that is measured."""
        return [
            {
                "kind": self.kind.name,
                "query": query.id,
                "part": part,
                "group": self._group[query.id],
                "configuration": configuration,
                "budget_tokens": self._config.budget,
                **figures,
            }
            for part, query in self.questions
            for configuration, figures in self.labels.get(query.id, {}).items()
        ]


def _metadata(config: LabelKindsConfig, described: Kinds) -> dict[str, Any]:
    return {
        "settings": {**asdict(replace(config, out="", quiet=False))},
        "kinds": asdict(described)["kinds"],
        "versions": versions(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(LabelKindsConfig, lambda config: say(f"labels in {label_kinds(config)}"), arguments)


if __name__ == "__main__":
    sys.exit(main())
