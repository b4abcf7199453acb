"""Scoring, measured: against the bare encoder, and against scoring joined texts with FlagEmbedding, factor by factor.

Self-contained: a cross-encoder of real size (all-MiniLM-L6-v2 with a seeded head of one label) and chunks of the
demo corpus. Its values mean nothing; what they cost is what a trained model of that size costs.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import numpy as np

import corag
from corag.errors import InputError, MissingExtraError
from corag.models.engine.backends import Backend, Precision, batch_tokens, load_forward
from corag.models.engine.batches import Int64, pad
from corag.models.engine.checkpoint import Checkpoint
from corag.models.engine.engine import Engine
from corag.models.engine.pairs import PairTokenizer, Question
from corag.models.engine.source import Forward, Source, quiet
from corag.models.minilm import model_folder
from corag.optional import require
from corag.rerankers.scorers import CachedScorer, JoinedTextScorer, score_together
from corag.selectors.corag.selector import DEFAULT_SURROGATE, Corag
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.documents import SEPARATOR, Document
from corag.text.tokens import token_counter
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, Scorer, Selection
from experiments import demo
from experiments.bench.search import Clock, interleaved_medians
from experiments.run.report import COLORS, new_figure, to_svg

CHUNK_TOKENS, NUM_CANDIDATES, BUDGET_TOKENS = 100, 10, 256
ITERATIONS = 4
SWEEP = tuple(itertools.product((0.1, 0.6), (0.0, 0.3)))
"""Exploration and cost weight that `corag label` tries by default for each reranker."""
PEER = "FlagReranker on joined texts, torch fp32"
TITLE = (
    f"scoring, all-MiniLM-L6-v2 as cross-encoder, {NUM_CANDIDATES} candidates of up to {CHUNK_TOKENS} tokens, budget "
    f"{BUDGET_TOKENS}"
)
COLUMNS = {
    "setting": "setting",
    "seconds": "seconds",
    "tokens_per_s": "tokens/s",
    "of_bare": "of bare",
    "speedup": "times as fast",
    "same": "same selections",
    "parity": "rank corr.",
}

Asked = tuple[str, list[Candidate]]
"""A question with its candidates."""
Rows = tuple[list[Int64], list[Int64]]
"""Ids and token types of pairs."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        questions: Questions that are searched with every setting in every way.
        queries: Questions that `select_many` is given at once.
        model: Folder of a cross-encoder; by default one of MiniLM's size is made.
    """

    questions: int = 2
    queries: int = 40
    model: Path | None = None


@dataclass(frozen=True)
class Timing:
    """How settings are timed: interleaved, by their medians.

    Attributes:
        rounds: Runs of each setting.
        clock: See `bench_search.CLOCKS`.
    """

    rounds: int
    clock: Clock = "wall"

    def medians(self, settings: Mapping[str, Any], run: Callable[[Any], object]) -> dict[str, float]:
        """Return the median seconds of each setting."""
        return interleaved_medians(settings, run, self.rounds, self.clock)


@dataclass(frozen=True)
class Way:
    """A way to score what the same searches ask for; by default texts are joined for each expansion and run at once.

    Attributes:
        from_ids: Pairs are put together from token ids; else every joined text is tokenised.
        by_length: Batches hold rows of like lengths; else a call of the search is one batch.
        backend: What runs the model.
        precision: Of its products.
        memo: Values are remembered over the settings of a sweep.
        shared: The questions of a sweep are searched in lock-step and share batches.
        prefilter: Share of an expansion that is scored, a surrogate having ranked it; below 1 selections may differ.
    """

    from_ids: bool = False
    by_length: bool = False
    backend: Backend = "torch"
    precision: Precision = "fp32"
    memo: bool = False
    shared: bool = False
    prefilter: float = 1.0


def bench_scoring(timing: Timing, sizes: Sizes) -> dict[str, list[dict[str, Any]]]:
    """Measure the scoring engine.

    Args:
        timing: How settings are timed.
        sizes: How much is measured.

    Returns:
        `rows`: a line of the table each. `curve`: the lines of the factors switched on one after the other.
    """
    asked = list(itertools.islice(questions(), max(sizes.questions, sizes.queries)))
    if len(asked) < max(sizes.questions, sizes.queries):
        raise InputError(f"the demo has {len(asked)} questions; ask for no more of them")
    with tempfile.TemporaryDirectory() as scratch:
        folder = sizes.model or make_model(Path(scratch))
        lab = Lab(folder)
        few = asked[: sizes.questions]
        steps = step_rows(lab, few, timing)
        rows = engine_rows(lab, few, timing) + steps + many_rows(lab, asked[: sizes.queries], timing)
    return {"rows": rows, "curve": [row for row in steps if not row["setting"].endswith(ALONE)]}


# --- What is scored ---


def questions() -> Iterator[Asked]:
    """Yield the demo's questions with candidates: the topic of the evidence from its start, then those that follow."""
    content = demo.load()
    tokens = token_counter()
    documents = [Document(row["id"], row["text"], row["title"]) for row in content.documents]
    place = {document.id: index for index, document in enumerate(documents)}
    chunks: dict[str, list[Chunk]] = {}
    for query in content.queries:
        found: list[Chunk] = []
        for document in documents[place[query["topics"][0]] :] + documents:
            if document.id not in chunks:
                chunks[document.id] = chunk_document(document, tokens, ChunkConfig(CHUNK_TOKENS))
            found += chunks[document.id]
            if len(found) >= NUM_CANDIDATES:
                break
        yield query["question"], [Candidate(chunk, 1 / rank) for rank, chunk in enumerate(found[:NUM_CANDIDATES], 1)]


def make_model(folder: Path) -> Path:
    """Save MiniLM with a seeded head of one label, and its tokenizer, as a hub would have them."""
    torch, transformers = require("torch", "models"), require("transformers", "models")
    source = model_folder()
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        settings = {"num_labels": 1, "local_files_only": True}
        transformers.BertForSequenceClassification.from_pretrained(source, **settings).save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copy(source / file, folder / file)
    return folder


class Lab:
    """A checkpoint, its forward functions, each loaded once, and rerankers made of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = Checkpoint(folder)
        window = self.checkpoint.window
        assert window is not None
        self.tokenizer = PairTokenizer(self.checkpoint.tokenizer.backend_tokenizer, window)
        self.pad_token = self.checkpoint.tokenizer.pad_token_id
        self._forwards: dict[tuple[Backend, Precision, str], Forward] = {}
        self._engines: dict[tuple[Backend, Precision, str], Reranker] = {}

    def forward(self, backend: Backend, precision: Precision, device: str = "cpu") -> Forward:
        """Return the bare model."""
        key = (backend, precision, device)
        if key not in self._forwards:
            checkpoint = self.checkpoint
            source = Source("cross-encoder", checkpoint.sha256, checkpoint.inputs, checkpoint.load)
            self._forwards[key] = load_forward(source, backend, precision, device)
        return self._forwards[key]

    def runs(self) -> list[tuple[Backend, Precision, str]]:
        """Return the backends, precisions and devices that this machine has."""
        torch = require("torch", "models")
        places: list[tuple[Backend, str]] = [("torch", "cpu"), ("openvino", "cpu")]
        if torch.cuda.is_available():
            places.append(("torch", "cuda"))
        keys = [(backend, precision, device) for backend, device in places for precision in get_args(Precision)]
        return [key for key in keys if self._is_there(*key)]

    def _is_there(self, backend: Backend, precision: Precision, device: str) -> bool:
        try:
            self.forward(backend, precision, device)
        except (InputError, MissingExtraError):
            return False
        return True

    def reranker(self, way: Way) -> Reranker:
        """Return what scores in a way, without its memory."""
        if not (way.from_ids and way.by_length):
            return Plain(self, way)
        key = (way.backend, way.precision, "cpu")
        if key not in self._engines:
            settings = {"model": self.folder, "backend": way.backend, "precision": way.precision}
            self._engines[key] = corag.reranker("cross-encoder", **settings)
        return self._engines[key]


# --- Against the bare encoder ---


def engine_rows(lab: Lab, asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Compare the engine's tokens per second with those of the bare encoder on batches without padding."""
    expansions = [of_question for question, candidates in asked for of_question in _expansions(question, candidates)]
    rows_of = [_pairs(lab, question, candidates, orders) for question, candidates, orders in expansions]
    everything = [[row for part in parts for row in part] for parts in zip(*rows_of, strict=True)]
    num_tokens = sum(len(row) for row in everything[0])
    bounds = np.cumsum([len(list(group)) for _, group in itertools.groupby(expansions, key=lambda e: e[0])])
    of_question = np.searchsorted(bounds, np.repeat(np.arange(len(rows_of)), [len(ids) for ids, _ in rows_of]), "right")

    rows, exact = [], None
    for backend, precision, device in lab.runs():
        forward, limit = lab.forward(backend, precision, device), batch_tokens(device)
        engine = Engine(forward, lab.pad_token, limit)
        # Without the inputs that a model does not take.
        perfect = [
            {name: values for name, values in batch.items() if name in lab.checkpoint.inputs}
            for batch in perfect_batches([len(row) for row in everything[0]], limit)
        ]
        settings = {
            "bare": partial(_run_bare, forward, perfect),
            "together": partial(_run_engine, lab, engine, [everything]),
            "each": partial(_run_engine, lab, engine, rows_of),
        }
        seconds = timing.medians(settings, lambda run: run())
        values = _run_engine(lab, engine, [everything])
        exact = values if exact is None else exact
        parity = rank_parity(values, exact, of_question)
        name = f"{backend} {precision}" + (f" {device}" if device != "cpu" else "")
        bare = sum(batch["input_ids"].size for batch in perfect) / seconds["bare"]
        rows.append(
            {"setting": f"{name}: bare encoder, no padding", "seconds": seconds["bare"], "tokens_per_s": round(bare)}
        )
        for key, words in (("together", "engine, all orders at once"), ("each", "engine, an expansion at a time")):
            speed = num_tokens / seconds[key]
            line = {"seconds": seconds[key], "tokens_per_s": round(speed), "of_bare": speed / bare}
            rows.append({"setting": f"{name}: {words}", **line, **(parity if key == "together" else {})})
    return rows


def perfect_batches(lengths: Sequence[int], max_batch_tokens: int) -> list[dict[str, Int64]]:
    """Return inputs with about the tokens of the given rows, in full batches of rows of one length.

    Rows go by length into batches as large as allowed, and each takes its batch's mean length, so that nothing is
    padded: what no packing of the real rows can beat.
    """
    rng = np.random.default_rng(0)
    batches: list[dict[str, Int64]] = []
    waiting = sorted(lengths, reverse=True)
    while waiting:
        size = max(1, max_batch_tokens // waiting[0])
        batch, waiting = waiting[:size], waiting[size:]
        shape = (len(batch), round(fmean(batch)))
        ids = rng.integers(1000, 2000, shape)
        batches.append({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    return batches


def rank_parity(values: FloatArray, exact: FloatArray, group: Int64) -> dict[str, float | str]:
    """Return Spearman's rank correlation with exact values: the mean over groups, and over all values.

    Args:
        values: Values, `[n]`.
        exact: What they should be, `[n]`.
        group: The question of each, `[n]`.
    """
    inside = [_spearman(values[group == one], exact[group == one]) for one in np.unique(group)]
    pooled = _spearman(values, exact)
    return {
        "rank_correlation": fmean(inside),
        "rank_correlation_pooled": pooled,
        "parity": f"{fmean(inside):.4f}, pooled {pooled:.4f}",
    }


def _spearman(one: FloatArray, other: FloatArray) -> float:
    return float(np.corrcoef(_mean_ranks(one), _mean_ranks(other))[0, 1])


def _mean_ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value, equal ones sharing the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: FloatArray = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def _expansions(question: str, candidates: list[Candidate]) -> Iterator[tuple[str, list[Candidate], list[Order]]]:
    """Yield what a search asks for in turn: every candidate, then every one after the first, and so on."""
    costs = token_counter().count([candidate.chunk.text for candidate in candidates])
    prefix: Order = ()
    for candidate in range(len(candidates)):
        rest = [index for index in range(len(candidates)) if index not in prefix]
        orders = [(*prefix, i) for i in rest if costs[[*prefix, i]].sum() <= BUDGET_TOKENS]
        if not orders:
            return
        yield question, candidates, orders
        prefix = (*prefix, candidate)


def _pairs(
    lab: Lab, question: str, candidates: list[Candidate], orders: list[Order]
) -> tuple[list[Int64], list[Int64]]:
    texts = lab.tokenizer.tokenize([candidate.chunk.text for candidate in candidates])
    return lab.tokenizer.question(question).pairs([np.concatenate([texts[i] for i in order]) for order in orders])


def _run_bare(forward: Forward, batches: Sequence[Mapping[str, Int64]]) -> None:
    for batch in batches:
        forward(batch)


def _run_engine(lab: Lab, engine: Engine, requests: Sequence[Sequence[list[Int64]]]) -> FloatArray:
    """Return the logits of all rows, the requests run one after the other."""
    found = []
    for ids, types in requests:
        logits = np.zeros(len(ids))
        for batch in engine.run(ids, types if "token_type_ids" in lab.checkpoint.inputs else None):
            logits[batch.rows] = batch.output[:, 0]
        found.append(logits)
    return np.concatenate(found)


# --- Against joined texts, factor by factor ---

ALONE = " alone"


def factors(lab: Lab) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the factors in the order in which they are switched on, with what each changes in a `Way`."""
    runs = lab.runs()
    yield "put together from token ids", {"from_ids": True}
    yield "batches by length", {"by_length": True}
    if ("openvino", "fp32", "cpu") in runs:
        yield "backend: OpenVINO", {"backend": "openvino"}
    if ("openvino", "bf16", "cpu") in runs or ("openvino", "fp32", "cpu") not in runs:
        yield "precision: bf16", {"precision": "bf16"}
    yield "values remembered over the sweep", {"memo": True}
    yield "batches shared by questions", {"shared": True}
    yield "surrogate first, half of an expansion scored", {"prefilter": 0.5}


def step_rows(lab: Lab, asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Time a sweep of settings over questions: the peer's way, then each factor on top of the last, then each alone."""
    plain = Way()
    chain = {"joined texts, each batch once, torch fp32": plain}
    alone = {}
    for name, change in factors(lab):
        chain[f"+ {name}"] = replace([*chain.values()][-1], **change)
        alone[f"{name},{ALONE}"] = replace(plain, **change)
    sweeps = {name: partial(sweep, lab.reranker(way), way, asked) for name, way in (chain | alone).items()}
    if peer := flag_reranker(lab.folder):
        sweeps = {PEER: partial(sweep, peer, plain, asked), **sweeps}
    found: dict[str, list[Selection]] = {}

    def run(name: str) -> None:
        found[name] = sweeps[name]()

    seconds = timing.medians({name: name for name in sweeps}, run)
    base, *_ = sweeps
    rows = []
    for name in sweeps:
        reference = next(iter(chain)) if name in alone else base
        pairs = zip(found[name], found[base], strict=True)
        rows.append(
            {
                "setting": name,
                "seconds": seconds[name],
                "speedup": seconds[reference] / seconds[name],
                "same": f"{sum(one.ids == other.ids for one, other in pairs)} of {len(found[base])}",
                "of": reference,
            }
        )
    return rows


def sweep(reranker: Reranker, way: Way, asked: Sequence[Asked]) -> list[Selection]:
    """Search every question with every setting, and return the selections, settings in turn."""
    used = Remembering(reranker) if way.memo else reranker
    surrogate = corag.reranker(DEFAULT_SURROGATE) if way.prefilter < 1 else None
    queries, pools = [question for question, _ in asked], [candidates for _, candidates in asked]
    found: list[Selection] = []
    for exploration, cost_weight in SWEEP:
        selector = Corag(
            reranker=used,
            policy="paper",
            iterations=ITERATIONS,
            prefilter=way.prefilter,
            surrogate=surrogate,
            exploration=exploration,
            cost_weight=cost_weight,
        )
        found += (
            selector.select_many(queries, pools, BUDGET_TOKENS)
            if way.shared
            else [selector.select(query, pool, BUDGET_TOKENS) for query, pool in asked]
        )
    return found


class FlagEmbeddingReranker:
    """FlagEmbedding's `FlagReranker`, asked for the joined texts of one expansion at a time.

    Its own defaults: 128 pairs a batch, 512 tokens a pair. It runs the first batch twice, once to see whether it fits
    the memory.
    """

    name = "FlagReranker"

    def __init__(self, folder: Path) -> None:
        flag = require("FlagEmbedding", "bge")
        with quiet():
            self._model = flag.FlagReranker(str(folder), use_fp16=False, devices="cpu", batch_size=128, max_length=512)

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return np.atleast_1d(np.array(self._model.compute_score([(query, text) for text in texts], normalize=True)))

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> Scorer:
        """Return a scoring function that joins the texts of each order."""
        return JoinedTextScorer(self, query, chunks)


def flag_reranker(folder: Path) -> Reranker | None:
    """Return the peer's reranker, or None where FlagEmbedding is not installed."""
    try:
        return FlagEmbeddingReranker(folder)
    except MissingExtraError:
        return None


class Plain:
    """A cross-encoder without some of what `corag.reranker("cross-encoder")` does; its values are the same."""

    name = "plain"

    def __init__(self, lab: Lab, way: Way) -> None:
        self.way = way
        self.tokenizer = lab.tokenizer
        self._types = "token_type_ids" in lab.checkpoint.inputs
        self._forward = lab.forward(way.backend, way.precision)
        self._engine = Engine(self._forward, lab.pad_token, batch_tokens("cpu"))

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return self.values([(self.tokenizer.question(query), self.tokenizer.tokenize(texts))])

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> PlainScorer:
        """Return a scoring function."""
        return PlainScorer(self, query, [chunk.text for chunk in chunks])

    def values(self, requests: Sequence[tuple[Question, Sequence[Int64]]]) -> FloatArray:
        """Return the values of all texts of all questions."""
        pairs = [question.pairs(texts) for question, texts in requests]
        ids, types = ([row for pair in pairs for row in pair[part]] for part in (0, 1))
        logits = np.zeros(len(ids))
        if self.way.by_length:
            for batch in self._engine.run(ids, types if self._types else None):
                logits[batch.rows] = batch.output[:, 0]
        else:
            tokens, mask = pad(ids, self._engine.pad_token)
            inputs = {"input_ids": tokens, "attention_mask": mask}
            logits[:] = self._forward(inputs | ({"token_type_ids": pad(types, 0)[0]} if self._types else {}))[:, 0]
        return 0.5 + 0.5 * np.tanh(0.5 * logits)


class PlainScorer:
    """Scores orders, tokenising them anew or not as its reranker's way says.

    Attributes:
        reranker: Scorers of one reranker share batches.
    """

    order_matters = True
    num_truncated = 0

    def __init__(self, reranker: Plain, query: str, texts: Sequence[str]) -> None:
        self.reranker = reranker
        self._query = query
        self._texts = texts
        self._question = reranker.tokenizer.question(query)
        self._ids = reranker.tokenizer.tokenize(texts) if reranker.way.from_ids else []

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self.score_jointly([(self, orders)])[0]

    @staticmethod
    def score_jointly(requests: Sequence[tuple[PlainScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run together."""
        asked = [scorer._request(orders) for scorer, orders in requests]
        values = requests[0][0].reranker.values(asked)
        return np.split(values, np.cumsum([len(texts) for _, texts in asked])[:-1])

    def _request(self, orders: Sequence[Order]) -> tuple[Question, list[Int64]]:
        if self._ids:
            return self._question, [np.concatenate([self._ids[index] for index in order]) for order in orders]
        tokenizer = self.reranker.tokenizer
        texts = [SEPARATOR.join(self._texts[index] for index in order) for order in orders]
        return tokenizer.question(self._query), tokenizer.tokenize(texts)


class Remembering:
    """A reranker that keeps a question's values for the next search of it."""

    def __init__(self, reranker: Reranker) -> None:
        self.name = reranker.name
        self._reranker = reranker
        self._scorers: dict[str, RememberingScorer] = {}

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text, `[len(texts)]`."""
        return self._reranker.score(query, texts)

    def scorer(self, query: str, chunks: Sequence[Chunk]) -> RememberingScorer:
        """Return the scoring function of a question, always the same one."""
        if query not in self._scorers:
            memo = CachedScorer(self._reranker.scorer(query, chunks), self.name, [chunk.id for chunk in chunks])
            self._scorers[query] = RememberingScorer(self, memo)
        return self._scorers[query]


class RememberingScorer:
    """Scores only orders that no search of the question has asked for yet.

    Attributes:
        reranker: Scorers of one reranker share batches.
    """

    order_matters = True
    num_truncated = 0

    def __init__(self, reranker: Remembering, memo: CachedScorer) -> None:
        self.reranker = reranker
        self._memo = memo

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        return self._memo(orders)

    @staticmethod
    def score_jointly(requests: Sequence[tuple[RememberingScorer, Sequence[Order]]]) -> list[FloatArray]:
        """Return the values of each scorer's orders, run in shared batches where its reranker can."""
        return score_together([(scorer._memo, orders) for scorer, orders in requests])


# --- Many questions at once ---


def many_rows(lab: Lab, asked: Sequence[Asked], timing: Timing) -> list[dict[str, Any]]:
    """Time `select_many` against selecting for one question after the other, at its fastest backend."""
    runs = lab.runs()
    backend, precision, _ = next(
        (key for key in (("openvino", "bf16", "cpu"), ("openvino", "fp32", "cpu")) if key in runs),
        ("torch", "fp32", "cpu"),
    )
    queries, pools = [question for question, _ in asked], [candidates for _, candidates in asked]
    ways = {"cpu": (backend, precision), "cuda": ("torch", "bf16")}
    rows: list[dict[str, Any]] = []
    for device in dict.fromkeys(device for _, _, device in runs):
        on, precision = ways[device]
        settings = {"model": lab.folder, "backend": on, "precision": precision, "device": device}
        reranker = corag.reranker("cross-encoder", **settings)
        selector = Corag(reranker=reranker, max_scored=NUM_CANDIDATES)
        found: dict[str, list[Selection]] = {}
        one_by_one = f"{on} {precision} {device}: {len(asked)} questions one by one"
        at_once = f"{on} {precision} {device}: {len(asked)} questions, select_many"

        def run(name: str, *, shared: str = at_once, with_: Any = selector, found: Any = found) -> None:
            found[name] = (
                with_.select_many(queries, pools, BUDGET_TOKENS)
                if name == shared
                else [with_.select(query, pool, BUDGET_TOKENS) for query, pool in asked]
            )

        seconds = timing.medians({name: name for name in (one_by_one, at_once)}, run)
        same = sum(one.ids == other.ids for one, other in zip(found[one_by_one], found[at_once], strict=True))
        rows += [
            {
                "setting": name,
                "seconds": seconds[name],
                "speedup": seconds[one_by_one] / seconds[name],
                "same": f"{same} of {len(asked)}",
            }
            for name in (one_by_one, at_once)
        ]
    return rows


def speed_plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG of how fast a sweep is as factors are switched on, a bar for each."""
    figure = new_figure(7.2, 0.42 * len(rows) + 1.0)
    panel = figure.subplots()
    names, times = [row["setting"] for row in rows], [row["speedup"] for row in rows]
    bars = panel.barh(names, times, color=COLORS[0], height=0.62)
    panel.bar_label(bars, [f"{value:.1f}" for value in times], padding=3, fontsize=9)
    panel.invert_yaxis()
    panel.set_xlabel("times as fast as the first, equal searches")
    panel.spines[["top", "right"]].set_visible(False)
    panel.margins(x=0.1)
    figure.tight_layout()
    return to_svg(figure)
