"""Candidates with exactly the share of noise, or of rewritings, that was asked for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import InputError
from corag.models.chat.base import ChatError
from corag.models.chat.servers import OllamaChat, OllamaSettings
from corag.text.data import DataFolder
from corag.text.documents import Document
from experiments.data.stress_sets import (
    ChatRewriter,
    StressConfig,
    candidates_of,
    is_noise,
    main,
    noisy_pool,
    redundant_pool,
    rotated,
    stress_sets,
    write_set,
)
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import EvaluateConfig
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import QUERIES


@given(
    st.lists(st.booleans(), max_size=20),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    st.sampled_from([None, 3]),
)
def test_a_pool_has_its_share_of_noise_or_is_none(noise, size, rate, seed):
    ranking = [f"p{rank}" for rank in range(len(noise))]
    pool = noisy_pool(ranking, noise, size=size, rate=rate, seed=seed)
    num_noise = round(rate * size)
    if sum(noise) < num_noise or len(noise) - sum(noise) < size - num_noise:
        assert pool is None
    else:
        ranks = [ranking.index(name) for name in pool]
        assert ranks == sorted(set(ranks))
        assert (len(pool), sum(noise[rank] for rank in ranks)) == (size, num_noise)
        assert pool == noisy_pool(ranking, noise, size=size, rate=rate, seed=seed)


def test_the_best_ranked_of_both_kinds():
    assert noisy_pool("abcdef", [True, False, True, True, False, False], size=4, rate=0.5) == ["a", "b", "c", "e"]


@pytest.mark.parametrize(("rate", "originals"), [(0.0, 20), (0.2, 16), (0.4, 12), (0.6, 8), (0.8, 4), (0.95, 1)])
def test_redundancy_rates_of_the_paper(rate, originals):
    ranking = [Document(f"p{rank}", f"One {rank}. Two {rank}. Three {rank}.", f"T{rank}") for rank in range(30)]
    pool = redundant_pool(ranking, size=20, rate=rate, rewrite=rotated)
    assert pool[:originals] == ranking[:originals]
    assert len({document.id for document in pool}) == len({document.text for document in pool}) == 20
    for document in pool[originals:]:
        original = next(one for one in ranking if one.id == document.id.split("~")[0])
        assert set(original.text.split()) <= set(document.text.split())
        assert document.title == original.title
    assert redundant_pool(ranking[: originals - 1], size=20, rate=rate, rewrite=rotated) is None


def test_rotated():
    assert rotated("One. Two. Three.", 1) == "Two. Three. One."
    assert rotated("One. Two. Three.", 4) == "Again: Two. Three. One."
    assert rotated("One.", 2) == "Again: Again: One."


@pytest.fixture
def folder(tmp_path):
    corpus = [{"id": f"p{n}", "title": "", "text": f"Passage {n}. It is old."} for n in range(6)]
    corpus[3]["text"] = "Here stands the answer, Paris, too."
    query = {"id": "q", "question": "Where?", "answers": ["Paris"], "gold": ["p1#0-5"], "split": "dev", "level": "easy"}
    for name, lines in (("corpus", corpus), ("queries", [query])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return DataFolder.open(tmp_path)


def test_noise_is_neither_evidence_nor_answer(folder):
    (query,) = folder.queries
    assert [name for name in folder.documents if is_noise(folder.documents[name], query)] == ["p0", "p2", "p4", "p5"]


def test_sets_are_data_folders(folder, tmp_path):
    [query] = folder.queries

    def pools(kind, rate):
        config = StressConfig("data", "out", kind=kind, size=4)
        return {"q": candidates_of(query, list(folder.documents.values()), rate, config, rotated)}

    assert write_set(folder.queries, pools("noise", 0.5), tmp_path / "noise") == 1
    noisy = DataFolder.open(tmp_path / "noise")
    assert noisy.queries[0].candidates == ("p0", "p1", "p2", "p3")
    assert (noisy.queries[0].gold, noisy.queries[0].extra) == (("p1#0-5",), {"level": "easy"})
    assert write_set(folder.queries, pools("redundancy", 0.5), tmp_path / "redundant") == 1
    redundant = DataFolder.open(tmp_path / "redundant")
    assert redundant.queries[0].candidates == ("p0", "p1", "p0~1", "p1~1")
    assert redundant.documents["p0~1"].text == "It is old. Passage 0."
    assert pools("noise", 0.0) == {"q": None}
    with pytest.raises(InputError, match="no question has enough passages"):
        write_set(folder.queries, {}, tmp_path / "none")


@pytest.mark.slow
def test_from_the_command_line(small_data, tmp_path, capsys):
    arguments = ["--data", str(small_data), "--out", str(tmp_path), "--pool", "candidates", "--quiet", "true"]
    assert main([*arguments, "--split", "train", "--size", "4", "--rates", "[0.5,0.75]"]) == 0
    written = [DataFolder.open(tmp_path / f"noise-{rate}") for rate in (0.5, 0.75)]
    known = {query["id"]: query for query in QUERIES}
    for folder, number in zip(written, (2, 3), strict=True):
        # Two passages of each of these questions hold its evidence or its answer; of the fourth only one does.
        assert {query.id for query in folder.queries} <= {"q1", "q2", "q3", "q4", "q5"}
        for query in folder.queries:
            assert set(query.candidates) <= set(known[query.id]["candidates"])
            assert [is_noise(folder.documents[name], query) for name in query.candidates].count(True) == number
    assert [query.id for query in written[0].queries] == [query.id for query in written[1].queries] != []
    assert "q4" not in [query.id for query in written[0].queries]
    result = evaluate(EvaluateConfig(str(tmp_path / "noise-0.5"), "train", "naive", reader="extractive", quiet=True))
    assert result["pool"] == "candidates" and result["queries"] == len(written[0].queries)
    assert main([*arguments, "--split", "train", "--kind", "redundancy", "--size", "6", "--rates", "[0.5]"]) == 0
    [query] = DataFolder.open(tmp_path / "redundancy-0.5").split("train", 1)
    assert [name.split("~")[0] for name in query.candidates[3:]] == list(query.candidates[:3])
    capsys.readouterr()
    assert main([*arguments, "--size", "9"]) == 2
    assert "no question has enough passages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"kind": "noisy"}, "kind is 'noisy'"), ({"rates": ()}, "rates are"), ({"sample": 0}, "sample must be at least")],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        StressConfig("data", "out", **settings)


def test_rewritings_by_a_model_are_paid_once(tmp_path):
    with ChatServer(Reply("In other words."), Reply("And again."), Reply(status=400)) as server:
        rewrite = ChatRewriter(OllamaChat(OllamaSettings(host=server.host)), tmp_path / "store")
        assert [rewrite("A text.", 1), rewrite("A text.", 2), rewrite("A text.", 1)] == [
            "In other words.", "And again.", "In other words.",
        ]  # fmt: skip
        with pytest.raises(ChatError):
            rewrite("Another text.", 1)
    assert "<passage>\nA text.\n</passage>" in server.chats[0]["messages"][0]["content"]


@pytest.mark.parametrize(("size", "rate", "message"), [(0, 0.5, "size must be"), (4, 1.5, "rate must be")])
def test_out_of_range(size, rate, message):
    with pytest.raises(InputError, match=message):
        noisy_pool([], [], size=size, rate=rate)
    with pytest.raises(InputError, match=message):
        redundant_pool([], size=size, rate=rate, rewrite=rotated)
    with pytest.raises(InputError, match=r"leaves no original among 4 candidates; it must be at most 0\.75"):
        redundant_pool([], size=4, rate=1.0, rewrite=rotated)


@pytest.mark.slow
def test_no_noise_and_nothing_but_noise(small_data, tmp_path):
    config = StressConfig(data=str(small_data), out=str(tmp_path), rates=(0.0, 1.0), size=1, pool="corpus", quiet=True)
    found = stress_sets(config)
    assert len(set(found.values())) == 1 and min(found.values()) > 0
    for rate, helped in (("0", True), ("1", False)):
        folder = DataFolder.open(tmp_path / f"noise-{rate}")
        found = [set(one.candidates) & {name.split("#")[0] for name in one.gold} for one in folder.queries]
        assert {bool(both) for both in found} == {helped}
