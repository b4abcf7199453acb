"""The questions of labels over kinds as a router sees them: their vectors, and those of their best candidates.

`python -m experiments.tune.questions --labels runs/kinds/kinds.parquet` writes them beside the labels, as
`kinds.questions.parquet`. It can be stopped at any moment; run again, it embeds what is missing.
"""

from __future__ import annotations

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
from experiments.data.config import CandidateSettings
from experiments.data.pools import open_pool
from experiments.labels.table import FORMAT_VERSION, questions_path, read_questions, write_questions
from experiments.protocol.alone import run_alone
from experiments.protocol.kinds import KINDS_FILE, open_folder, read_kinds
from experiments.run.journal import versions
from experiments.tune.table import read_labels

EMBEDDER = "minilm"
PARTS = ("query", "candidates")
BATCH = 25
"""Questions between two saves."""


@dataclass(frozen=True)
class EmbedKindsConfig(Runtime):
    """Embed the questions of labels over kinds, and their candidates.

    Attributes:
        labels: Table of labels over kinds.
        kinds: YAML file with the kinds.
        quiet: Show no progress.
    """

    labels: str
    kinds: str = str(KINDS_FILE)
    quiet: bool = False


@in_runtime
def embed_kinds(config: EmbedKindsConfig) -> Path:
    """Embed what is missing, and return the path of the table of questions."""
    out, labels = Path(config.labels), read_labels(config.labels)
    wanted: dict[str, list[str]] = {}
    for kind, query in dict.fromkeys((row["kind"], row["query"]) for row in labels):
        wanted.setdefault(kind, []).append(query)
    kinds = {kind.name: kind for kind in read_kinds(config.kinds).named(",".join(wanted))}
    known = _known(out)
    metadata = {"format_version": FORMAT_VERSION, "embedder": EMBEDDER, "settings": {}, "versions": versions()}
    total = sum(map(len, wanted.values()))
    with progress("embed", quiet=config.quiet) as report:
        for name, ids in wanted.items():
            missing = [query for query in ids if (name, query) not in known]
            if not missing:
                continue
            folder = open_folder(kinds[name].data)
            by_id = {query.id: query for query in folder.queries}
            if lost := [query for query in missing if query not in by_id]:
                raise DataError(f"{out} has question {lost[0]!r} of {name!r}, which {folder.path} lacks; label again")
            queries = [by_id[query] for query in missing]
            for row in embedded(folder, queries, kinds[name].candidates()):
                known[name, row["query"]] = {"data": name, **row}
                report(len(known), total)
            rows = [
                known[name, query] for name, of_kind in wanted.items() for query in of_kind if (name, query) in known
            ]
            write_questions(out, rows, metadata)
    return questions_path(out)


def embedded(folder: DataFolder, queries: Sequence[Query], candidates: CandidateSettings) -> Iterator[dict[str, Any]]:
    """Yield id, text and vectors of each question."""
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
                "question": query.question,
                "query_vector": found.query.tolist(),
                "candidates_vector": found.candidates.tolist(),
            }


def _known(out: Path) -> dict[tuple[str, str], Mapping[str, Any]]:
    if not questions_path(out).is_file():
        return {}
    return {(row["data"], row["query"]): row for row in read_questions(out)[0]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(EmbedKindsConfig, lambda config: say(f"questions in {embed_kinds(config)}"), arguments)


if __name__ == "__main__":
    sys.exit(main())
