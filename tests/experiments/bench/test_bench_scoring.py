"""The scoring benchmark at tiny sizes: what is compared is alike, and its figures follow from what was timed."""

import itertools
import json

import numpy as np
import pytest

import corag
from corag.errors import InputError, MissingExtraError
from experiments.bench import scoring_lab
from experiments.bench.harness import Timing
from experiments.bench.run import BenchConfig, bench
from experiments.bench.run import scoring as bench_scoring
from experiments.bench.scoring import (
    PEER,
    SWEEP,
    Sizes,
    factors,
    perfect_batches,
    plot,
    rank_parity,
    sweep,
)
from experiments.bench.scoring_lab import (
    NUM_CANDIDATES,
    FlagEmbeddingReranker,
    Lab,
    Plain,
    Remembering,
    Way,
    make_model,
    questions,
)
from tests.corag.models.worlds import save_bert


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(save_bert(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def asked():
    return list(itertools.islice(questions(), 2))


def test_questions_come_with_chunks_of_about_one_size(asked):
    assert len({question for question, _ in asked}) == 2
    for _, candidates in asked:
        assert len({candidate.chunk.id for candidate in candidates}) == NUM_CANDIDATES
        lengths = corag.text.tokens.token_counter().count([candidate.chunk.text for candidate in candidates])
        assert lengths.max() <= scoring_lab.CHUNK_TOKENS and lengths.mean() > 60


def test_perfect_batches_by_hand():
    batches = perfect_batches([10, 30, 50, 48, 46], 100)
    # 50 and 48 fill a batch, then 46 and 30; 10 is left.
    assert [batch["input_ids"].shape for batch in batches] == [(2, 49), (2, 38), (1, 10)]
    assert all(batch["attention_mask"].all() and not batch["token_type_ids"].any() for batch in batches)
    assert [batch["input_ids"].shape for batch in perfect_batches([30], 20)] == [(1, 30)]


def test_parity_by_hand():
    group = np.array([0, 0, 0, 1, 1])
    exact = np.array([1.0, 2.0, 3.0, 10.0, 20.0])
    # Two of three neighbours swapped: 1 - 6 * 2 / (3 * 8) = 0.5; the other question is right.
    found = rank_parity(np.array([2.0, 1.0, 3.0, 10.0, 20.0]), exact, group)
    assert found["rank_correlation"] == pytest.approx(0.75)
    assert found["rank_correlation_pooled"] == pytest.approx(1 - 6 * 2 / (5 * 24))
    # Equal values share a rank: ranks 1.5, 1.5, 3 against 1, 2, 3.
    tied = rank_parity(np.array([1.0, 1.0, 3.0]), exact[:3], group[:3])
    assert tied["rank_correlation"] == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])


def test_every_way_gives_the_values_of_the_cross_encoder(lab, asked):
    question, candidates = asked[0]
    chunks = [candidate.chunk for candidate in candidates]
    orders = [(0,), (3, 1), (1, 3), (2,), (1, 0)]
    exact = corag.reranker("cross-encoder", model=lab.folder, backend="torch").scorer(question, chunks)(orders)
    assert np.ptp(exact) > 0.01
    for from_ids, by_length in ((False, False), (True, False), (False, True)):
        reranker = lab.reranker(Way(from_ids=from_ids, by_length=by_length))
        assert isinstance(reranker, Plain)
        scorer = reranker.scorer(question, chunks)
        np.testing.assert_allclose(scorer(orders), exact, atol=1e-6)
        both = scorer.score_jointly([(scorer, orders[:2]), (scorer, orders[2:])])
        np.testing.assert_allclose(np.concatenate(both), exact, atol=1e-6)
        np.testing.assert_allclose(reranker.score(question, [chunks[0].text]), exact[:1], atol=1e-6)
    assert lab.reranker(Way(from_ids=True, by_length=True)).name == "cross-encoder"


def test_the_peer_gives_the_values_of_the_cross_encoder(lab, asked):
    pytest.importorskip("FlagEmbedding")
    question, candidates = asked[0]
    texts = [candidate.chunk.text for candidate in candidates]
    exact = corag.reranker("cross-encoder", model=lab.folder, backend="torch").score(question, texts)
    peer = FlagEmbeddingReranker(lab.folder)
    np.testing.assert_allclose(peer.score(question, texts), exact, atol=1e-6)
    assert peer.score(question, texts[:1]).shape == (1,)


def test_without_the_peer_its_line_is_missing(lab, asked, monkeypatch):
    def not_there(name, extra):
        raise MissingExtraError(f"{name} is not installed; {extra}")

    monkeypatch.setattr(scoring_lab, "require", not_there)
    monkeypatch.setattr(lab, "runs", lambda: [("torch", "fp32", "cpu")])
    rows = bench_scoring.step_rows(lab, asked[:1], Timing(1))
    assert PEER not in [row["setting"] for row in rows]
    assert rows[0]["speedup"] == 1.0


class Counting:
    name = "counting"

    def __init__(self, reranker):
        self.reranker, self.num_orders = reranker, 0

    def score(self, query, texts):
        return self.reranker.score(query, texts)

    def scorer(self, query, chunks):
        scorer = self.reranker.scorer(query, chunks)

        def count(orders):
            self.num_orders += len(orders)
            return scorer(orders)

        count.order_matters, count.num_truncated = True, 0
        return count


def test_a_sweep_remembers_where_it_is_told_to(lab, asked):
    counts, selections = [], []
    for way in (Way(), Way(memo=True), Way(memo=True, shared=True)):
        counting = Counting(lab.reranker(way))
        selections.append([found.ids for found in sweep(counting, way, asked)])
        counts.append(counting.num_orders)
    assert selections[0] == selections[1] == selections[2]
    assert len(selections[0]) == len(SWEEP) * len(asked)
    assert counts[0] > 2 * counts[1] and counts[1] == counts[2]
    assert Remembering(lab.reranker(Way())).score(asked[0][0], ["some text"]).shape == (1,)


def test_the_engine_runs_what_the_bare_encoder_runs(lab, asked):
    rows = bench_scoring.engine_rows(lab, asked, Timing(1))
    by_name = {row["setting"]: row for row in rows}
    bare = by_name["torch fp32: bare encoder, no padding"]
    together = by_name["torch fp32: engine, all orders at once"]
    assert together["of_bare"] == pytest.approx(together["tokens_per_s"] / bare["tokens_per_s"], rel=1e-3)
    # The same tokens, but for rounding mean lengths.
    tokens = [row["tokens_per_s"] * row["seconds"] for row in (bare, together)]
    assert tokens[0] == pytest.approx(tokens[1], rel=0.02)
    assert together["rank_correlation"] == together["rank_correlation_pooled"] == 1.0
    assert len(rows) == 3 * len(lab.runs())


def test_the_table_and_its_files(lab, tmp_path, capsys):
    config = BenchConfig(
        "scoring", rounds=1, questions=1, queries=2, clock="cpu", model=str(lab.folder), out=str(tmp_path)
    )
    result = bench(config)
    assert json.loads((tmp_path / "bench-scoring.json").read_text()) == result
    assert (tmp_path / "bench-scoring.svg").read_text().startswith("<svg")
    assert "batches shared by questions" in capsys.readouterr().out
    by_name = {row["setting"]: row for row in result["rows"]}
    for name, change in factors(lab):
        for setting in (f"+ {name}", f"{name}, alone"):
            row = by_name[setting]
            assert row["speedup"] == pytest.approx(by_name[row["of"]]["seconds"] / row["seconds"])
            if not change.keys() & {"precision", "prefilter"} and setting.endswith("alone"):
                assert row["same"] == "4 of 4"
    assert [row["setting"] for row in result["curve"]] == [
        row["setting"] for row in result["rows"] if "speedup" in row and "of" in row and "alone" not in row["setting"]
    ]
    (one_by_one,) = (row for name, row in by_name.items() if name.endswith("2 questions one by one"))
    (at_once,) = (row for name, row in by_name.items() if name.endswith("2 questions, select_many"))
    assert at_once["speedup"] == pytest.approx(one_by_one["seconds"] / at_once["seconds"])
    assert at_once["same"] == "2 of 2"


def test_more_questions_than_there_are(lab):
    with pytest.raises(InputError, match=r"the demo has \d+ questions; ask for no more"):
        bench_scoring.bench_scoring(Timing(1), Sizes(queries=100_000, model=lab.folder))


def test_the_plot_of_nothing_but_bars():
    assert (
        plot({"curve": [{"setting": "first", "speedup": 1.0}, {"setting": "second", "speedup": 7.0}]}).count("<svg")
        == 1
    )


def test_the_model_is_of_real_size_and_seeded(tmp_path):
    one = Lab(make_model(tmp_path))
    module = one.checkpoint.load()
    assert 20e6 < sum(part.numel() for part in module.parameters()) < 25e6
    (tmp_path / "again").mkdir()
    again = Lab(make_model(tmp_path / "again"))
    assert one.checkpoint.sha256 == again.checkpoint.sha256
