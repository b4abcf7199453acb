"""Selectors side by side on the same questions, candidates and budget."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import corag
from corag.cli.console import progress
from corag.errors import BudgetError, DataError, InputError, ScoringError, SummarizerError
from corag.models.cached import CachedEmbedder
from corag.readers.cached import CachedReader
from corag.selectors.corag.agents import DEFAULT_AGENT, NO_AGENT, shipped_agent_folder
from corag.selectors.reranking import default_reranker
from corag.text.chunking import ChunkConfig
from corag.text.data import DataFolder, Query
from corag.text.documents import SEPARATOR
from corag.text.tokens import token_counter
from corag.types import Chunk, Embedder, Reader, Selection, Selector, TokenCounter
from experiments.data.config import SelectionSettings
from experiments.data.pools import Pool, content_hash, drawn, open_pool
from experiments.evaluation.methods import make_methods, make_reader
from experiments.evaluation.metrics import (
    answer_figures,
    answer_similarity,
    change_in_tokens,
    evidence_depth,
    evidence_figures,
    redundancy,
    substring_match,
    trade_off_efficiency,
)
from experiments.run.journal import Journal, fingerprint, output_file, write_atomically
from search import SearchError

logger = logging.getLogger(__name__)

MEANS = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "sub_em", "evidence_recall", "evidence_precision", "full_evidence",
    "context_recall", "cost_tokens", "chunks", "scorer_calls", "orders_scored", "value",
)  # fmt: skip
"""Figures that are averaged over questions; what a question does not have is left out of its average."""
SOME_MEANS = ("diff_k", "redundancy", "change_in_tokens", "answer_similarity")
"""The same, of which some methods have none at all: null then, not 0."""
TOTALS = ("over_budget", "truncated", "empty", "failed")
"""Figures that are added up over questions."""

FAILURES = (InputError, BudgetError, ScoringError, SummarizerError, SearchError)
"""What one question may be too much for; a missing package, model or server is a reason to stop."""

PACKAGES = (
    "corag", "numpy", "torch", "transformers", "openvino", "lancedb", "rouge-score", "bm25s", "scikit-learn",
)  # fmt: skip
"""What figures depend on."""


@dataclass(frozen=True)
class EvaluateConfig(SelectionSettings):
    """Compare selectors on a data folder.

    Attributes:
        data: Data folder.
        split: Split of the questions.
        methods: Selectors, separated by commas, each with settings of its own if need be: `top-k:k=3`,
            `car:method=dbscan`. `corag-plain` is `corag` with its default settings, agent or not; `all` stands for
            every selector that can run with what is given.
        reranker: Reranker of every method that uses one.
        prefilter: Share of orders that the reranker scores in `corag`; below 1 a surrogate ranks them first.
        agent: Checkpoint folder, or `default` for the one that ships with the project; `corag` then predicts its
            settings, `corag-fixed` uses its best single one. Without it, or with `none`,
            `corag` keeps its default settings.
        strict: Fail if a reranker that the agent names cannot be used, instead of taking the next most probable.
        summarizer: Summarizer of methods that put summaries into the prompt.
        seed: Seed of the sample.
        out: File for the result as JSON, with one line per question beside it (`.rows.jsonl`).
    """

    data: str
    split: str = "dev"
    methods: str = "top-k,naive,corag,upper"
    reranker: str = field(default_factory=default_reranker)
    prefilter: float = 1.0
    agent: str | None = None
    strict: bool = False
    summarizer: str = "extractive"
    seed: int = 0
    out: str | None = None


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Run the comparison that a config describes.

    An interrupted one goes on where it stopped; one whose result stands in `out` is not run again.

    Returns:
        What `--out` writes: settings, versions and one entry of figures per method.
    """
    out = None if config.out is None else output_file(config.out)
    folder = DataFolder.open(config.data)
    queries = drawn(folder.split(config.split, config.limit), config.sample, config.seed)
    tokens = token_counter(config.tokenizer)
    embedder = CachedEmbedder(corag.embedder(config.embedder))
    reader = make_reader(config.reader)
    offered = _offered(config, tokens, embedder, reader)
    methods = make_methods(config.methods, offered)
    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet")}
    content = content_hash(folder, queries, config.index)
    work = fingerprint([settings, content, _checkpoint_hash(offered["agent"]), versions()])
    if out is not None and (found := _finished(out, work)) is not None:
        logger.info("%s is complete already; delete it to measure again", out)
        return found
    pool = open_pool(
        folder,
        queries,
        embedder,
        pool=config.pool,
        retrieval=config.retrieval,
        index=config.index,
        num_candidates=config.num_candidates,
        chunking=ChunkConfig(config.max_tokens),
        quiet=config.quiet,
    )
    with nullcontext() if out is None else Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        rows = compare(
            queries,
            pool,
            methods.selectors,
            reader,
            config.budget,
            tokens,
            embedder=embedder,
            journal=journal,
            quiet=config.quiet,
        )
        result = {
            "data": config.data,
            "split": config.split,
            "budget_tokens": config.budget,
            "queries": len(queries),
            "queries_without_gold": sum(not query.gold for query in queries),
            "pool": pool.name,
            "methods": [{"method": name, **average(rows[name])} for name in methods.selectors],
            "left_out": dict(methods.left_out),
            "config": settings,
            "versions": versions(),
            "seed": config.seed,
            "work": work,
        }
        if out is not None and journal is not None:
            lines = [json.dumps({"method": name, **row}, ensure_ascii=False) for name in rows for row in rows[name]]
            write_atomically(out.with_suffix(".rows.jsonl"), "\n".join(lines) + "\n")
            write_atomically(out, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
            journal.remove()
    return result


def _agent_folder(agent: str | None) -> str | None:
    if agent == NO_AGENT:
        return None
    return str(shipped_agent_folder()) if agent == DEFAULT_AGENT else agent


def _checkpoint_hash(path: str | None) -> list[str]:
    """Return hashes of a checkpoint's files: a new training may have written to the same folder."""
    files = sorted(file for file in Path(path).glob("*") if file.is_file()) if path else []
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def _finished(out: Path, work: str) -> dict[str, Any] | None:
    """Return the result of this very work if it stands in `out`."""
    try:
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return found if found["work"] == work else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _offered(config: EvaluateConfig, tokens: TokenCounter, embedder: Embedder, reader: Reader) -> dict[str, Any]:
    """Return the settings that every selector is built with which takes them."""
    return {
        "tokens": tokens,
        "reranker": config.reranker,
        "window": config.window,
        "prefilter": config.prefilter,
        "agent": _agent_folder(config.agent),
        "strict": config.strict,
        "reader": reader,
        "summarizer": config.summarizer,
        "embedder": embedder,
    }


def compare(
    queries: Sequence[Query],
    pool: Pool,
    selectors: Mapping[str, Selector],
    reader: Reader,
    budget_tokens: int,
    tokens: TokenCounter,
    *,
    embedder: Embedder | None = None,
    journal: Journal | None = None,
    quiet: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Let every selector choose for every question, and measure what it chose.

    All selectors take their turn on a question before the next one comes, so that a change of the machine's
    speed meets them alike. Equal contexts are read once. A selector that fails on a question is noted with its error
    and the others go on.

    Args:
        queries: The questions.
        pool: Their candidates.
        selectors: By name.
        reader: Answers from what was chosen.
        budget_tokens: The most tokens that a selection may cost.
        tokens: Counts them.
        embedder: Tells how much a selection repeats itself; without one that figure is left out.
        journal: Remembers finished questions.
        quiet: No progress.

    Returns:
        Per method one row per question.
    """
    units: dict[str, Mapping[str, dict[str, Any]]] = dict(journal.units) if journal else {}
    remembering = CachedReader(reader)
    with progress(f"select at {budget_tokens} tokens", quiet=quiet) as report:
        for number, query in enumerate(queries, start=1):
            if query.id not in units:
                units[query.id] = measure(query, pool, selectors, remembering, budget_tokens, tokens, embedder)
                if journal is not None:
                    journal.add(query.id, units[query.id])
            report(number, len(queries))
    return {name: [units[query.id][name] for query in queries] for name in selectors}


def measure(
    query: Query,
    pool: Pool,
    selectors: Mapping[str, Selector],
    reader: CachedReader,
    budget_tokens: int,
    tokens: TokenCounter,
    embedder: Embedder | None,
) -> dict[str, dict[str, Any]]:
    """Let every selector choose for one question, and measure what it chose; see `compare`.

    Returns:
        Per method its row.
    """
    rows: dict[str, dict[str, Any]] = {}
    chosen: dict[str, tuple[Selection, float]] = {}
    candidates = pool.candidates(query)
    ranking = [candidate.chunk for candidate in candidates]
    for name, selector in selectors.items():
        started = time.perf_counter()
        try:
            selection = selector.select(query.question, candidates, budget_tokens)
        except DataError:
            # Files that cannot be used are no question's fault.
            raise
        except FAILURES as error:
            rows[name] = {"query": query.id, "failed": 1, "error": f"{type(error).__name__}: {error}"}
            continue
        chosen[name] = selection, 1000 * (time.perf_counter() - started)
    selections = [selection for selection, _ in chosen.values()]
    originals = [_original(selection, ranking) for selection in selections if not _is_whole(selection)]
    contexts = [*(selection.text for selection in selections), *originals]
    found = reader.answer_many([query.question] * len(contexts), contexts)
    answers = {context: answer.text for context, answer in zip(contexts, found, strict=True)}
    for name, (selection, latency_ms) in chosen.items():
        answer = answers[selection.text]
        rows[name] = {
            "query": query.id,
            **figures(query, selection, answer, tokens),
            **depth_figures(query, selection, ranking),
            **summary_figures(selection, ranking, answer, answers.__getitem__, tokens, embedder),
            **({} if embedder is None else {"redundancy": redundancy(_parts(selection), embedder)}),
            "failed": 0,
            "latency_ms": latency_ms,
            "ids": list(selection.ids),
            "answer": answer,
        }
    return {name: rows[name] for name in selectors}


def figures(query: Query, selection: Selection, answer: str, tokens: TokenCounter) -> dict[str, Any]:
    """Return the figures of one selection by itself and of the answer that was read from it."""
    # Counted anew: whether a budget holds is not left to the word of the selector that had to keep it.
    cost = int(tokens.count([selection.text])[0]) if selection.text else 0
    trace = selection.trace
    # Of a chunk that went into a summary nobody knows whether its evidence is still there.
    shown = [chunk for chunk in selection.chunks if chunk.text in selection.text]
    taken = evidence_figures(selection.chunks, query.gold)
    return {
        **(
            {**answer_figures(answer, query.answers), "sub_em": substring_match(answer, query.answers)}
            if query.answers
            else {}
        ),
        **(evidence_figures(shown, query.gold) or {}),
        **({} if taken is None else {"context_recall": taken["evidence_recall"]}),
        "cost_tokens": cost,
        "chunks": len(selection),
        "over_budget": int(cost > selection.budget_tokens),
        "empty": int(len(selection) == 0),
        "value": selection.value,
        "scorer_calls": trace.scorer_calls,
        "orders_scored": trace.orders_scored,
        "truncated": trace.truncated,
        **({"reranker": trace.reranker} if trace.reranker is not None else {}),
    }


def depth_figures(query: Query, selection: Selection, ranking: Sequence[Chunk]) -> dict[str, int]:
    """Return how deep in the ranking the evidence lies, and how far from it the number of chunks chosen is."""
    depth = evidence_depth(ranking, query.gold)
    return {} if depth is None else {"true_k": depth, "diff_k": abs(len(selection) - depth)}


def summary_figures(
    selection: Selection,
    ranking: Sequence[Chunk],
    answer: str,
    answer_from: Callable[[str], str],
    tokens: TokenCounter,
    embedder: Embedder | None,
) -> dict[str, float]:
    """Return what summarizing changed: tokens and answer, against the chunks that were summarized as they are.

    Nothing for a selection of whole chunks.
    """
    if _is_whole(selection):
        return {}
    original = _original(selection, ranking)
    num_tokens, before = tokens.count([selection.text, original]).tolist()
    return {
        "change_in_tokens": change_in_tokens(num_tokens, before),
        **({} if embedder is None else {"answer_similarity": _alike(answer, answer_from(original), embedder)}),
    }


def _alike(answer: str, other: str, embedder: Embedder) -> float:
    return answer_similarity(answer, other, embedder) if answer and other else float(answer == other)


def _original(selection: Selection, ranking: Sequence[Chunk]) -> str:
    """Return the joined chunks that a selection was made from."""
    # In the order of the ranking, so that methods which sum up the same chunks share one answer.
    sources = set(selection.ids)
    return SEPARATOR.join(chunk.text for chunk in ranking if chunk.id in sources)


def _is_whole(selection: Selection) -> bool:
    return selection.text == SEPARATOR.join(chunk.text for chunk in selection.chunks)


def _parts(selection: Selection) -> list[str]:
    """Return the chunks, or of a selection with a text of its own the parts that empty lines divide."""
    if _is_whole(selection):
        return [chunk.text for chunk in selection.chunks]
    return [part for part in selection.text.split(SEPARATOR) if part.strip()]


def average(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means, totals and latency quantiles of a method's rows; 0 where no question has the figure.

    Questions on which the method failed are counted, and in no other figure. `tes` is over those with gold.
    """
    latencies = [row["latency_ms"] for row in rows if "latency_ms" in row] or [0.0]
    means = {name: [float(row[name]) for row in rows if name in row] for name in (*MEANS, *SOME_MEANS)}
    judged = [row for row in rows if "full_evidence" in row]
    errors = [row["error"] for row in rows if "error" in row]
    return {
        **{
            name: float(np.mean(values)) if values else None if name in SOME_MEANS else 0.0
            for name, values in means.items()
        },
        "tes": _tes(judged) if judged else None,
        **{name: int(sum(row.get(name, 0) for row in rows)) for name in TOTALS},
        "latency_ms_median": float(np.median(latencies)),
        "latency_ms_p95": float(np.percentile(latencies, 95)),
        **({"error": errors[0]} if errors else {}),
    }


def _tes(rows: Sequence[Mapping[str, Any]]) -> float:
    accuracy, candidates = (float(np.mean([row[name] for row in rows])) for name in ("full_evidence", "chunks"))
    return trade_off_efficiency(accuracy, candidates)


def versions() -> dict[str, str]:
    """Return the versions of what figures depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            logger.debug("%s is not installed", package)
    return found
