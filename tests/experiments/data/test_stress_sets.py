"""Candidates with exactly the share of noise, or of rewritings, that was asked for; and answers for who has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.models.chat import ChatError, OllamaChat
from corag.registry import READERS
from corag.text.data import DataFolder
from corag.types import Answer
from experiments.data.config import CandidateSettings
from experiments.data.folder import read_source
from experiments.data.pools import open_pool
from experiments.data.references import ReferencesConfig, write_references
from experiments.data.stress_sets import chat_rewriter, is_noise, noisy_pool, stress_sets
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder
from tests.fakes import FakeReader


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


QUESTIONS = [
    {"id": "a", "question": "What is Varn?", "answers": [], "gold": ["varn"], "split": "dev", "article": "Varn"},
    {"id": "b", "question": "Who was Ilsa?", "answers": [], "gold": ["tolmere", "ilsa"], "split": "dev"},
    {"id": "c", "question": "What is Kell?", "answers": ["a village"], "gold": ["kell"], "split": "dev"},
    {"id": "d", "question": "What is lost?", "answers": [], "gold": ["no-such-passage"], "split": "dev"},
    {"id": "e", "question": "What is Oro?", "answers": [], "gold": ["oro"], "candidates": ["oro", "kell"],
     "split": "test"},
]  # fmt: skip


def test_questions_without_an_answer_get_one_from_their_gold_passages(tmp_path, monkeypatch):
    data = write_folder(tmp_path / "data", DOCUMENTS, QUESTIONS)
    echo = FakeReader(lambda query, context: Answer(f"{query} {context}"), "echo")
    monkeypatch.setitem(READERS.parts, "echo", lambda: echo)
    out, number = write_references(ReferencesConfig(str(data), str(tmp_path / "out"), "echo", quiet=True))
    assert number == 3
    assert [query for query, _ in echo.asked] == ["What is Varn?", "Who was Ilsa?", "What is Oro?"]
    assert echo.asked[1][1].startswith("Tolmere\nTolmere is the capital")
    assert "\n\nIlsa Brandt\nIlsa Brandt was a queen" in echo.asked[1][1]
    before, after = DataFolder.open(data), DataFolder.open(out)
    assert after.documents == before.documents
    answers = {query.id: query.answers for query in after.queries}
    assert answers["a"] == (f"What is Varn? {echo.asked[0][1]}",)
    assert (answers["c"], answers["d"]) == (("a village",), ())
    extra = {query.id: query.extra for query in after.queries}
    assert extra["a"] == {"article": "Varn", "reference_reader": "echo"}
    assert extra["c"] == {}
    assert [query.candidates for query in after.queries] == [query.candidates for query in before.queries]
    assert read_source(out)["references"]["reader"] == "echo"
    # A question that BEIR has in two splits is asked and written once, in a split that is asked for.
    beir = write_folder(tmp_path / "beir", DOCUMENTS, [{"id": name, "question": f"{name}?"} for name in "ab"])
    (beir / "qrels").mkdir()
    for split in ("test", "train"):
        (beir / "qrels" / f"{split}.tsv").write_text("a\tvarn\t1\n" + "b\tkell\t1\n" * (split == "test"))
    for splits, expected in (("", [("a", "test"), ("b", "test")]), ("train", [("b", "test"), ("a", "train")])):
        config = ReferencesConfig(str(beir), str(tmp_path / f"refs-{splits}"), "echo", splits, limit=1, quiet=True)
        out, number = write_references(config)
        after = DataFolder.open(out).queries
        assert number == 1 and [(query.id, query.split) for query in after] == expected
        assert [query.id for query in after if query.answers] == ["a"]
