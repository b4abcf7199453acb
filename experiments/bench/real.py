"""The search on real questions: how much of the best value it reaches with how few orders sent to the reranker.

A question counts when all its orders can be scored, so that the best value is known. Values go into a file, because
scoring everything is what takes the time: about 200 orders for a question of HotpotQA, 2,000 for one of 2Wiki.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import search
from corag.models.embedders import MiniLMEmbedder
from corag.progress import counted
from corag.registry import reranker as make_reranker
from corag.registry import tokens as make_tokens
from corag.rerankers.cached import CachedReranker
from corag.selectors.corag.selector import DEFAULT_SURROGATE, Corag
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import Upper
from corag.text.data import DataFolder, Query
from corag.text.documents import passage
from corag.types import Candidate, Reranker
from experiments.bench.harness import Timing, finished, lines
from experiments.data.pools import Pool
from experiments.run.drawing import new_figure

BUDGET_TOKENS = 256
MAX_LENGTH = 5
CAPS = (5, 7, 10, 16, 24, 48, 96)
SHARE = 0.05
"""The most of a question's feasible orders that one setting has scored."""
PREFILTERS = (0.25, 0.5, 1.0)
OTHERS: tuple[search.Policy, ...] = ("best-first", "beam", "greedy", "public-code", "random")
ROUNDS = 1
TITLE = (
    f"value relative to the best of up to {MAX_LENGTH} chunks, own candidates, {BUDGET_TOKENS} tokens; orders scored, "
    "their share of a question's feasible ones, and of all questions' together"
)
COLUMNS = {
    "set": "questions", "setting": "setting", "orders": "scored", "share": "share", "total_share": "of all",
    "value": "value", "worst": "worst",
}  # fmt: skip


@dataclass(frozen=True)
class RealSet:
    """The first questions of a split, after `skip`, that have at most `max_orders` feasible orders."""

    name: str
    folder: str
    split: str
    skip: int
    num_questions: int
    max_orders: int


SETS = (
    RealSet("HotpotQA dev", "hotpotqa", "dev", 0, 60, 600),
    # Its first 250 questions are for choosing surrogates.
    RealSet("2WikiMultihopQA", "2wikimultihopqa", "train", 250, 10, 6000),
)


def bench_real(
    timing: Timing,
    root: str | Path = "",
    *,
    values: str | Path | None = None,
    sets: Sequence[RealSet] = SETS,
    caps: Sequence[int] = CAPS,
    reranker: str | Reranker = "minilm-cosine",
    surrogate: str | Reranker = DEFAULT_SURROGATE,
) -> dict[str, list[dict[str, Any]]]:
    """Compare searchers, and searches with and without a surrogate, on questions' own candidates at 256 tokens.

    `root` is the folder of data folders; by default each is looked up by its name. The file `values` keeps the
    reranker's values for the next time; see `corag.rerankers.cached`. Every searcher runs once for each of `caps`, the
    most orders scored. `timing` is not used.

    Returns:
        `rows`: for each set and setting the means over questions of `value` (relative to the best of up to five
        chunks), `orders` (sent to the reranker), `share` (of the feasible ones), and `total_share`, where questions
        count by their number of orders. `curves`: for each set and kind of search its lines, as lists.
    """
    judge = make_reranker(reranker)
    ranker = make_reranker(surrogate)
    if values is not None:
        judge = cast(Reranker, CachedReranker(judge, values))
    settings = _settings(judge, ranker, caps)
    rows = [row for some in sets for row in _rows(some, Path(root), judge, settings)]
    kinds = dict.fromkeys((row["set"], row["kind"]) for row in rows)
    curves = [_curve(name, kind, [row for row in rows if (row["set"], row["kind"]) == (name, kind)])
              for name, kind in kinds]  # fmt: skip
    return {"rows": rows, "curves": curves}


def _settings(judge: Reranker, ranker: Reranker, caps: Sequence[int]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the settings of `Corag` by kind and name; `max_scored` below 1 is a share of the feasible orders."""
    base = {"reranker": judge, "iterations": 1000}
    first = {"prefilter": 0.5, "surrogate": ranker}
    kinds: dict[str, dict[str, Any]] = {
        "bayesian": {**base, "policy": "bayesian"},
        "bayesian, surrogate first": {**base, "policy": "bayesian", **first},
        **{policy: {**base, "policy": policy} for policy in ("paper", *OTHERS)},
    }
    by_cap = {(kind, f"{kind}, at most {cap}"): {**kinds[kind], "max_scored": cap} for kind in kinds for cap in caps}
    by_share = {
        (f"{kind}, {SHARE:.0%} at most", f"{kind}, at most {SHARE:.0%}"): {**kinds[kind], "max_scored": SHARE}
        for kind in ("bayesian", "bayesian, surrogate first")
    }
    tree = {"reranker": judge, "policy": "paper", "surrogate": ranker}
    trees = {
        ("paper, 10 iterations", f"paper, 10 iterations, prefilter {share}"): {**tree, "prefilter": share}
        for share in PREFILTERS
    }
    return by_cap | by_share | trees


def _rows(
    some: RealSet, root: Path, judge: Reranker, settings: Mapping[tuple[str, str], Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    bound = Upper(reranker=judge, max_length=MAX_LENGTH)
    found: dict[tuple[str, str], list[tuple[float, int, int]]] = {key: [] for key in settings}
    folder = DataFolder.open(root / some.folder)
    counting = list(_counting(some, folder))
    pool = Pool.of_candidates(folder, [query for query, _ in counting], MiniLMEmbedder())
    for query, num_orders in counted(some.folder, counting):
        candidates = pool.candidates(query)
        best = bound.select(query.question, candidates, BUDGET_TOKENS).value
        for key, given in settings.items():
            most = given.get("max_scored")
            most = max(1, int(most * num_orders)) if isinstance(most, float) else most
            selection = Corag(**{**given, "max_scored": most}).select(query.question, candidates, BUDGET_TOKENS)
            found[key].append((selection.value / best, selection.trace.orders_computed, num_orders))
    for (kind, name), triples in found.items():
        shares, scored, feasible = zip(*triples, strict=True)
        yield {
            "set": some.name,
            "kind": kind,
            "setting": name,
            "questions": len(triples),
            "feasible": fmean(feasible),
            "value": fmean(shares),
            "worst": min(shares),
            "orders": fmean(scored),
            "share": fmean(num / all_orders for _, num, all_orders in triples),
            "total_share": sum(scored) / sum(feasible),
        }


def _counting(some: RealSet, folder: DataFolder) -> Iterator[tuple[Query, int]]:
    """Yield the questions that count, each with its number of feasible orders."""
    tokens = make_tokens()
    left = some.num_questions
    for query in folder.split(some.split)[some.skip :]:
        candidates = [Candidate(passage(folder.documents[name])) for name in query.candidates or ()]
        problem = SelectionProblem(query.question, candidates, tokens, BUDGET_TOKENS)
        num_orders = search.count_orders(problem.costs, problem.capacity, MAX_LENGTH, limit=some.max_orders)
        if left and 0 < num_orders <= some.max_orders:
            left -= 1
            yield query, num_orders


def _curve(name: str, kind: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"set": name, "kind": kind} | {figure: [row[figure] for row in rows] for figure in ("share", "value")}


def plot(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return an SVG of relative value against the share of orders scored, a panel for each set of questions."""
    curves = measured["curves"]
    names = list(dict.fromkeys(curve["set"] for curve in curves))
    figure = new_figure(5.2 * len(names), 4.2)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        shown = [curve for curve in curves if curve["set"] == name and len(curve["share"]) > len(PREFILTERS)]
        lines(panel, {curve["kind"]: (curve["share"], curve["value"]) for curve in shown})
        panel.axhline(0.99, color="grey", linewidth=0.8, linestyle=":")
        panel.axvline(SHARE, color="grey", linewidth=0.8, linestyle=":")
        panel.set_xscale("log")
        panel.set_title(name, fontsize=10)
        panel.set(xlabel="share of the feasible orders that was scored", ylabel="value, relative to the best")
    return finished(figure)
