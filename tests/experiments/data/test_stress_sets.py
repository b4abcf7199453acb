"""Candidates with exactly the share of noise, or of rewritings, that was asked for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.models.chat.base import ChatError
from corag.models.chat.servers import OllamaChat
from corag.text.data import DataFolder
from corag.text.documents import Document
from experiments.data.config import CandidateSettings
from experiments.data.pools import open_pool
from experiments.data.stress_sets import chat_rewriter, is_noise, noisy_pool, redundant_pool, rotated, stress_sets
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import QUERIES


@given(st.lists(st.booleans(), max_size=20), st.integers(1, 10), st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_a_pool_has_its_share_of_noise_or_is_none(noise, size, rate):
    ranking = [f"p{rank}" for rank in range(len(noise))]
    pool = noisy_pool(ranking, noise, size, rate)
    num_noise = round(rate * size)
    if sum(noise) < num_noise or len(noise) - sum(noise) < size - num_noise:
        assert pool is None
    else:
        ranks = [ranking.index(name) for name in pool]
        assert ranks == sorted(set(ranks))
        assert (len(pool), sum(noise[rank] for rank in ranks)) == (size, num_noise)


@pytest.mark.parametrize(("rate", "originals"), [(0.0, 20), (0.8, 4), (0.95, 1)])
def test_redundancy_rates_of_the_paper(rate, originals):
    ranking = [Document(f"p{rank}", f"One {rank}. Two {rank}. Three {rank}.", f"T{rank}") for rank in range(30)]
    pool = redundant_pool(ranking, 20, rate, rotated)
    assert pool[:originals] == ranking[:originals]
    assert len({document.id for document in pool}) == len({document.text for document in pool}) == 20
    for document in pool[originals:]:
        original = next(other for other in ranking if other.id == document.id.split("~")[0])
        assert set(original.text.split()) <= set(document.text.split())
        assert document.title == original.title
    assert redundant_pool(ranking[: originals - 1], 20, rate, rotated) is None


def test_noise_is_neither_evidence_nor_answer(tmp_path):
    corpus = [{"id": f"p{n}", "title": "", "text": f"Passage {n}. It is old."} for n in range(6)]
    corpus[3]["text"] = "Here is the answer, Paris, too."
    query = {"id": "q", "question": "Where?", "answers": ["Paris"], "gold": ["p1#0-5"], "split": "dev"}
    for name, lines in (("corpus", corpus), ("queries", [query])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    folder = DataFolder.open(tmp_path)
    assert [name for name in folder.documents if is_noise(folder.documents[name], folder.queries[0])] == [
        "p0", "p2", "p4", "p5",
    ]  # fmt: skip


def test_sets_are_data_folders(small_data, tmp_path):
    data = DataFolder.open(small_data)
    settings = CandidateSettings(pool="candidates")
    pool = open_pool(data, data.split("train"), corag.embedder(), settings, quiet=True)
    written = stress_sets(data, pool, tmp_path, kind="noise", size=4, rates=(0.5, 0.75), quiet=True)
    folders = [DataFolder.open(path) for path in written.values()]
    known = {query["id"]: query for query in QUERIES}
    for folder, number in zip(folders, (2, 3), strict=True):
        # Two passages of each of these questions hold its evidence or its answer; of the fourth only one does.
        assert {query.id for query in folder.queries} <= {"q1", "q2", "q3", "q4", "q5"} - {"q4"}
        for query in folder.queries:
            assert set(query.candidates) <= set(known[query.id]["candidates"])
            assert [is_noise(folder.documents[name], query) for name in query.candidates].count(True) == number
    assert [query.id for query in folders[0].queries] == [query.id for query in folders[1].queries] != []
    [path] = stress_sets(data, pool, tmp_path, kind="redundancy", size=6, rates=(0.5,), quiet=True).values()
    [query] = DataFolder.open(path).split("train", 1)
    assert [name.split("~")[0] for name in query.candidates[3:]] == list(query.candidates[:3])
    for wrong in (
        {"size": 9, "rates": (0.5,)},  # more than the questions have
        {"kind": "redundancy", "size": 4, "rates": (1.0,)},
        {"rates": (1.5,)},
    ):
        with pytest.raises(InputError):
            stress_sets(data, pool, tmp_path, **{"kind": "noise", **wrong}, quiet=True)


def test_rewritings_by_a_model_are_paid_once(tmp_path):
    with ChatServer(Reply("In other words."), Reply("And again."), Reply(status=400)) as server:
        rewrite = chat_rewriter(OllamaChat(host=server.host), tmp_path / "store")
        assert [rewrite("A text.", 1), rewrite("A text.", 2), rewrite("A text.", 1)] == [
            "In other words.", "And again.", "In other words.",
        ]  # fmt: skip
        with pytest.raises(ChatError):
            rewrite("Another text.", 1)
    assert "<passage>\nA text.\n</passage>" in server.chats[0]["messages"][0]["content"]
