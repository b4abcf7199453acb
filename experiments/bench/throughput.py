"""Many questions through a selector: tokens a second beside the bare encoder, what the caches save, and memory.

Every batch that goes through a model while a block of questions is answered is then run again by itself: the same
batches, in the same order, with nothing around them. So a slow moment of the machine affects both alike. Nothing is
known of the texts at first; the last questions are asked once more at the end, while their texts are in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any
from unittest.mock import patch

from corag.errors import DataError
from corag.memory import forget, usages
from corag.models.engine.engine import Batch, Engine, Float32, Int64, Reduction
from corag.models.engine.replicas import Replicas
from corag.naming import Spellings, split_parts
from corag.progress import counted
from corag.registry import selector as make_selector
from corag.selectors.base import BudgetedSelector
from corag.text.chunking import DEFAULT_BUDGET
from corag.text.data import DataFolder
from corag.text.documents import passage
from corag.types import Candidate
from experiments.bench.breakdown import data_folder
from experiments.bench.harness import Timing, finished, lines, memory_mb
from experiments.bench.scoring import demo_questions
from experiments.run.drawing import new_figure

QUESTIONS = 200
METHODS = "corag,corag(reranker=minilm-multihop),corag(reranker=minilm-softsim)"
AGAIN = 20
"""Questions that are asked once more."""
ROUNDS = 1
TITLE = (
    "select_each: tokens through the model a second, beside the model alone on the same batches; questions a second "
    "with new texts, and once more with known ones"
)
COLUMNS = {
    "setting": "selector", "questions": "questions", "tokens_per_s": "tokens/s", "bare_per_s": "model alone",
    "of_bare": "share", "per_s": "questions/s", "again_per_s": "once more", "hit_rate": "found in cache",
    "cache_mb": "cache, MB", "memory_mb": "process, MB",
}  # fmt: skip
Asked = Sequence[tuple[str, Sequence[Candidate]]]


@dataclass
class Recorded:
    """Batches that went through models, with the tokens in them that are no padding."""

    batches: list[tuple[Any, Mapping[str, Int64]]] = field(default_factory=list)
    tokens: int = 0

    def watched(self, engine: Engine) -> Engine:
        """Return the engine, which notes what its models run."""

        def noting(forward: Any) -> Any:
            def run(inputs: Mapping[str, Int64], reduction: Reduction | None = None) -> Float32:
                self.batches.append((forward, inputs))
                self.tokens += int(inputs["attention_mask"].sum())
                found: Float32 = forward(inputs, reduction)
                return found

            return run

        replicas = Replicas([noting(model) for model in engine.replicas.models], engine.replicas.record)
        return Engine(replicas, engine.pad_token, engine.max_batch_tokens)

    def run(self) -> None:
        """Run the batches once more, by themselves."""
        for forward, inputs in self.batches:
            forward(inputs, None)


def bench_throughput(
    timing: Timing,
    data: str = "",
    *,
    num_questions: int = QUESTIONS,
    methods: Spellings = METHODS,
    budget: int = DEFAULT_BUDGET,
) -> dict[str, list[dict[str, Any]]]:
    """Ask questions with their own candidates, which stand in the order given, without similarities.

    `data` is a data folder, or several, separated by commas; by default the demo's questions are asked.

    Returns:
        `rows`: for each selector the figures of `COLUMNS`; rates are those of the fastest round. `curve`: for each the
        number of `questions` after each block, and `mb`, the memory of the process then.
    """
    asked = _questions(data, num_questions)
    rows, curves = [], []
    for name in counted("selectors", split_parts(methods)):
        found = [_measured(name, asked, budget, timing) for _ in range(timing.rounds)]
        row, curve = min(found, key=lambda one: one[0]["seconds"])
        rows.append(row)
        curves.append({"setting": name, **curve})
    return {"rows": rows, "curve": curves}


def _questions(data: str, number: int) -> Asked:
    if not data:
        return demo_questions()[:number]
    folders = [data_folder(one, Path()) for one in data.split(",")]
    # In turn, so that few questions are of all folders, too.
    asked = list(islice(filter(None, chain.from_iterable(zip_longest(*map(_of_folder, folders)))), number))
    if not asked:
        raise DataError(f"no question of {data} has a list of candidates; give a folder whose questions have")
    return asked


def _of_folder(folder: DataFolder) -> Iterator[tuple[str, list[Candidate]]]:
    for query in folder.queries:
        if query.candidates:
            yield query.question, [Candidate(passage(folder.documents[name])) for name in query.candidates]


def _measured(name: str, asked: Asked, budget: int, timing: Timing) -> tuple[dict[str, Any], dict[str, list[float]]]:
    selector = make_selector(name)
    assert isinstance(selector, BudgetedSelector)
    next(selector.select_each(asked, budget))  # loads and compiles
    forget()
    seconds = bare = tokens = 0.0
    curve: dict[str, list[float]] = {"questions": [], "mb": []}
    for block in counted("blocks", list(_blocks(asked, selector.queries_at_once))):
        recorded = Recorded()
        started = timing.now()
        with patch.object(Engine, "run", _noting(recorded)):
            for _ in selector.select_each(block, budget):
                pass
        middle = timing.now()
        recorded.run()
        bare += timing.now() - middle
        seconds += middle - started
        tokens += recorded.tokens
        curve["questions"].append((curve["questions"] or [0])[-1] + len(block))
        curve["mb"].append(memory_mb())
    again = asked[-AGAIN:]
    started = timing.now()
    for _ in selector.select_each(again, budget):
        pass
    known = timing.now() - started
    uses = usages()
    found, missing = sum(use.hits for use in uses), sum(use.misses for use in uses)
    row = {
        "setting": name,
        "questions": len(asked),
        "seconds": seconds,
        "per_s": len(asked) / seconds,
        "again_per_s": len(again) / known,
        "hit_rate": found / max(1, found + missing),
        "cache_mb": sum(use.nbytes for use in uses) / 1e6,
        "memory_mb": curve["mb"][-1],
        "caches": [str(use) for use in uses],
    }
    if tokens:
        row |= {"tokens_per_s": round(tokens / seconds), "bare_per_s": round(tokens / bare), "of_bare": bare / seconds}
    return row, curve


def _noting(recorded: Recorded) -> Any:
    run = Engine.run

    def noting(
        engine: Engine,
        ids: Sequence[Int64],
        token_types: Sequence[Int64] | None = None,
        reduction: Reduction | None = None,
    ) -> Iterator[Batch]:
        return run(recorded.watched(engine), ids, token_types, reduction)

    return noting


def _blocks(asked: Asked, size: int) -> Iterator[Asked]:
    for start in range(0, len(asked), size):
        yield asked[start : start + size]


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of the memory of the process against the questions asked."""
    figure = new_figure(5.0, 3.4)
    panel = figure.subplots()
    lines(panel, {one["setting"]: (one["questions"], one["mb"]) for one in measured["curve"]})
    panel.set_xlabel("questions")
    panel.set_ylabel("memory of the process, MB")
    panel.set_ylim(0, 1.2 * max(chain.from_iterable(one["mb"] for one in measured["curve"])))
    return finished(figure, legend_size=8)
