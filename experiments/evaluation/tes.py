"""Does a cut that adapts to the question beat every fixed k? Tables 2 and 4 of CAR.

Xu et al., "Cluster-based Adaptive Retrieval", section 5.1. Retrieval alone counts: no budget binds and nothing is read.
"Accuracy (ground-truth document present)" does not say what becomes of a question with several documents of evidence,
so both readings are given: the share of questions with all of it, and the mean share of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import corag
from corag.cli.console import progress, say, stdout, table
from corag.errors import CoragError, DataError, InputError
from corag.selectors.clustering.grids import CLUSTERERS
from corag.text.chunking import ChunkConfig
from corag.text.data import DataFolder, Query
from corag.text.tokens import token_counter
from corag.types import FloatArray, Selector
from experiments.data.pools import Pool, PoolName, check_counts, content_hash, open_pool
from experiments.evaluation.evaluate import versions
from experiments.evaluation.methods import make_methods
from experiments.evaluation.metrics import evidence_figures, trade_off_efficiency
from experiments.run.journal import Journal, fingerprint, output_file, write_atomically

FIXED = "top-k:k=3,top-k:k=5,top-k:k=10,top-k:k=20"
"""The baselines of table 2."""
ADAPTIVE = ",".join(f"car:method={method}" for method in CLUSTERERS)
"""The lines of table 4."""
NO_BUDGET = 10**9
MISTAKE = 2

COLUMNS = {
    "method": "", "candidates": "kept", "accuracy": "all of it", "tes": "TES", "interval": "lead, 95%",
    "recall": "share", "recall_tes": "TES",
}  # fmt: skip


@dataclass(frozen=True)
class TesConfig:
    """Compare adaptive cuts with fixed ones by the trade-off efficiency score.

    Attributes:
        data: Data folder.
        split: Which questions; those without gold are left out and counted.
        fixed: Methods to beat; see `corag evaluate`.
        adaptive: Methods that are to beat them.
        pool: See `corag evaluate`.
        num_candidates: Chunks offered per question with the corpus as pool; the paper has 40.
        max_tokens: Tokens of a chunk when an index has to be built.
        embedder: Embeds questions and passages.
        limit: Only the first questions of the split.
        resamples: Of the questions, for the intervals.
        seed: Of the resamples.
        out: Writes the result as JSON.
        quiet: No progress and no table.
    """

    data: str
    split: str = "test"
    fixed: str = FIXED
    adaptive: str = ADAPTIVE
    pool: PoolName = "corpus"
    num_candidates: int = 40
    max_tokens: int = 256
    embedder: str = "minilm"
    limit: int | None = None
    resamples: int = 2000
    seed: int = 0
    out: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        check_counts(self.limit, self.num_candidates)
        if self.resamples < 1:
            raise InputError(f"resamples must be at least 1, got {self.resamples}; 1000 to 10000 are usual")


def tes(config: TesConfig) -> dict[str, Any]:
    """Run the comparison that a config describes; an interrupted one goes on where it stopped.

    Returns:
        What `out` gets: a line for each method, each adaptive one against the best fixed one.

    Raises:
        DataError: No question has gold.
    """
    out = None if config.out is None else output_file(config.out)
    folder = DataFolder.open(config.data)
    asked = folder.split(config.split, config.limit)
    queries = [query for query in asked if query.gold]
    if not queries:
        raise DataError(f"none of the {len(asked)} questions of {folder.path} has gold; choose a split with evidence")
    tokens = token_counter()
    offered = {"tokens": tokens}
    fixed = make_methods(config.fixed, offered).selectors
    adaptive = make_methods(config.adaptive, offered).selectors
    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet")}
    work = fingerprint([settings, content_hash(folder, queries, None), versions()])
    pool = open_pool(
        folder,
        queries,
        corag.embedder(config.embedder),
        pool=config.pool,
        num_candidates=config.num_candidates,
        chunking=ChunkConfig(config.max_tokens),
        quiet=config.quiet,
    )
    with nullcontext() if out is None else Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        rows = _cuts(queries, pool, {**fixed, **adaptive}, journal, config.quiet)
        result = {
            "data": config.data,
            "split": config.split,
            "queries": len(queries),
            "queries_without_gold": len(asked) - len(queries),
            "methods": compared(rows, list(fixed), list(adaptive), resamples=config.resamples, seed=config.seed),
            "config": settings,
            "versions": versions(),
            "seed": config.seed,
            "work": work,
        }
        if out is not None and journal is not None:
            write_atomically(out, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
            journal.remove()
    return result


def _cuts(
    queries: Sequence[Query], pool: Pool, selectors: Mapping[str, Selector], journal: Journal | None, quiet: bool
) -> dict[str, FloatArray]:
    """Return for each method all of the evidence (0 or 1), its share, and the candidates kept, `[questions, 3]`."""
    units: dict[str, Any] = dict(journal.units) if journal is not None else {}
    with progress("cut", quiet=quiet) as report:
        for number, query in enumerate(queries, start=1):
            if query.id not in units:
                candidates = pool.candidates(query)
                units[query.id] = {name: _cut(query, one, candidates) for name, one in selectors.items()}
                if journal is not None:
                    journal.add(query.id, units[query.id])
            report(number, len(queries))
    return {name: np.array([units[query.id][name] for query in queries]) for name in selectors}


def _cut(query: Query, selector: Selector, candidates: Sequence[corag.Candidate]) -> list[float]:
    selection = selector.select(query.question, candidates, NO_BUDGET)
    found = evidence_figures(selection.chunks, query.gold)
    assert found is not None
    return [found["full_evidence"], found["evidence_recall"], len(selection)]


def compared(
    rows: Mapping[str, FloatArray], fixed: Sequence[str], adaptive: Sequence[str], *, resamples: int, seed: int
) -> list[dict[str, Any]]:
    """Return a line for each method.

    Args:
        rows: For each method all of the evidence (0 or 1), its share, and the candidates kept, `[questions, 3]`.
        fixed: Methods to beat.
        adaptive: Methods that are to beat them.
        resamples: Draws of the questions with replacement, the same for both methods of a difference.
        seed: Of these.

    Returns:
        Figures; for an adaptive method also its lead over the fixed one with the highest TES, with the 2.5% and 97.5%
        quantiles of the lead over the resamples.
    """
    lines = {name: _line(name, rows[name]) for name in (*fixed, *adaptive)}
    best = max(fixed, key=lambda name: lines[name]["tes"])
    drawn = np.random.default_rng(seed).integers(len(rows[best]), size=(resamples, len(rows[best])))
    best_scores = _scores(rows[best], drawn)
    for name in adaptive:
        low, high = np.quantile(_scores(rows[name], drawn) - best_scores, [0.025, 0.975]).tolist()
        lead = lines[name]["tes"] - lines[best]["tes"]
        lines[name] |= {"best_fixed": best, "difference": lead, "low": low, "high": high}
    return list(lines.values())


def _line(name: str, rows: FloatArray) -> dict[str, Any]:
    accuracy, recall, candidates = rows.mean(axis=0).tolist()
    return {
        "method": name,
        "accuracy": accuracy,
        "recall": recall,
        "candidates": candidates,
        "tes": trade_off_efficiency(accuracy, candidates),
        "recall_tes": trade_off_efficiency(recall, candidates),
    }


def _scores(rows: FloatArray, drawn: np.ndarray[Any, np.dtype[np.int64]]) -> FloatArray:
    """Return the TES of each resample, `[resamples]`."""
    return np.array([trade_off_efficiency(*rows[of_one][:, [0, 2]].mean(axis=0).tolist()) for of_one in drawn])


def show(result: Mapping[str, Any]) -> None:
    """Print a result."""
    lines = [
        line | ({"interval": f"{line['low']:+.3f} to {line['high']:+.3f}"} if "low" in line else {})
        for line in result["methods"]
    ]
    best = next(line["best_fixed"] for line in result["methods"] if "best_fixed" in line)
    title = (
        f"{result['queries']} questions with evidence; lead over {best} in TES of all of it; share of it, and its TES"
    )
    console = stdout()
    # As for `corag evaluate`: better a line that is too long than cells that are cut.
    console.width = max(console.width, 120)
    console.print(table(lines, COLUMNS, title=title))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m experiments.evaluation.tes", description=(TesConfig.__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_class_arguments(TesConfig)
    values = parser.parse_args(arguments).as_dict()
    values.pop("config")
    try:
        config = TesConfig(**values)
        result = tes(config)
    except CoragError as error:
        say(f"error: {error}")
        return MISTAKE
    if not config.quiet:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
