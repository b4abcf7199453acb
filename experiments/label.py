"""Labels: how well each configuration of the search serves each question.

One row per question and configuration (reranker x iterations x exploration x cost weight). Iterations are
free: a search reports the best order after each of them, so one run answers for all counts. Values are
remembered per question and reranker, answers per question and context.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import corag
import search
from corag.console import progress
from corag.data import DataFolder, Query
from corag.errors import DataError, InputError
from corag.optional import require
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.selectors.base import Problem, check_budget
from corag.selectors.corag import Corag, scaled
from corag.text import ChunkConfig
from corag.tokens import token_counter
from corag.types import FloatArray, Order, Reader, Reranker, TokenCounter
from experiments.evaluate import versions
from experiments.journal import Journal, fingerprint, output_file, write_atomically
from experiments.metrics import answer_figures, evidence_figures
from experiments.pools import Pool, PoolName, check_counts, content_hash, open_pool

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1


@dataclass(frozen=True)
class LabelConfig:
    """Measure every configuration on every question of a data folder.

    Attributes:
        data: Data folder.
        out: The table to write (Parquet). An interrupted run goes on where it stopped.
        splits: Which questions, splits separated by commas.
        rerankers: Separated by commas; by default those that need no download.
        iterations: Counts, separated by commas.
        explorations: Values of c, separated by commas.
        cost_weights: Values of lambda, separated by commas.
        budget: The most tokens a selection may cost.
        window: What becomes of orders that are longer than a reranker's window: they are no candidates (forbid), are
            scored in overlapping windows (windows), or are cut (truncate).
        pool: Where candidates come from: the question's own list, or the nearest chunks of the corpus.
        reader: Answers the questions.
        tokenizer: Counts tokens: minilm, estimate, or a tokenizer.json.
        embedder: Embeds questions and passages.
        index: An index of the corpus; by default one is built in the cache folder.
        num_candidates: Chunks offered per question with the corpus as pool.
        max_tokens: Tokens of a chunk when an index has to be built.
        limit: Only the first questions of each split.
        quiet: No progress.
    """

    data: str
    out: str
    splits: str = "train,dev"
    rerankers: str = "minilm-cosine,minilm-maxsim,bm25"
    iterations: str = "2,5,10"
    explorations: str = "0.1,0.6"
    cost_weights: str = "0.0,0.3"
    budget: int = 256
    window: WindowPolicy = DEFAULT_POLICY
    pool: PoolName = "auto"
    reader: str = "extractive"
    tokenizer: str = "minilm"
    embedder: str = "minilm"
    index: str | None = None
    num_candidates: int = 20
    max_tokens: int = 256
    limit: int | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        check_counts(self.limit, self.num_candidates)

    def grid(self) -> Grid:
        """Return the configurations to measure.

        Raises:
            InputError: A list is empty or holds something that is no such value.
        """
        return Grid(
            rerankers=_listed("rerankers", self.rerankers, str),
            iterations=tuple(sorted(_listed("iterations", self.iterations, int))),
            explorations=_listed("explorations", self.explorations, float),
            cost_weights=_listed("cost_weights", self.cost_weights, float),
        )


@dataclass(frozen=True)
class Grid:
    """Configurations: every reranker with every count and weight."""

    rerankers: tuple[str, ...]
    iterations: tuple[int, ...]
    explorations: tuple[float, ...]
    cost_weights: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.rerankers) * len(self.iterations) * len(self.explorations) * len(self.cost_weights)


def _listed(name: str, text: str, kind: type) -> tuple[Any, ...]:
    try:
        values = tuple(dict.fromkeys(kind(part.strip()) for part in text.split(",") if part.strip()))
    except ValueError as error:
        raise InputError(f"{name} is {text!r}: {error}; give values separated by commas") from error
    if not values:
        raise InputError(f"{name} is {text!r}; give at least one value, several separated by commas")
    return values


def label(config: LabelConfig) -> Path:
    """Write the label table that a config describes.

    Returns:
        The path of the table.

    Raises:
        InputError: The grid is empty or a reranker unknown.
        DataError: The data, or the journal of an earlier run, cannot be used.
    """
    check_budget(config.budget)
    grid, out = config.grid(), output_file(config.out)
    folder = DataFolder.open(config.data)
    queries = [query for split in _listed("splits", config.splits, str) for query in folder.split(split, config.limit)]
    rerankers = [corag.reranker(name) for name in grid.rerankers]
    for combination in itertools.product(grid.iterations, grid.explorations, grid.cost_weights):
        search.SearchConfig(*combination)  # refuses what the search would refuse, before hours of work
    reader, tokens = corag.reader(config.reader), token_counter(config.tokenizer)
    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet")}
    work = fingerprint([FORMAT_VERSION, settings, content_hash(folder, queries, config.index), versions()])
    if _is_done(out, work):
        logger.info("%s is complete already", out)
        return out
    embedder = corag.embedder(config.embedder)
    pool = open_pool(
        folder,
        queries,
        embedder,
        pool=config.pool,
        index=config.index,
        num_candidates=config.num_candidates,
        chunking=ChunkConfig(config.max_tokens),
        quiet=config.quiet,
    )
    with Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        with progress("label", quiet=config.quiet) as report:
            for number, query in enumerate(queries, start=1):
                if query.id not in journal.units:
                    rows = label_query(query, pool, rerankers, grid, reader, config.budget, tokens, config.window)
                    journal.add(query.id, list(rows))
                report(number, len(queries))
        table = [
            {"query": query.id, "question": query.question, "split": query.split, **row}
            for query in queries
            for row in journal.units[query.id]
        ]
        metadata = {
            "format_version": FORMAT_VERSION,
            "work": work,
            "embedder": embedder.name,
            "settings": settings,
            "versions": versions(),
        }
        write_table(out, table, metadata)
        journal.remove()
    return out


def label_query(
    query: Query,
    pool: Pool,
    rerankers: Sequence[Reranker],
    grid: Grid,
    reader: Reader,
    budget_tokens: int,
    tokens: TokenCounter,
    window: WindowPolicy = DEFAULT_POLICY,
) -> Iterator[dict[str, Any]]:
    """Yield one row per configuration of the grid for one question."""
    problem = Problem(query.question, pool.candidates(query), tokens)
    read: dict[str, dict[str, float]] = {}
    for reranker, exploration, cost_weight in itertools.product(rerankers, grid.explorations, grid.cost_weights):
        outcomes = _search_all(
            problem, budget_tokens, reranker, grid.iterations, exploration, cost_weight, tokens, window
        )
        for iterations, (order, num_scored) in zip(grid.iterations, outcomes, strict=True):
            text = problem.text(order)
            if text not in read:
                read[text] = answer_figures(reader.answer(query.question, text).text, query.answers)
            chunks = [problem.chunks[index] for index in order]
            yield {
                "reranker": reranker.name,
                "iterations": iterations,
                "exploration": exploration,
                "cost_weight": cost_weight,
                "budget_tokens": budget_tokens,
                **read[text],
                **(
                    evidence_figures(chunks, query.gold)
                    or dict.fromkeys(("evidence_recall", "evidence_precision", "full_evidence"))
                ),
                "cost_tokens": int(tokens.count([text])[0]) if text else 0,
                "chunks": len(order),
                "orders_scored": num_scored,
                "value": float(problem.scorer(reranker, window)([order])[0]) if order else 0.0,
            }


def _search_all(
    problem: Problem,
    budget_tokens: int,
    reranker: Reranker,
    iterations: Sequence[int],
    exploration: float,
    cost_weight: float,
    tokens: TokenCounter,
    window: WindowPolicy,
) -> list[tuple[Order, int]]:
    """Return the order that each count of iterations finds, and how many orders it had scored by then."""
    config = search.SearchConfig(
        policy="paper", iterations=max(iterations), exploration=exploration, cost_weight=cost_weight
    )
    inner_budget = budget_tokens + problem.separator_tokens
    scorer = problem.scorer(reranker, window)
    limits = problem.limits(scorer, inner_budget)
    score = scaled(scorer, problem, inner_budget, "query")
    scored: list[int] = []

    def count_and_score(orders: Sequence[Order]) -> FloatArray:
        scored.append(len(orders))
        return score(orders)

    result = search.search(limits.costs, count_and_score, limits.budget, config)
    found: list[tuple[Order, int]] = []
    for count in iterations:
        ran = min(count, len(result.incumbents))
        order = result.incumbents[ran - 1] if ran else ()
        num_scored = sum(scored[:ran])
        if order and int(tokens.count([problem.text(order)])[0]) > budget_tokens:
            # Only under tokenizers whose counts do not add up: search again the way the selector does.
            order = _exact_order(problem, budget_tokens, reranker, count, exploration, cost_weight, tokens, window)
        found.append((order, num_scored))
    return found


def _exact_order(
    problem: Problem,
    budget_tokens: int,
    reranker: Reranker,
    iterations: int,
    exploration: float,
    cost_weight: float,
    tokens: TokenCounter,
    window: WindowPolicy,
) -> Order:
    selector = Corag(
        reranker=reranker,
        policy="paper",
        iterations=iterations,
        exploration=exploration,
        cost_weight=cost_weight,
        window=window,
        tokens=tokens,
    )
    chosen = selector.select_from(problem, budget_tokens).ids
    position = {chunk.id: index for index, chunk in enumerate(problem.chunks)}
    return tuple(position[name] for name in chosen)


def write_table(path: Path, rows: Sequence[dict[str, Any]], metadata: dict[str, Any]) -> None:
    """Write rows as Parquet, whole or not at all, with `metadata` in its schema."""
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    table = pyarrow.Table.from_pylist(list(rows))
    table = table.replace_schema_metadata({b"corag": json.dumps(metadata, sort_keys=True).encode()})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def read_table(path: str | Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Read a label table.

    Returns:
        Its rows and its metadata.

    Raises:
        DataError: The file is missing, damaged, or no label table of this version.
    """
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file} does not exist; make a label table with: corag label --data DIR --out {file}")
    try:
        table = parquet.read_table(file)
        metadata: dict[str, Any] = json.loads(table.schema.metadata[b"corag"])
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file} is not a label table ({error}); make one with: corag label --out {file}") from error
    if metadata.get("format_version") != FORMAT_VERSION:
        raise DataError(
            f"{file} has format_version {metadata.get('format_version')}, this version reads {FORMAT_VERSION}; "
            "label again, or update corag"
        )
    if not table.num_rows:
        raise DataError(f"{file} has no rows; label at least one question")
    return table.to_pylist(), metadata


def _is_done(path: Path, work: str) -> bool:
    if not path.exists():
        return False
    try:
        return bool(read_table(path)[1].get("work") == work)
    except DataError:
        return False
