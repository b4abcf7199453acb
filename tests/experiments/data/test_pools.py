"""Candidates of each question, and questions divided into splits."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.errors import DataError
from corag.text.data import DataFolder
from experiments.data.config import CandidateSettings
from experiments.data.pools import content_hash, open_pool
from experiments.data.splits import default_split, divide, questions_of
from tests.experiments.worlds import DOCUMENTS, QUERIES, write_folder
from tests.fakes import AskingEmbedder, HashEmbedder

OWN = CandidateSettings(pool="candidates")


@pytest.fixture
def folder(small_data):
    return DataFolder.open(small_data)


def test_a_question_without_a_list_is_refused_and_an_empty_one_is_a_pool(folder):
    query = replace(folder.queries[0], candidates=None)
    with pytest.raises(DataError):
        open_pool(folder, [folder.queries[1], query], corag.embedder(), OWN, quiet=True)
    empty = replace(folder.queries[0], candidates=())
    assert open_pool(folder, [empty, folder.queries[1]], corag.embedder(), OWN, quiet=True)[empty.id] == []


@pytest.mark.parametrize("pool", ["candidates", "corpus"])
def test_questions_are_embedded_as_questions(folder, pool):
    embedder, settings = AskingEmbedder(), CandidateSettings(pool=pool, retrieval="vector")
    query = folder.queries[0]
    [question] = embedder.embed_queries([query.question])
    for candidate in open_pool(folder, [query], embedder, settings, quiet=True)[query.id]:
        [vector] = embedder.embed([candidate.chunk.text])
        assert candidate.similarity == pytest.approx(vector @ question, abs=1e-5)


def test_an_index_by_default_is_kept_in_the_cache_and_follows_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    path = write_folder(tmp_path / "data", DOCUMENTS[:3], [QUERIES[0] | {"candidates": None}])

    def chunks_offered():
        folder, embedder = DataFolder.open(path), HashEmbedder()
        pool = open_pool(folder, folder.queries, embedder, CandidateSettings(num_candidates=9), quiet=True)
        return {candidate.chunk.id for candidate in pool[folder.queries[0].id]}, embedder.num_embedded

    first, num_embedded = chunks_offered()
    assert len(first) == 3 and num_embedded == 3 + 1
    assert chunks_offered() == (first, 1)  # only the question
    write_folder(path, DOCUMENTS[3:5], [QUERIES[0] | {"candidates": None}])
    second, num_embedded = chunks_offered()
    assert len(second) == 2 and not first & second and num_embedded == 2 + 1
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["indexes"]


def test_the_hash_of_the_content_changes_with_all_that_it_depends_on(tmp_path, small_data, small_index):
    def hash_of(documents=DOCUMENTS, queries=QUERIES, *, index=None):
        return content_hash(DataFolder.open(write_folder(tmp_path / "data", documents, queries)), index)

    hashes = [
        hash_of(),
        hash_of(queries=QUERIES[:11]),
        hash_of([*DOCUMENTS[:-1], DOCUMENTS[-1] | {"text": "other"}]),
        hash_of(queries=[QUERIES[0] | {"candidates": ["kell"]}, *QUERIES[1:]]),
        hash_of(index=small_index),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hash_of() == hashes[0]


def test_candidates_of_the_same_document_are_its_passages(folder):
    # Several passages share a title, as paragraphs of an article do.
    titles = {"varn": "The island", "tolmere": "The island", "choir": "The island", "oro": "Water", "sable": "Water"}
    documents = {name: replace(one, title=titles.get(name, "")) for name, one in folder.documents.items()}
    embedder, articles = HashEmbedder(), replace(folder, documents=documents)
    queries = [
        replace(folder.queries[0], gold=("varn", "lost"), candidates=None),
        replace(folder.queries[1], gold=("sable#3-9",), candidates=()),
        replace(folder.queries[2], gold=("oro", "choir")),
    ]
    pool = open_pool(articles, queries, embedder, CandidateSettings(pool="document"), quiet=True)
    island, water = {"varn", "tolmere", "choir"}, {"oro", "sable"}
    for query, expected in zip(queries, (island, water, island | water), strict=True):
        candidates = pool[query.id]
        assert {candidate.chunk.id for candidate in candidates} == expected
        similarities = [candidate.similarity for candidate in candidates]
        assert similarities == sorted(similarities, reverse=True)
    assert embedder.num_embedded == 5 + 3


QUESTIONS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8)), min_size=1, max_size=60)


@settings(max_examples=40)
@given(QUESTIONS)
def test_no_group_is_divided_and_the_order_does_not_matter(questions):
    data = [d for d, _ in questions]
    parts = divide(data, [f"{d}/{g}" for d, g in questions], (0.6, 0.1, 0.3))
    sides = {}
    for question, part in zip(questions, parts.tolist(), strict=True):
        assert sides.setdefault(question, part) == part
    turned = divide(data[::-1], [f"{d}/{g}" for d, g in questions[::-1]], (0.6, 0.1, 0.3))
    assert turned[::-1].tolist() == parts.tolist()


def test_questions_that_name_no_split_are_divided_by_documents(tmp_path):
    golds = [[f"d{n // 2}", f"e{n}"] for n in range(40)]
    rows = [{"id": f"q{n}", "question": "what?", "gold": gold} for n, gold in enumerate(golds)]
    names = sorted({name for gold in golds for name in gold})
    documents = [{"id": name, "title": "", "text": name} for name in names]
    folder = DataFolder.open(write_folder(tmp_path, documents, rows))
    splits = {name: questions_of(folder, name) for name in ("train", "dev", "test")}
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 24, "dev": 8, "test": 8}
    assert all(query.split == name for name, queries in splits.items() for query in queries)
    owners = [{query.gold[0] for query in queries} for queries in splits.values()]
    assert sum(map(len, owners)) == len(set.union(*owners)) == 20
    assert questions_of(folder, "dev", 3) == splits["dev"][:3]
    assert questions_of(folder, "all") == list(folder.queries)


@pytest.mark.parametrize(
    ("splits", "expected"),
    [(["train", "dev", "test"], "dev"), (["train", "test"], "test"), (["all"], "dev"), (["hard"], "hard"),
     (["train", "hard"], "dev")],
)  # fmt: skip
def test_the_split_where_none_is_named(tmp_path, splits, expected):
    rows = [{**QUERIES[0], "id": str(number), "split": split} for number, split in enumerate(splits)]
    assert default_split(DataFolder.open(write_folder(tmp_path / "data", queries=rows))) == expected
