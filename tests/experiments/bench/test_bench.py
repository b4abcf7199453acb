"""Benchmarks: each runs at tiny sizes, its table and its files agree, and its figures follow from what was timed."""

import itertools
import json
from functools import partial
from math import log

import numpy as np
import pytest

import corag
from corag import Candidate, Chunk
from corag.errors import CoragError, DataError, InputError
from corag.models.engine.replicas import Replicas
from corag.models.minilm import minilm_encoder
from corag.text.data import Query
from experiments.bench import (
    agent,
    breakdown,
    growth,
    latency,
    orders,
    real,
    scoring,
    search,
    selectors,
    throughput,
    units,
)
from experiments.bench.harness import Timing, Watch
from experiments.bench.run import BenchConfig, bench
from tests.corag.worlds import HashReranker
from tests.experiments.worlds import QUERIES, write_folder

FEW = [query | {"candidates": query["candidates"][:3]} for query in QUERIES]


class StoredReranker(HashReranker):
    identity = "hash 0"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Settings of a run of each part at tiny sizes."""
    write_folder(tmp_path / "small", queries=FEW)
    some = [real.RealSet("small", "small", "dev", 1, 2, 20)]
    tiny_real = {"sets": some, "caps": (3, 5, 8, 16), "reranker": StoredReranker(), "surrogate": HashReranker(1)}
    for module, name, value in (
        (search, "TREE_ITERATIONS", {"1k": 21}),
        (search, "problems", partial(search.problems, sizes=(4, 5), per_size=2)),
        (orders, "SIZES", (3, 6)),
        (orders, "MAX_SCORED", 12),
        (agent, "REPEATS", 1),
        (agent, "bench_agent", partial(agent.bench_agent, batches=(1, 3))),
        (selectors, "QUERIES", 20),
        (selectors, "CAR_CANDIDATES", 8),
        (selectors, "bench_selectors", partial(selectors.bench_selectors, raptor_chunks=(100,))),
        (real, "bench_real", partial(real.bench_real, **tiny_real)),
        (units, "bench_units", partial(units.bench_units, sets=["small"], num_questions=1)),
    ):
        monkeypatch.setattr(module, name, value)
    return {
        "orders": {"rerankers": "bm25,minilm-factoid"},
        "real": {"data": str(tmp_path)},
        "units": {"data": str(tmp_path)},
        "breakdown": {
            "data": str(tmp_path / "small"), "chunk_tokens": (32, 64), "rerankers": "bm25,minilm-cosine",
            "methods": "top-k,naive,corag(max_scored=3,reranker=bm25)", "questions": 1, "reader": "extractive",
        },
        "growth": {"data": str(tmp_path / "small"), "sizes": (1200,), "questions": 1, "methods": "top-k,naive"},
        "throughput": {"data": str(tmp_path / "small"), "questions": 3, "methods": "top-k,naive"},
        "latency": {"data": str(tmp_path / "small"), "questions": 2, "methods": "corag,top-k"},
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "part", ["search", "agent", "selectors", "orders", "real", "units", "breakdown", "growth", "latency", "throughput"]
)
def test_a_part_prints_a_table_and_writes_its_figures(part, tiny, tmp_path, capsys):
    result = bench(BenchConfig(part, rounds=1, seeds=1, out=str(tmp_path), **tiny.get(part, {})))
    assert json.loads((tmp_path / f"bench-{part}.json").read_text()) == result
    assert (tmp_path / f"bench-{part}.svg").read_text().startswith("<svg")
    assert (result["part"], result["rounds"]) == (part, 1)
    rows, printed = result["rows"], capsys.readouterr().out
    assert rows and all(row["setting"].split(",")[0] in printed for row in rows)
    assert all(row[unit] > 0 for row in rows for unit in ("ms", "cpu_ms", "us", "per_s", "load_s") if unit in row)
    by_name = {row["setting"]: row for row in rows}
    if part == "search":
        # 50 chunks of 100 tokens at 1024: the root has 50 children, a child 49, and so on down.
        assert 10 * 40 < by_name["10 iterations"]["orders"] <= 10 * 50
        assert by_name["tree of 1k nodes"]["orders"] == pytest.approx(1000, rel=0.2)
        for line in result["curve"]:
            assert line["found"][search.CAPS.index(48)] == by_name[f"{line['policy']}, at most 48 orders"]["found"] <= 4
    if part == "agent":
        three = by_name["predict, 3 at once"]
        assert three["us_per_question"] == pytest.approx(three["us"] / 3)
        assert result["curve"][1] == {"questions": 3, "us": three["us_per_question"]}
    if part == "selectors":
        batch = by_name["adaptive-k, largest-gap, 20 x 1000"]
        assert batch["us_per_query"] == pytest.approx(1e3 * batch["ms"] / 20)
        assert result["curve"][0]["clusters"] > 1
    if part == "orders":
        assert [(row["candidates"], row["setting"], row["policy"]) for row in rows[:-1]] == [
            (size, name, policy)
            for size in (3, 6)
            for name, own in (("bm25", "bayesian"), ("minilm-factoid", "beam"))
            for policy in ("paper", own)
        ]
        assert all(0 < row["orders"] <= 12 and 0 < row["per_s_cold"] <= row["per_s"] for row in rows[:-1])
    if part == "units":
        passages, sentences = rows
        assert (passages["setting"], sentences["setting"]) == ("small, passage", "small, sentence")
        assert passages["cold_ratio"] == passages["warm_ratio"] == 1
        for row in rows:
            # One question, one round: the parts of its time add up to it.
            assert sum(row[step] for step in units.STEPS) == pytest.approx(row["cold_ms"], rel=1e-6)
            assert row["cold_ratio"] == pytest.approx(row["cold_ms"] / passages["cold_ms"])
            assert row["encode"] > 0 and row["hypotheses"] > 0
    if part == "breakdown":
        assert [(row["chunk_tokens"], row["method"], row["reranker"]) for row in rows] == [
            (size, *pair)
            for size in (32, 64)
            for pair in (
                ("top-k", None),
                ("naive", "bm25"),
                ("naive", "minilm-cosine"),
                ("corag(max_scored=3)", "bm25"),
            )
        ]
        for row in rows:
            assert sum(row[step] for step in breakdown.STEPS) == pytest.approx(row["ms"])
            assert sum(row[f"{step}_share"] for step in breakdown.STEPS) == pytest.approx(1)
            assert row["questions"] == 1 and row["median_ms"] == pytest.approx(row["ms"])
            assert (row["rerank"] > 0) == (row["reranker"] is not None)
            assert min(row[step] for step in ("embed", "retrieve", "search", "read")) > 0 <= row["prompt"]
    if part == "growth":
        assert [(row["chunks"], row["method"]) for row in rows] == [(1200, "top-k"), (1200, "naive")]
        assert all(row["recall"] == 1 and row["peak_mb"] > 50 and row["disk_mb"] > 1 for row in rows)
        assert all(row["build_s"] > 0 and row["peak_mb"] > row["index_mb"] > 0 < row["build_mb"] for row in rows)
        assert rows[1]["ratio"] == pytest.approx(rows[1]["ms"] / rows[0]["ms"])
        assert all(0 < row["select_ms"] < row["ms"] for row in rows)
    if part == "throughput":
        plain, naive = rows
        assert "of_bare" not in plain and plain["per_s"] > 0
        assert 0 < naive["of_bare"] == pytest.approx(naive["tokens_per_s"] / naive["bare_per_s"], rel=0.01)
        assert 0 < naive["hit_rate"] < 1 and 0 < naive["cache_mb"] < naive["memory_mb"]
        assert result["curve"][1]["questions"] == [naive["questions"]]
        assert throughput._questions("", 2) == scoring.demo_questions()[:2]
    if part == "latency":
        stages = [row for row in rows if row["setting"].startswith("ask: ")]
        assert [row["setting"].removeprefix("ask: ") for row in stages] == list(latency.ask.STAGES)
        methods = [f"{method}{states}" for method in ("corag", "top-k") for states in ("", latency.first.STORED)]
        assert [row["setting"] for row in rows[:5]] == [*methods, latency.ENCODER]
        assert [row["times"] for row in rows] == [2] * 5 + [1] * (len(stages) + 1)
        assert all(0 < row["p50_ms"] <= row["p95_ms"] for row in rows)
        assert by_name["top-k"]["ratio"] < 1 == by_name[latency.ENCODER]["ratio"]
        assert sum(row["ratio"] for row in stages) == pytest.approx(1)
        assert sum(row["p50_ms"] for row in stages) == pytest.approx(by_name["ask"]["p50_ms"])
    if part == "real":
        assert all(0 < row["worst"] <= row["value"] <= 1 + 1e-6 for row in rows)
        assert all(row["total_share"] == pytest.approx(row["orders"] / row["feasible"]) for row in rows)
        assert by_name["bayesian, at most 5%"]["orders"] == 1  # 5% of 15, but one at least


def test_made_chunks_are_parts_of_real_ones_with_vectors_between_theirs():
    real = [corag.Chunk(f"r{n}", " ".join(f"w{n}{at}" for at in range(9))) for n in range(4)]
    made = growth.MadeChunks(real, np.eye(4, 8, dtype=np.float32))
    numbers = np.array([1999, 0, 7, 1000])
    vectors = made.vectors(numbers)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    chunks = [made.chunk(int(number)) for number in numbers]
    # As an embedder it knows its texts, in whatever order, and another object makes the same.
    np.testing.assert_array_equal(made.embed([chunk.text for chunk in chunks]), vectors)
    again = growth.MadeChunks(real, np.eye(4, 8, dtype=np.float32))
    assert [again.chunk(int(number)) for number in numbers] == chunks and again.name == made.name
    for chunk, vector in zip(chunks, vectors, strict=True):
        title, words = chunk.text.split("\n")
        assert title == f"Made chunk {chunk.id.removeprefix('made-')}" and len(words.split()) == 9
        # Its words are of the chunks that its vector has a share of.
        assert {int(word[1]) for word in words.split()} == set(np.flatnonzero(vector).tolist())
    assert len({chunk.text for chunk in map(made.chunk, range(1000))}) == 1000


def test_an_index_of_made_chunks_is_built_once(tmp_path, monkeypatch):
    made = growth.MadeChunks([corag.Chunk("a", "one two three")], np.eye(1, 8, dtype=np.float32))
    growth._build(tmp_path / "index", made, 20, quiet=True)
    monkeypatch.setattr(growth.ChunkIndex, "build", lambda *_, **__: pytest.fail("built again"))
    growth._build(tmp_path / "index", made, 20, quiet=True)


def test_candidates_of_equal_length():
    class Offered:
        embedder_name = "minilm"

        def retrieve(self, question, vector, number):
            assert (question, vector.shape, number) == ("Which?", (384,), 20)
            texts = ["one two three", " ".join(["word"] * 300)]
            return [Candidate(Chunk(f"c{place}", text), 0.5) for place, text in enumerate(texts)]

    encoder = minilm_encoder()
    ((question, found),) = latency.first.equal_pools(Offered(), ["Which?"], encoder)
    assert (question, [one.chunk.id for one in found]) == ("Which?", ["c0", "c1"])
    assert [len(ids) for ids in encoder.tokenize([one.chunk.text for one in found]).ids] == [128, 128]
    assert found[0].chunk.text.startswith("one two three word")


def test_a_question_that_fails_says_why(tmp_path):
    with pytest.raises(CoragError, match=r"corag ask failed: .*there is no index at"):
        latency.ask.seconds_of_ask(tmp_path / "nowhere", ["Which?"], 1)


def test_spread_questions_by_hand():
    queries = [Query(str(number), str(number), (), (), "all", None, {}) for number in range(10)]
    assert breakdown.spread(queries, 3) == ["0", "3", "6"]
    assert breakdown.spread(queries, 99) == [str(number) for number in range(10)]
    with pytest.raises(DataError, match="no questions"):
        breakdown.spread([], 3)


def test_a_watched_reranker_is_what_it_wraps():
    inner = StoredReranker()
    watched, watch = breakdown.WatchedReranker(inner), Watch(lambda: 0.0)
    watched.watch = watch
    assert (watched.name, watched.identity) == (inner.name, inner.identity) and not hasattr(watched, "search_policy")
    chunks = [corag.Chunk(str(number), f"text {number}") for number in range(3)]
    orders_ = [(0,), (1, 2), (2, 1)]
    np.testing.assert_array_equal(watched.scorer("q", chunks)(orders_), inner.scorer("q", chunks)(orders_))
    assert watch.seconds.keys() == {"rerank"}


def test_each_setting_takes_its_turn():
    calls = []
    medians = Timing(3, "cpu").medians({"a": lambda: calls.append(1), "b": lambda: calls.append(2)})
    assert calls == [1, 2] * 3
    assert list(medians) == ["a", "b"] and all(seconds >= 0 for seconds in medians.values())


def test_figures_of_policies_by_hand():
    run = search.Run
    runs = {7: [run(10, 30, 0.25), run(None, 200, 0.5)], 8: [run(50, 60, 0.5), run(170, 179, 0.5)]}
    assert search.quality_row("some", runs) == {
        "setting": "some", "orders": (115 + 119.5) / 2, "ms": 500, "us_per_order": 0.5e6 / 117.25, "found": 1.5,
        "seeds": [{"seed": 7, "found": 1, "orders": 115}, {"seed": 8, "found": 2, "orders": 119.5}],
    }  # fmt: skip
    assert search.CAPS == (12, 24, 48, 96, 179)
    assert search.curve("some", runs) == {
        "policy": "some",
        "orders": [12, 24, (30 + 3 * 48) / 4, (30 + 96 + 60 + 96) / 4, (30 + 179 + 60 + 179) / 4],
        "found": [0.5, 0.5, 0.5, 1.0, 1.5],
    }


def test_the_power_of_growth_by_hand():
    curve = [
        {"chunks": number, "seconds": 1.0, "clusters": 7, "peak_mb": peak}
        for number, peak in ((100, 3.0), (200, 6.0), (400, 24.0))
    ]
    assert [row["growth"] for row in selectors.raptor_rows(curve)] == [None, pytest.approx(1), pytest.approx(2)]
    assert selectors.growth_power(curve[0] | {"peak_mb": 0.0}, curve[1]) is None
    assert selectors.growth_power(curve[0], curve[2]) == pytest.approx(log(8) / log(4))


@pytest.mark.parametrize(
    ("part", "settings", "message"),
    [
        ("search", {"rounds": 0}, "rounds must be at least 1, got 0"),
        ("search", {"seeds": 0}, "seeds must be at least 1, got 0"),
        ("scoring", {"questions": 0}, "questions must be at least 1, got 0; 2 to 20 are usual"),
        ("breakdown", {"budget": 0}, "budget"),
        ("scoring", {"queries": 0}, "queries must be at least 1, got 0; 40 to 200 are usual"),
    ],
)
def test_settings_out_of_range(part, settings, message):
    with pytest.raises(InputError, match=message):
        BenchConfig(part, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "rerankers", "rounds", "message"),
    [(InputError, " , ", 1, "name at least one"), (InputError, "bm25", 10_000, "ask for no more")],
)
def test_orders_that_cannot_be_measured(error, rerankers, rounds, message):
    with pytest.raises(error, match=message):
        orders.bench_orders(Timing(rounds), rerankers)


# --- The scoring engine ---


RUNS = [("torch", "fp32", "cpu"), ("openvino", "fp32", "cpu")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.corag.models.worlds import save_bert

    return save_bert(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
def test_scoring(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scoring, "SWEEP", scoring.SWEEP[:2])
    monkeypatch.setattr(scoring, "ITERATIONS", 2)
    monkeypatch.setattr(scoring, "available", lambda load: RUNS)
    result = bench(
        BenchConfig("scoring", rounds=1, questions=1, queries=2, clock="cpu", model=str(folder), out=str(tmp_path))
    )
    assert json.loads((tmp_path / "bench-scoring.json").read_text()) == result
    assert (tmp_path / "bench-scoring.svg").read_text().startswith("<svg")
    assert "batches shared by questions" in capsys.readouterr().out
    by_name = {row["setting"]: row for row in result["rows"]}
    for name, change in scoring.factors(RUNS):
        for setting in (f"+ {name}", f"{name}, alone"):
            row = by_name[setting]
            assert row["speedup"] == pytest.approx(by_name[row["of"]]["seconds"] / row["seconds"])
            if not change.keys() & {"precision", "prefilter"} and setting.endswith("alone"):
                assert row["same"] == "2 of 2"
    together = by_name["torch fp32: engine, all orders at once"]
    assert together["rank_correlation"] == together["rank_correlation_pooled"] == 1.0
    (at_once,) = (row for name, row in by_name.items() if name.endswith("2 questions, select_many"))
    assert at_once["same"] == "2 of 2"


@pytest.mark.slow
def test_every_way_to_score_gives_the_values_of_the_cross_encoder(folder):
    question, candidates = scoring.demo_questions()[0]
    chunks = [candidate.chunk for candidate in candidates]
    some = [(0,), (3, 1), (1, 3), (2,), (1, 0)]
    cross_encoder = corag.reranker("cross-encoder", model=folder, backend="torch")
    exact = cross_encoder.scorer(question, chunks)(some)
    assert np.ptp(exact) > 0.01
    for from_ids, by_length in itertools.product((False, True), (False, True)):
        reranker = scoring.PartialCrossEncoder(folder, RUNS[0], from_ids=from_ids, by_length=by_length)
        np.testing.assert_allclose(reranker.scorer(question, chunks)(some), exact, atol=1e-6)
    pytest.importorskip("FlagEmbedding")
    texts = [chunk.text for chunk in chunks]
    peer = scoring.FlagEmbeddingReranker(folder).score(question, texts)
    np.testing.assert_allclose(peer, cross_encoder.score(question, texts), atol=1e-6)


def test_one_batch_runs_all_rows_at_once():
    shapes = []

    def forward(inputs, reduction):
        shapes.append(inputs["input_ids"].shape)
        return np.zeros((3, 1))

    engine = scoring.OneBatch(Replicas([forward]), 0, 4)
    [batch] = engine.run([np.arange(n) for n in (2, 9, 4)])
    assert shapes == [(3, 9)] and batch.rows.tolist() == [0, 1, 2]


@pytest.mark.slow
def test_a_sweep_remembers_where_it_is_told_to(folder):
    asked, counts, chosen = scoring.demo_questions()[:2], [], []
    for way in (scoring.Way(), scoring.Way(memo=True), scoring.Way(memo=True, shared=True)):
        reranker = scoring.PartialCrossEncoder(folder, RUNS[0])
        values, orders_run = reranker.values, []
        reranker.values = lambda asked, v=values, seen=orders_run: seen.extend(len(t) for _, t in asked) or v(asked)
        chosen.append(scoring.sweep(reranker, way, asked))
        counts.append(sum(orders_run))
    assert chosen[0] == chosen[1] == chosen[2] and len(chosen[0]) == len(scoring.SWEEP) * len(asked)
    assert counts[0] > 2 * counts[1] and counts[1] == counts[2]


def test_perfect_batches_by_hand():
    batches = scoring.perfect_batches([10, 30, 50, 48, 46], 100)
    # 50 and 48 fill a batch, then 46 and 30; 10 is left.
    assert [batch["input_ids"].shape for batch in batches] == [(2, 49), (2, 38), (1, 10)]
    assert [batch["input_ids"].shape for batch in scoring.perfect_batches([30], 20)] == [(1, 30)]


def test_rank_parity_by_hand():
    group = np.array([0, 0, 0, 1, 1])
    exact = np.array([1.0, 2.0, 3.0, 10.0, 20.0])
    # Two of three neighbours swapped: 1 - 6 * 2 / (3 * 8) = 0.5; the other question is right.
    found = scoring.rank_parity(np.array([2.0, 1.0, 3.0, 10.0, 20.0]), exact, group)
    assert found["rank_correlation"] == pytest.approx(0.75)
    assert found["rank_correlation_pooled"] == pytest.approx(1 - 6 * 2 / (5 * 24))
    # Equal values share a rank: ranks 1.5, 1.5, 3 against 1, 2, 3.
    tied = scoring.rank_parity(np.array([1.0, 1.0, 3.0]), exact[:3], group[:3])
    assert tied["rank_correlation"] == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])
