"""Where a question's time goes: by chunk size, selector and reranker, with the objects that serve questions.

The steps are those of figure 6 of the paper of CORAG (section 6.2.3) and the reading of the answer:

- `embed`: the question's embedding.
- `retrieve`: candidates from the index.
- `rerank`: what the reranker does, from the encoding of the candidates to the values of combinations.
- `search`: the rest of the selection: costs, the agent's prediction, the search itself, the text.
- `prompt`: the prompt around the text, and the count of its tokens. Next to nothing for a reader without a prompt.
- `read`: the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

from corag.budget import Budget, BudgetFor, reader_and_tokens, tokens_setting
from corag.checks import check_count
from corag.cli.console import progress
from corag.errors import DataError, InputError
from corag.index import ChunkIndex, Retrieval, update_index
from corag.memory import forget
from corag.models.vectors import vectors_by
from corag.naming import PartName, Spelling, Spellings, parse, split_parts
from corag.registry import RERANKERS, SELECTORS
from corag.registry import embedder as make_embedder
from corag.text.chunking import DEFAULT_BUDGET, ChunkConfig
from corag.text.data import DataFolder
from corag.types import Chunk, Embedder, FloatArray, Order, Reader, Reranker, Scorer, Selector
from experiments import demo
from experiments.bench.harness import Timing, Watch, finished, stacked_bars
from experiments.run.drawing import new_figure

STEPS = ("embed", "retrieve", "rerank", "search", "prompt", "read")
CHUNK_TOKENS = (256, 512, 1024)
METHODS = "top-k,naive,corag"
RERANKERS_MEASURED = "minilm-multihop,minilm-maxsim"
NUM_QUESTIONS = 10
ROUNDS = 3
TITLE = "a question's time: ms (mean and median over questions), and share of each step in the mean"
COLUMNS = {
    "setting": "chunk tokens, selector, reranker", "ms": "ms", "median_ms": "median",
    **{f"{step}_share": step for step in STEPS},
}  # fmt: skip


def bench_breakdown(
    timing: Timing,
    *,
    data: str = "",
    split: str = "",
    chunk_tokens: Sequence[int] = CHUNK_TOKENS,
    methods: Spellings = METHODS,
    rerankers: Spellings = RERANKERS_MEASURED,
    reader: Spelling | Reader = "minilm-reader",
    embedder: Spelling | Embedder = "minilm",
    num_questions: int = NUM_QUESTIONS,
    num_candidates: int = 20,
    retrieval: Retrieval = "hybrid",
    budget: int = DEFAULT_BUDGET,
    budget_for: BudgetFor = "prompt",
    indexes: str | Path = "runs/bench/indexes",
    quiet: bool = False,
) -> dict[str, list[dict[str, Any]]]:
    """Time questions step by step; every question is asked with all settings in turn, after one that warms up.

    In each round selectors and rerankers are new, so that they know nothing of the questions' chunks.

    Args:
        timing: Rounds and clock.
        data: Data folder, by path or name; empty for the demo corpus.
        split: Split of the questions; empty for all.
        chunk_tokens: Sizes of chunks; each has an index of its own.
        methods: Selectors, separated by commas.
        rerankers: Rerankers that each selector which takes one runs with; separated by commas.
        reader: Reads the answers: name or object.
        embedder: Embeds chunks and questions: name or object.
        num_questions: Questions, spread over those there are.
        num_candidates: Chunks that the index offers.
        retrieval: How it finds them.
        budget: Token budget.
        budget_for: What it is for; see `Budget`.
        indexes: Folder that keeps the indexes; one that is there is brought up to date.
        quiet: Show no progress.

    Returns:
        `rows`: for each chunk size, selector and reranker the mean milliseconds of each of `STEPS` and its share in
        their sum, `ms`, which is the mean of a whole question; `median_ms`; and the number of `questions`.

    Raises:
        InputError: No selector, a number below 1, or a budget that leaves no room for a context.
        DataError: There is no question.
    """
    for size in chunk_tokens:
        check_count("chunk_tokens", size, "256, 512 and 1024 are usual")
    check_count("questions", num_questions, "10 to 100 are usual")
    pairs = list(_pairs(methods, rerankers))
    root, given = Path(indexes), make_embedder(embedder)
    folder = data_folder(data, root)
    questions = spread(folder.split(split) if split else folder.queries, num_questions + 1)
    opened = {size: _index(folder.path, root, size, given, quiet) for size in chunk_tokens}
    settings = [(size, *pair) for size in chunk_tokens for pair in pairs]
    found: dict[tuple[int, str, str], list[dict[str, float]]] = {setting: [] for setting in settings}
    reading, tokens = reader_and_tokens(reader)
    spent = Budget(budget, reading, budget_for)
    with progress("breakdown", quiet=quiet) as report:
        total = timing.rounds * len(questions) * len(settings)
        done = 0
        for _ in range(timing.rounds):
            chains = {
                (size, method, reranker): Chain(
                    opened[size], given, *_selector(method, reranker, tokens_setting(tokens)), spent, reading,
                    num_candidates, retrieval,
                )
                for size, method, reranker in settings
            }  # fmt: skip
            for place, question in enumerate(questions):
                for setting, chain in chains.items():
                    seconds = chain.ask(question, timing)
                    if place:  # the first question loads and compiles
                        found[setting].append(seconds)
                    done += 1
                    report(done, total)
    return {"rows": [_row(setting, times) for setting, times in found.items()]}


@dataclass(frozen=True)
class Chain:
    """What answers a question, as `corag.ask` chains it, with a watch on each step.

    `reranker` is the one that `selector` was built with; None where it has none, or chooses one by itself: its values
    then count as search.
    """

    index: ChunkIndex
    embedder: Embedder
    selector: Selector
    reranker: WatchedReranker | None
    budget: Budget
    reader: Reader | None
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"

    def ask(self, question: str, timing: Timing) -> dict[str, float]:
        """Return the seconds of each of `STEPS`, all texts being new; `read` is 0 without a reader."""
        forget()
        watch = Watch(timing.now, dict.fromkeys(("all", *STEPS), 0.0))
        if self.reranker is not None:
            self.reranker.watch = watch
        select = watch.timed("select", self.selector.select)
        with patch.object(self.selector, "select", select):
            vector = watch.timed("embed", vectors_by)(self.embedder, [question])[0]
            candidates = watch.timed("retrieve", self.index.retrieve)(
                question, vector, self.num_candidates, self.retrieval
            )
            selection = watch.timed("budget", self.budget.select)(self.selector, question, candidates)
            if self.reader is not None:
                watch.timed("read", self.reader.answer)(question, selection.text)
        seconds = watch.seconds
        seconds["search"] = seconds["select"] - seconds["rerank"]
        seconds["prompt"] = seconds["budget"] - seconds["select"]
        return {step: seconds[step] for step in STEPS}


class WatchedReranker:
    """A reranker whose work is timed as `rerank`; it otherwise is what it wraps, whatever protocols that has."""

    def __init__(self, reranker: Reranker) -> None:
        self._inner = reranker
        self.watch: Watch | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Scorer:
        """Return the scoring function, watched."""
        assert self.watch is not None
        return _WatchedScorer(self.watch.timed("rerank", self._inner.scorer)(query, chunks), self.watch)


class _WatchedScorer:
    """A scorer whose calls are timed; it shares no batches with other questions, of which there are none."""

    def __init__(self, scorer: Scorer, watch: Watch) -> None:
        self._inner, self._watch = scorer, watch

    def __getattr__(self, name: str) -> Any:
        if name == "score_jointly":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def under(self, policy: Any) -> _WatchedScorer:
        """Return the scorer under a policy of its window, watched."""
        inner: Any = self._inner
        return _WatchedScorer(inner.under(policy), self._watch)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        return self._watch.timed("rerank", self._inner)(orders)


def _pairs(methods: Spellings, rerankers: Spellings) -> Iterator[tuple[str, str]]:
    """Yield each selector with each reranker, with the one that it names, or with none where it takes none."""
    named = split_parts(methods)
    if not named:
        raise InputError(f"methods is {methods!r}; name at least one selector, such as {METHODS}")
    for method in named:
        written = parse(method)
        if "reranker" in written.settings:
            others = {name: value for name, value in written.settings.items() if name != "reranker"}
            yield str(PartName(written.name, others)), str(written.settings["reranker"])
        elif "reranker" in SELECTORS.settings(method):
            yield from ((method, reranker) for reranker in split_parts(rerankers))
        else:
            yield method, ""


def _selector(method: str, reranker: str, settings: Mapping[str, Any]) -> tuple[Selector, WatchedReranker | None]:
    watched = WatchedReranker(RERANKERS.make(reranker)) if reranker else None
    offered = {**settings, **({} if watched is None else {"reranker": watched})}
    return SELECTORS.offer(method, offered), watched


def data_folder(data: str, root: Path) -> DataFolder:
    """Return a data folder by path or name; for an empty one that of the demo, written into `root`."""
    if data:
        return DataFolder.open(data)
    demo.write_data_folder(root / "demo")
    return DataFolder.open(root / "demo")


def _index(folder: Path, root: Path, size: int, embedder: Embedder, quiet: bool) -> ChunkIndex:
    with progress(f"index of {size} tokens", quiet=quiet) as report:
        where = root / f"{folder.resolve().name}-{size}"
        return update_index(folder, where, embedder, ChunkConfig(size), overwrite=True, report=report).index


def spread(queries: Sequence[Any], number: int) -> list[str]:
    """Return the texts of up to `number` questions, spread evenly over all."""
    if not queries:
        raise DataError("there are no questions to ask; give a data folder with queries.jsonl")
    step = max(1, len(queries) // number)
    return [query.question for query in queries[::step]][:number]


def _row(setting: tuple[int, str, str], times: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    size, method, reranker = setting
    totals = [1e3 * sum(one.values()) for one in times]
    means = {step: 1e3 * fmean(one[step] for one in times) for step in STEPS}
    return {
        "setting": f"{size}, {method}{' ' * bool(reranker)}{reranker}",
        "chunk_tokens": size,
        "method": method,
        "reranker": reranker or None,
        "questions": len(times),
        "ms": fmean(totals),
        "median_ms": median(totals),
        **means,
        **{f"{step}_share": means[step] / fmean(totals) for step in STEPS},
    }


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of stacked bars, a panel for each chunk size, in type that a phone can show."""
    rows = measured["rows"]
    sizes = list(dict.fromkeys(row["chunk_tokens"] for row in rows))
    figure = new_figure(
        5.0, 0.9 + sum(0.55 + 0.42 * sum(row["chunk_tokens"] == size for row in rows) for size in sizes)
    )
    panels = figure.subplots(len(sizes), 1, squeeze=False, sharex=True)[:, 0]
    for panel, size in zip(panels, sizes, strict=True):
        of_size = [row for row in rows if row["chunk_tokens"] == size]
        stacked_bars(panel, [_short(row) for row in of_size], {step: [row[step] for row in of_size] for step in STEPS})
        panel.set_title(f"chunks of {size} tokens", fontsize=12, loc="left")
        panel.tick_params(labelsize=11)
    panels[-1].set_xlabel("ms a question", fontsize=12)
    # One legend for all, above them.
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=3, fontsize=11, frameon=False, loc="upper left")
    return finished(figure, grid=False, top_inches=0.6)


def _short(row: Mapping[str, Any]) -> str:
    """Return a name for a narrow figure."""
    reranker = (row["reranker"] or "").rpartition("/")[2].removeprefix("minilm-")
    return f"{row['method']}\n{reranker}" if reranker else str(row["method"])
