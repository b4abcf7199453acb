"""Candidates with exactly the share of noise, or of rewritings, that was asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.models.chat import ChatError, OllamaChat
from corag.text.data import DataFolder
from experiments.data.config import CandidateSettings
from experiments.data.pools import open_pool
from experiments.data.stress_sets import chat_rewriter, is_noise, noisy_pool, stress_sets
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
    with pytest.raises(InputError):  # more than the questions have
        stress_sets(data, pool, tmp_path, kind="noise", size=9, rates=(0.5,), quiet=True)


def test_rewritings_by_a_model_are_paid_once(tmp_path):
    with ChatServer(Reply("In other words."), Reply("And again."), Reply(status=400)) as server:
        rewrite = chat_rewriter(OllamaChat(host=server.host), tmp_path / "store")
        assert [rewrite("A text.", 1), rewrite("A text.", 2), rewrite("A text.", 1)] == [
            "In other words.", "And again.", "In other words.",
        ]  # fmt: skip
        with pytest.raises(ChatError):
            rewrite("Another text.", 1)
    assert "<passage>\nA text.\n</passage>" in server.chats[0]["messages"][0]["content"]
