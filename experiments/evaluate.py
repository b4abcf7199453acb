"""Selectors side by side on the same questions, candidates and budget."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import corag
from corag.console import progress, stdout, table
from corag.data import DataFolder, Query
from corag.errors import InputError
from corag.registry import SELECTORS
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from corag.text import ChunkConfig
from corag.tokens import token_counter
from corag.types import Reader, Selection, Selector, TokenCounter
from experiments.journal import Journal, fingerprint, output_file, write_atomically
from experiments.metrics import answer_figures, evidence_figures
from experiments.pools import Pool, PoolName, check_counts, content_hash, open_pool

logger = logging.getLogger(__name__)

PLAIN = "corag-plain"

MEANS = (
    "rouge1", "rouge2", "rougeL", "f1", "em", "evidence_recall", "evidence_precision", "full_evidence",
    "cost_tokens", "chunks", "scorer_calls", "orders_scored", "value",
)  # fmt: skip
"""Figures that are averaged over questions; what a question does not have is left out of its average."""
TOTALS = ("over_budget", "truncated", "empty")
"""Figures that are added up over questions."""

COLUMNS = {
    "rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "f1": "F1", "em": "exact match",
    "evidence_recall": "evidence recall", "evidence_precision": "evidence precision", "full_evidence": "full evidence",
    "cost_tokens": "tokens", "chunks": "chunks", "over_budget": "over budget", "value": "value",
    "orders_scored": "orders scored", "latency_ms_median": "ms, median", "latency_ms_p95": "ms, 95%",
}  # fmt: skip
"""Figures shown in tables, and their headings."""
FORMATS = {
    "cost_tokens": ".1f", "chunks": ".2f", "orders_scored": ".1f", "latency_ms_median": ".1f", "latency_ms_p95": ".1f",
}  # fmt: skip


@dataclass(frozen=True)
class EvaluateConfig:
    """Compare selectors on a data folder.

    Attributes:
        data: Data folder.
        split: Which questions.
        methods: Selectors, separated by commas; `corag-plain` is `corag` with its default settings, agent or not.
        budget: The most tokens a selection may cost.
        pool: Where candidates come from: the question's own list, or the nearest chunks of the corpus.
        reranker: Values chunks for every method that reranks.
        window: What becomes of orders that are longer than the reranker's window: they are no candidates (forbid), are
            scored in overlapping windows (windows), or are cut (truncate) and counted.
        prefilter: Share of orders that `corag` asks the reranker about; below 1 a surrogate ranks them first.
        agent: Checkpoint folder; `corag` then predicts its settings, `corag-fixed` uses its best single one.
        reader: Answers the questions.
        tokenizer: Counts tokens: minilm, estimate, or a tokenizer.json.
        embedder: Embeds questions and passages.
        index: An index of the corpus; by default one is built in the cache folder.
        num_candidates: Chunks offered per question with the corpus as pool.
        max_tokens: Tokens of a chunk when an index has to be built.
        limit: Only the first questions of the split.
        out: Writes the result as JSON, and one line per question beside it (`.rows.jsonl`).
        quiet: No progress and no table.
    """

    data: str
    split: str = "dev"
    methods: str = "top-k,naive,corag,upper"
    budget: int = 256
    pool: PoolName = "auto"
    reranker: str = "minilm-maxsim"
    window: WindowPolicy = DEFAULT_POLICY
    prefilter: float = 1.0
    agent: str | None = None
    reader: str = "extractive"
    tokenizer: str = "minilm"
    embedder: str = "minilm"
    index: str | None = None
    num_candidates: int = 20
    max_tokens: int = 256
    limit: int | None = None
    out: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise InputError(f"budget must be at least 1 token, got {self.budget}; 256 to 4096 are usual")
        check_counts(self.limit, self.num_candidates)


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Run the comparison that a config describes.

    An interrupted one goes on where it stopped; one whose result stands in `out` is not run again.

    Returns:
        What `--out` writes: settings, versions and one entry of figures per method.
    """
    out = None if config.out is None else output_file(config.out)
    folder = DataFolder.open(config.data)
    queries = folder.split(config.split, config.limit)
    tokens = token_counter(config.tokenizer)
    selectors = make_selectors(config, tokens)
    reader = corag.reader(config.reader)
    settings = {name: value for name, value in asdict(config).items() if name not in ("out", "quiet")}
    content = content_hash(folder, queries, config.index)
    work = fingerprint([settings, content, _checkpoint_hash(config.agent), versions()])
    if out is not None and (found := _finished(out, work)) is not None:
        logger.info("%s is complete already; delete it to measure again", out)
        return found
    pool = open_pool(
        folder,
        queries,
        corag.embedder(config.embedder),
        pool=config.pool,
        index=config.index,
        num_candidates=config.num_candidates,
        chunking=ChunkConfig(config.max_tokens),
        quiet=config.quiet,
    )
    with nullcontext() if out is None else Journal(out.with_suffix(".journal.jsonl"), work) as journal:
        rows = compare(queries, pool, selectors, reader, config.budget, tokens, journal=journal, quiet=config.quiet)
        result = {
            "data": config.data,
            "split": config.split,
            "budget_tokens": config.budget,
            "queries": len(queries),
            "queries_without_gold": sum(not query.gold for query in queries),
            "pool": pool.name,
            "methods": [{"method": name, **average(rows[name])} for name in selectors],
            "config": settings,
            "versions": versions(),
            "seed": 0,
            "work": work,
        }
        if out is not None and journal is not None:
            lines = [json.dumps({"method": name, **row}, ensure_ascii=False) for name in rows for row in rows[name]]
            write_atomically(out.with_suffix(".rows.jsonl"), "\n".join(lines) + "\n")
            write_atomically(out, json.dumps(result, indent=2, ensure_ascii=False) + "\n")
            journal.remove()
    return result


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


def make_selectors(config: EvaluateConfig, tokens: TokenCounter) -> dict[str, Selector]:
    """Build the selectors that a config names, each with rerankers of its own so that no cache is shared.

    Raises:
        InputError: No method, an unknown one, or `corag-fixed` without an agent.
    """
    names = [name.strip() for name in config.methods.split(",") if name.strip()]
    if not names:
        raise InputError(f"methods is {config.methods!r}; name at least one of {', '.join(SELECTORS.names)}")
    selectors: dict[str, Selector] = {}
    for name in names:
        settings: dict[str, Any] = {"tokens": tokens}
        if name in ("naive", "upper", PLAIN) or (name == "corag" and config.agent is None):
            settings["reranker"] = config.reranker
        if name == "corag":
            settings["prefilter"] = config.prefilter
        if name in ("corag", "corag-fixed") and config.agent is not None:
            settings["agent"] = config.agent
        if name in ("naive", "upper", PLAIN, "corag", "corag-fixed"):
            settings["window"] = config.window
        if name == "corag-fixed" and config.agent is None:
            raise InputError("method 'corag-fixed' takes its setting from a checkpoint; give one with --agent")
        selectors[name] = corag.selector("corag" if name == PLAIN else name, **settings)
    return selectors


def compare(
    queries: Sequence[Query],
    pool: Pool,
    selectors: Mapping[str, Selector],
    reader: Reader,
    budget_tokens: int,
    tokens: TokenCounter,
    *,
    journal: Journal | None = None,
    quiet: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Let every selector choose for every question, and measure what it chose.

    All selectors take their turn on a question before the next one comes, so that a change of the machine's
    speed meets them alike. Equal contexts are read once.

    Returns:
        Per method one row per question.
    """
    units: dict[str, Mapping[str, dict[str, Any]]] = dict(journal.units) if journal else {}
    with progress(f"select at {budget_tokens} tokens", quiet=quiet) as report:
        for number, query in enumerate(queries, start=1):
            if query.id not in units:
                units[query.id] = _measure(query, pool, selectors, reader, budget_tokens, tokens)
                if journal is not None:
                    journal.add(query.id, units[query.id])
            report(number, len(queries))
    return {name: [units[query.id][name] for query in queries] for name in selectors}


def _measure(
    query: Query,
    pool: Pool,
    selectors: Mapping[str, Selector],
    reader: Reader,
    budget_tokens: int,
    tokens: TokenCounter,
) -> dict[str, dict[str, Any]]:
    answers: dict[str, str] = {}
    rows: dict[str, dict[str, Any]] = {}
    candidates = pool.candidates(query)
    for name, selector in selectors.items():
        started = time.perf_counter()
        selection = selector.select(query.question, candidates, budget_tokens)
        latency_ms = 1000 * (time.perf_counter() - started)
        if selection.text not in answers:
            answers[selection.text] = reader.answer(query.question, selection.text).text
        answer = answers[selection.text]
        rows[name] = {
            "query": query.id,
            **figures(query, selection, answer, tokens),
            "latency_ms": latency_ms,
            "ids": list(selection.ids),
            "answer": answer,
        }
    return rows


def figures(query: Query, selection: Selection, answer: str, tokens: TokenCounter) -> dict[str, Any]:
    """Return all figures of one selection and the answer that was read from it."""
    # Counted anew: whether a budget holds is not left to the word of the selector that had to keep it.
    cost = int(tokens.count([selection.text])[0]) if selection.text else 0
    trace = selection.trace
    # Of a chunk that went into a summary nobody knows whether its evidence is still there.
    shown = [chunk for chunk in selection.chunks if chunk.text in selection.text]
    return {
        **(answer_figures(answer, query.answers) if query.answers else {}),
        **(evidence_figures(shown, query.gold) or {}),
        "cost_tokens": cost,
        "chunks": len(selection),
        "over_budget": int(cost > selection.budget_tokens),
        "empty": int(len(selection) == 0),
        "value": selection.value,
        "scorer_calls": trace.get("scorer_calls", 0),
        "orders_scored": trace.get("orders_scored", 0),
        "truncated": trace.get("truncated", 0),
        **({"reranker": trace["reranker"]} if "reranker" in trace else {}),
    }


def average(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return means, totals and latency quantiles of a method's rows; 0 where no question has the figure."""
    latencies = [row["latency_ms"] for row in rows]
    means = {name: [float(row[name]) for row in rows if name in row] for name in MEANS}
    return {
        **{name: float(np.mean(values)) if values else 0.0 for name, values in means.items()},
        **{name: int(sum(row[name] for row in rows)) for name in TOTALS},
        "latency_ms_median": float(np.median(latencies)),
        "latency_ms_p95": float(np.percentile(latencies, 95)),
    }


def show(result: Mapping[str, Any], title: str) -> None:
    """Print a result: one column per method, one line per figure."""
    lines = [
        {"figure": heading} | {row["method"]: format_figure(name, row[name]) for row in result["methods"]}
        for name, heading in COLUMNS.items()
    ]
    methods = [row["method"] for row in result["methods"]]
    stdout().print(table(lines, {"figure": "", **dict(zip(methods, methods, strict=True))}, title=title))


def format_figure(name: str, value: float) -> str:
    """Return a figure as tables show it."""
    return format(value, FORMATS.get(name, ".3f")) if isinstance(value, float) else str(value)


def versions() -> dict[str, str]:
    """Return the versions of what figures depend on."""
    found = {"python": platform.python_version()}
    for package in ("corag", "numpy", "torch", "transformers", "openvino", "lancedb", "rouge-score", "bm25s"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            logger.debug("%s is not installed", package)
    return found
