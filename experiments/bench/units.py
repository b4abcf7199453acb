"""What a question costs with sentences and with passages to choose from: the same questions, the same pools, one core.

A pool holds 20 passages: a question's own candidates, or the article that it was asked about, and those of other
questions. `cold`: nothing is known of the pool, as when a question is asked for the first time; the encoder reads all
of it. `warm`: the passages were read before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import search
from corag.memory import forget
from corag.models.minilm import TextEncoder, minilm_encoder
from corag.progress import counted
from corag.rerankers.evidence import parts
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.selectors.corag.selector import Corag
from corag.text.data import DataFolder, Query
from corag.text.documents import passage
from corag.types import Candidate
from experiments.bench.harness import Timing, Watch, finished, stacked_bars
from experiments.run.drawing import new_figure

SETS = ("hotpotqa", "squad")
NUM_QUESTIONS = 20
POOL = 20
BUDGET_TOKENS = 256
UNITS = ("passage", "sentence")
POLICIES: tuple[search.Policy, ...] = ("beam", "bayesian")
ROUNDS = 3
STEPS = ("encode", "units", "read", "signals", "hypotheses", "search", "rest")
TITLE = (
    f"ms a question, {POOL} passages, {BUDGET_TOKENS} tokens; x: times that of passages; encoder, sets and search "
    "of a cold one; policies alone"
)
COLUMNS = {
    "setting": "questions", "cold_ms": "cold", "cold_ratio": "x", "warm_ms": "warm", "warm_ratio": "x",
    "encode": "encode", "hypotheses": "sets", "search": "search", **{f"{policy}_ms": policy for policy in POLICIES},
}  # fmt: skip


@contextmanager
def _watching(watch: Watch, encoder: TextEncoder) -> Iterator[None]:
    """Time the steps of a reranker inside the block."""
    with ExitStack() as stack:
        for name in ("tokenize", "states"):
            stack.enter_context(patch.object(encoder, name, watch.timed("encode", getattr(encoder, name))))
        for step, name in (("signals", "signals"), ("hypotheses", "weigh")):
            stack.enter_context(patch.object(parts, name, watch.timed(step, getattr(parts, name))))
        yield


def bench_units(
    timing: Timing,
    root: str | Path = "",
    *,
    sets: Sequence[str] = SETS,
    num_questions: int = NUM_QUESTIONS,
    reranker: str = "minilm-multihop",
) -> dict[str, list[dict[str, Any]]]:
    """Time `corag` with passages and with sentences, question by question in turn, cold and then warm.

    `root` is the folder of data folders; by default each is looked up by its name.

    Returns:
        `rows`: for each set and unit the medians `cold_ms` and `warm_ms`, their ratios to those of passages, the mean
        milliseconds of the parts of a cold question, and those of the policies alone, without values.
    """
    encoder = minilm_encoder()
    folders = [Path(root) / name for name in sets]
    return {"rows": [row for one in folders for row in _rows(timing, one, num_questions, reranker, encoder)]}


def _rows(
    timing: Timing, folder: Path, num_questions: int, reranker: str, encoder: TextEncoder
) -> Iterator[dict[str, Any]]:
    asked = pools(DataFolder.open(folder), num_questions)
    found: dict[str, list[dict[str, float]]] = {unit: [] for unit in UNITS}
    for round_number in counted(folder.name, range(timing.rounds + 1)):
        for question, offered in asked:
            for unit in UNITS:
                seconds = _ask(timing, question, offered, unit, reranker, encoder)
                if round_number:  # the first round compiles and loads
                    found[unit].append(seconds)
    medians = {unit: {key: 1e3 * median(one[key] for one in found[unit]) for key in ("cold", "warm")} for unit in UNITS}
    for unit in UNITS:
        yield {
            "setting": f"{folder.name}, {unit}",
            **{f"{key}_ms": medians[unit][key] for key in ("cold", "warm")},
            **{f"{key}_ratio": medians[unit][key] / medians[UNITS[0]][key] for key in ("cold", "warm")},
            **{step: 1e3 * fmean(one[step] for one in found[unit]) for step in STEPS},
            **{f"{policy}_ms": 1e3 * median(one[policy] for one in found[unit]) for policy in POLICIES},
        }


def pools(folder: DataFolder, num_questions: int) -> list[tuple[str, list[Candidate]]]:
    """Return questions with their pools, as many as there are up to `num_questions`."""
    queries = [query for query in folder.queries if query.gold][: 50 * num_questions : 50]
    queries = (queries + [query for query in folder.queries if query not in queries])[:num_questions]
    articles: dict[str, list[str]] = {}
    for query in folder.queries:
        articles.setdefault(str(query.extra.get("article", query.id)), []).extend(query.gold)

    def own(query: Query) -> list[str]:
        return [*(query.candidates or query.gold), *articles[str(query.extra.get("article", query.id))]]

    asked = []
    for query in queries:
        others = (name for other in folder.queries if other.id != query.id for name in own(other))
        names = dict.fromkeys([*own(query), *others])
        chosen = [name for name in names if name in folder.documents][:POOL]
        asked.append((query.question, [Candidate(passage(folder.documents[name])) for name in chosen]))
    return asked


def _ask(
    timing: Timing, question: str, offered: Sequence[Candidate], unit: str, reranker: str, encoder: TextEncoder
) -> dict[str, float]:
    """Return the seconds of a cold and a warm question, of the parts of the first, and of policies by themselves."""
    watch = Watch(timing.now)
    ranker = EvidenceReranker(reranker, encoder=encoder)
    selector = Corag(reranker=ranker, unit=unit)
    select = watch.timed("cold", selector.select)
    choose = selector._choose_many
    problem, scorer = selector.problem, ranker.scorer
    forget()
    with (
        _watching(watch, encoder),
        patch.object(selector, "problem", watch.timed("units", problem)),
        patch.object(ranker, "scorer", watch.timed("values", scorer)),
        patch.object(selector, "_choose_many", watch.timed("choose", choose)),
    ):
        select(question, offered, BUDGET_TOKENS)
    seconds = dict(watch.seconds)
    seconds["read"] = seconds["values"] - sum(seconds[step] for step in ("encode", "signals", "hypotheses"))
    seconds["search"] = seconds["choose"] - seconds["values"]
    seconds["rest"] = seconds["cold"] - seconds["units"] - seconds["choose"]
    watch.timed("warm", selector.select)(question, offered, BUDGET_TOKENS)
    seconds["warm"] = watch.seconds["warm"]
    given = selector.problem(question, offered, BUDGET_TOKENS)
    return seconds | {policy: _policy_seconds(timing, given, ranker, policy) for policy in POLICIES}


def _policy_seconds(timing: Timing, problem: Any, ranker: EvidenceReranker, policy: search.Policy) -> float:
    """Return the seconds of a search by itself: its values are known."""
    config = Corag(reranker=ranker, policy=policy).config
    known = problem.scorer(ranker)
    search.search(problem.costs, known, problem.capacity, config)
    watch = Watch(timing.now)
    watch.timed("all", search.search)(problem.costs, watch.timed("values", known), problem.capacity, config)
    return watch.seconds["all"] - watch.seconds["values"]


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of the parts of a cold question's time."""
    rows = measured["rows"]
    figure = new_figure(7.2, 0.5 * len(rows) + 1.4)
    panel = figure.subplots()
    stacked_bars(panel, [row["setting"] for row in rows], {step: [row[step] for row in rows] for step in STEPS})
    panel.set_xlabel("ms a question, cold")
    return finished(figure, grid=False)
