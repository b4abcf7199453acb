"""What a router needs beside labels over kinds: vectors of the questions and of their candidates, and times.

`python -m experiments.routing.prepare --labels runs/kinds/kinds.parquet` writes `kinds.questions.parquet` and
`kinds.seconds.json` beside the labels. It can be stopped at any moment; run again, it does what is missing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag.cli.console import progress, say
from corag.errors import DataError
from corag.models.cached import CachedEmbedder
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime, in_runtime
from corag.registry import tokens as make_tokens
from corag.selectors.corag.features import question_vectors
from corag.selectors.problem import SelectionProblem
from corag.text.data import DataFolder, Query
from corag.text.visible import to_json
from experiments.data.config import CandidateSettings
from experiments.data.pools import open_pool
from experiments.labels.table import FORMAT_VERSION, questions_path, read_questions, write_questions
from experiments.protocol.alone import run_alone
from experiments.protocol.kinds import KINDS_FILE, Kind, open_folder, read_kinds
from experiments.routing.arrays import times_path
from experiments.run.journal import versions, write_atomically
from experiments.tune.configurations import Configuration
from experiments.tune.label import LabelKindsConfig
from experiments.tune.sweep import Sweep, sweep_settings
from experiments.tune.table import read_labels

EMBEDDER = "minilm"
PARTS = ("query", "candidates")
BATCH = 25
"""Questions between two saves."""


@dataclass(frozen=True)
class PrepareConfig(Runtime):
    """Embed the questions of labels over kinds and their candidates, and time the configurations.

    Attributes:
        labels: Table of labels over kinds.
        kinds: YAML file with the kinds.
        timed: Questions of each kind on which every configuration is timed, with models of its own; 0 times none.
        quiet: Show no progress.
    """

    labels: str
    kinds: str = str(KINDS_FILE)
    timed: int = 4
    quiet: bool = False


@in_runtime
def prepare(config: PrepareConfig) -> Path:
    """Embed and time what is missing, and return the path of the table of questions."""
    out, labels = Path(config.labels), read_labels(config.labels)
    wanted: dict[str, list[str]] = {}
    for kind, query in dict.fromkeys((row["kind"], row["query"]) for row in labels):
        wanted.setdefault(kind, []).append(query)
    kinds = {kind.name: kind for kind in read_kinds(config.kinds).named(",".join(wanted))}
    known, seconds = _known(out), _known_seconds(out)
    metadata = {"format_version": FORMAT_VERSION, "embedder": EMBEDDER, "settings": {}, "versions": versions()}
    keys = [(name, query) for name, of_kind in wanted.items() for query in of_kind]
    with progress("embed and time", quiet=config.quiet) as report:
        for name, ids in wanted.items():
            folder = open_folder(kinds[name].data)
            queries = [query for query in folder.queries if query.id in set(ids)]
            if lost := sorted(set(ids) - {query.id for query in queries}):
                raise DataError(f"{out} has question {lost[0]!r} of {name!r}, which {folder.path} lacks; label again")
            missing = [query for query in queries if (name, query.id) not in known]
            if missing:
                for row in embedded(folder, missing, kinds[name].candidates()):
                    known[name, row["query"]] = {"data": name, **row}
                    report(len(known), len(keys))
                write_questions(out, [known[key] for key in keys if key in known], metadata)
            if config.timed and name not in seconds:
                of_kind = [row for row in labels if row["kind"] == name]
                seconds[name] = _timed(folder, kinds[name], queries, of_kind, config.timed)
                write_atomically(times_path(out), to_json(seconds, indent=1) + "\n")
    return questions_path(out)


def _timed(
    folder: DataFolder, kind: Kind, queries: Sequence[Query], rows: Sequence[Mapping[str, Any]], number: int
) -> dict[str, float]:
    """Return the seconds of each configuration on questions of a kind."""
    names = dict.fromkeys(row["configuration"] for row in rows)
    configurations = [one for one in map(Configuration.parse, names) if one.retrieval is None]
    settings = LabelKindsConfig("", budget=rows[0]["budget_tokens"])
    sweep = Sweep(folder, kind.candidates(), sweep_settings(folder, configurations, settings), configurations)
    return sweep.seconds(queries, number)


def embedded(folder: DataFolder, queries: Sequence[Query], candidates: CandidateSettings) -> Iterator[dict[str, Any]]:
    """Yield id and vectors of each question."""
    embedder, tokens = CachedEmbedder(EMBEDDER), make_tokens("minilm")
    pool = open_pool(
        folder, queries, embedder, candidates, documents_limit=candidates.num_candidates, check=False, quiet=True
    )
    for start in range(0, len(queries), BATCH):
        some = queries[start : start + BATCH]
        problems = [SelectionProblem(query.question, pool.candidates(query), tokens, 1) for query in some]
        for query, found in zip(some, question_vectors(problems, embedder, PARTS), strict=True):
            yield {
                "query": query.id,
                "query_vector": found.query.tolist(),
                "candidates_vector": found.candidates.tolist(),
            }


def _known(out: Path) -> dict[tuple[str, str], Mapping[str, Any]]:
    if not questions_path(out).is_file():
        return {}
    return {(row["data"], row["query"]): row for row in read_questions(out)[0]}


def _known_seconds(out: Path) -> dict[str, dict[str, float]]:
    path = times_path(out)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(PrepareConfig, lambda config: say(f"questions in {prepare(config)}"), arguments)


if __name__ == "__main__":
    sys.exit(main())
