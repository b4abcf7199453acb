"""The vector index on real LanceDB tables, small ones."""

import json
from dataclasses import asdict, replace

import lancedb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.errors import CoragError, DataError, IndexMismatchError, InputError
from corag.index import ChunkIndex
from corag.index.search import FUSED_DEPTH
from corag.index.store import FORMAT_VERSION
from corag.models.embedders import MiniLMEmbedder
from corag.types import Chunk
from tests.corag.index.worlds import WORDS, StoppedEmbedder, make_chunks, table_of
from tests.experiments.worlds import listing
from tests.fakes import HashEmbedder


@pytest.fixture(scope="module")
def chunks():
    return make_chunks(60)


@pytest.fixture(scope="module")
def index(tmp_path_factory, chunks):
    return ChunkIndex.build(tmp_path_factory.mktemp("index"), chunks, HashEmbedder(), batch_size=16)


def nearest(index, vector, k):
    return index.retrieve("", vector, k, "vector")


def by_words(index, query, k):
    return index.retrieve(query, np.ones(index.manifest.dimension), k, "text")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 80), length=st.floats(0.1, 10))
def test_exact_search_equals_numpy(index, chunks, seed, k, length):
    vector = np.random.default_rng(seed).normal(size=8) * length
    found = nearest(index, vector, k)
    similarities = HashEmbedder().embed([chunk.text for chunk in chunks]) @ (vector / np.linalg.norm(vector))
    best = np.argsort(-similarities, kind="stable")[:k]
    assert [candidate.chunk for candidate in found] == [chunks[row] for row in best]
    np.testing.assert_allclose([candidate.similarity for candidate in found], similarities[best], atol=1e-6)


def test_ties_keep_the_given_order_even_if_k_cuts_them(tmp_path):
    chunks = [Chunk(f"c{i}", "amber words" if i % 2 else f"other {i}") for i in range(40)]
    index = ChunkIndex.build(tmp_path, chunks, HashEmbedder(), batch_size=7)
    [vector] = HashEmbedder().embed(["amber words"])
    found = nearest(index, vector, 3)
    assert [candidate.chunk.id for candidate in found] == ["c1", "c3", "c5"]
    assert all(-1 <= candidate.similarity <= 1 for candidate in found)
    assert [candidate.chunk.id for candidate in by_words(index, "amber", 3)] == ["c1", "c3", "c5"]


def test_text_retrieval_ranks_by_bm25_and_gives_cosines(tmp_path):
    texts = ["a cat and a dog and a fox", "the cat", "running foxes", "nothing here", "0f" * 64]
    index = ChunkIndex.build(tmp_path, [Chunk(str(i), text) for i, text in enumerate(texts)], HashEmbedder())
    found = by_words(index, "cat", 10)
    # The shorter text has the higher share of the word.
    assert [candidate.chunk.id for candidate in found] == ["1", "0"]
    np.testing.assert_allclose([one.similarity for one in found], cosines_of(found, np.ones(8)), atol=1e-6)
    assert {candidate.chunk.id for candidate in by_words(index, "FOX run", 10)} == {"0", "2"}
    assert by_words(index, "unheard", 10) == []
    assert [one.chunk.id for one in by_words(index, "0f" * 64, 10)] == ["4"]


@settings(max_examples=25, deadline=None)
@given(query=st.text(max_size=30), wrapping=st.sampled_from(["{}", 'red AND ("{}', "text:{}* -", "'{}\\", "\0{}~2^3"]))
def test_no_character_of_a_text_query_has_a_meaning(index, wrapping, query):
    assert len(by_words(index, wrapping.format(query), 4)) <= 4


def test_words_that_no_space_divides_are_found(tmp_path):
    # Among many texts of another script, too.
    texts = {"0": "罗马是意大利的首都。", "1": "柏林是德国的首都。", "2": "Berlin in brief"}
    texts = {f"page {row}": f"Page {row} of many" for row in range(120)} | texts
    index = ChunkIndex.build(tmp_path, [Chunk(name, text) for name, text in texts.items()], MiniLMEmbedder())
    question = "德国的首都是什么?"
    assert by_words(index, question, 3)[0].chunk.id == "1"
    assert by_words(index, "the Berlin", 3)[0].chunk.id == "2"
    # MiniLM does not read the question, so words alone rank.
    [hybrid] = index.retrieve_many([question], MiniLMEmbedder().embed([question]), 3)
    assert [one.chunk.id for one in hybrid] == [one.chunk.id for one in by_words(index, question, 3)]


def cosines_of(candidates, vector):
    embedded = HashEmbedder().embed([candidate.chunk.text for candidate in candidates])
    return embedded @ (vector / np.linalg.norm(vector))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 80), words=st.lists(st.sampled_from(WORDS), max_size=4))
def test_hybrid_retrieval_joins_both_rankings(index, seed, k, words):
    vector, query = np.random.default_rng(seed).normal(size=8) * 3, " ".join(words)
    found = index.retrieve(query, vector, k, "hybrid")
    near, by_text = nearest(index, vector, FUSED_DEPTH), by_words(index, query, FUSED_DEPTH)
    scores = {}
    for ranking in (near, by_text):
        for rank, candidate in enumerate(ranking, start=1):
            scores[candidate.chunk.id] = scores.get(candidate.chunk.id, 0) + 1 / (60 + rank)
    own = [scores[candidate.chunk.id] for candidate in found]
    assert own == sorted(scores.values(), reverse=True)[:k]
    np.testing.assert_allclose([one.similarity for one in found], cosines_of(found, vector), atol=1e-6)
    # `top-k` follows the joined ranking.
    assert [one.rank for one in found] == list(range(len(found)))
    taken = corag.selector("top-k", k=3).select("?", found[::-1], 10_000).ids
    assert taken == tuple(one.chunk.id for one in found[:3])


def test_every_text_survives_and_a_complete_index_is_opened_at_once_without_a_write(tmp_path):
    texts = ["", "a\0b", "😀👩‍👩‍👧", "שלום עולם", "line\r\nbreak\u2028", "quote ' \" \\", "e\u0301", "\ufeff"]
    odd = [
        Chunk(f"id '{text}\" {i}", text, {"title": text, "nested": {"n": [1, 2.5, None]}})
        for i, text in enumerate(texts)
    ]
    index = ChunkIndex.build(tmp_path / "new" / "folder", iter(odd), HashEmbedder())
    before, embedder = listing(tmp_path), HashEmbedder()
    again = ChunkIndex.build(tmp_path / "new" / "folder", odd, embedder)
    assert list(index.chunks()) == list(again.chunks()) == odd
    assert embedder.num_embedded == 0 and listing(tmp_path) == before


def cut_off(folder):
    for path in folder.glob("corag_chunks.lance/data/*"):
        path.write_bytes(path.read_bytes()[:1000])


def garble_versions(folder):
    for path in folder.glob("*/_versions/*"):
        path.write_bytes(b"garbage" * 20)


def make_lance_panic(folder):
    newest = min((folder / "corag_chunks.lance" / "_versions").glob("*.manifest"))
    content = newest.read_bytes()
    newest.write_bytes(content[:1] + b"\xff" + content[2:])  # the length of its first message


def newer_format(folder):
    record = asdict(ChunkIndex.open(folder).manifest) | {"format_version": FORMAT_VERSION + 1, "novelty": True}
    table = lancedb.connect(folder).open_table("corag_manifest")
    table.add([{"record": json.dumps(record), "files": "{}"}], mode="overwrite")


@pytest.mark.parametrize("damage", [cut_off, garble_versions, make_lance_panic, newer_format])
def test_a_damaged_index_is_refused_and_overwriting_repairs_it(tmp_path, chunks, damage):
    ChunkIndex.build(tmp_path, chunks, HashEmbedder())
    damage(tmp_path)
    with pytest.raises(CoragError):
        ChunkIndex.build(tmp_path, chunks, HashEmbedder())
    index = ChunkIndex.build(tmp_path, chunks, HashEmbedder(), overwrite=True)
    assert list(index.chunks()) == chunks


@pytest.mark.parametrize("old", [[], [Chunk("old", "an old text")]])
def test_what_was_stored_after_a_torn_file_is_stored_again(tmp_path, chunks, old):
    if old:
        ChunkIndex.build(tmp_path, old, HashEmbedder())
    with pytest.raises(KeyboardInterrupt):
        ChunkIndex.build(tmp_path, chunks, StoppedEmbedder(40), batch_size=8, overwrite=True)
    files = sorted((tmp_path / "corag_chunks.lance" / "data").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    torn = files[len(old) + 2]
    torn.write_bytes(torn.read_bytes()[:1000])
    assert not old or list(ChunkIndex.open(tmp_path).chunks()) == old
    embedder = HashEmbedder()
    assert list(ChunkIndex.build(tmp_path, chunks, embedder, batch_size=8, overwrite=bool(old)).chunks()) == chunks
    assert embedder.num_embedded == len(chunks) - 16


def recall(index, rows, k, where=None):
    """The share of the nearest chunks that 20 searches find; cosines are exact."""
    queries = np.random.default_rng(1).normal(size=(20, index.manifest.dimension)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    num_found = 0
    for query, candidates in zip(queries, index.retrieve_many([""] * 20, queries, k, "vector", where), strict=True):
        cosines = {chunk.id: float(vector @ query) for chunk, vector in rows}
        assert len(candidates) == min(k, len(rows))
        for candidate in candidates:
            assert candidate.similarity == pytest.approx(cosines[candidate.chunk.id], abs=1e-6)
        best = sorted(cosines, key=lambda name: -cosines[name])[:k]
        num_found += len({candidate.chunk.id for candidate in candidates} & set(best))
    return num_found / (20 * min(k, len(rows)))


def test_a_large_index_searches_partitions_unless_too_few_chunks_are_in_them(tmp_path):
    chunks, embedder = make_chunks(10_000), HashEmbedder()
    chunks = [replace(chunk, metadata={"number": number}) for number, chunk in enumerate(chunks)]
    index = ChunkIndex.build(tmp_path, chunks, embedder, batch_size=5000)
    assert {"FTS", "IvfRq"} == {one.index_type for one in table_of(tmp_path).list_indices()}
    rows = list(zip(chunks, embedder.embed([chunk.text for chunk in chunks]), strict=True))
    assert recall(index, rows, 10) >= 0.98
    one = ChunkIndex.open(index.uri, probes=1)
    assert recall(one, rows, 10) < 0.9  # it searches no other
    # Fewer rows in the partitions probed than are asked for, or that a filter leaves: it looks at all.
    assert recall(one, rows, 2500) >= 0.98
    assert recall(one, rows[500:507], 10, {"number": {">=": 500, "<": 507}}) == 1


def test_another_embedder_or_corpus_is_refused_and_nothing_changes(tmp_path, chunks):
    ChunkIndex.build(tmp_path, chunks, HashEmbedder())
    before = listing(tmp_path)
    other = HashEmbedder(name="other")
    changed = [replace(chunks[0], metadata={}), *chunks[1:]]
    for refused in (
        lambda: ChunkIndex.open(tmp_path, other),
        lambda: ChunkIndex.build(tmp_path, chunks, other),
        lambda: ChunkIndex.build(tmp_path, changed, HashEmbedder()),
    ):
        with pytest.raises(IndexMismatchError, match="--overwrite"):
            refused()
    assert listing(tmp_path) == before


@pytest.mark.parametrize("bad", [[], [Chunk("a", "x"), Chunk("a", "z")], [Chunk("a", "x", {"when": object()})]])
def test_what_cannot_be_indexed_or_opened_leaves_no_trace(tmp_path, bad):
    with pytest.raises(DataError):
        ChunkIndex.build(tmp_path / "new", iter(bad), HashEmbedder())
    with pytest.raises(IndexMismatchError):
        ChunkIndex.open(tmp_path / "new")
    with pytest.raises(InputError):
        ChunkIndex.open("ftp://host/index")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def bucket(monkeypatch):
    """The address of an empty bucket of an S3-compatible server on loopback, with credentials from the environment."""
    import boto3
    from moto.server import ThreadedMotoServer

    storage = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    storage.start()
    host, port = storage.get_host_and_port()
    variables = {
        "AWS_ENDPOINT": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT"]).create_bucket(Bucket="corag-tests")
    yield "s3://corag-tests"
    storage.stop()


def test_an_index_on_object_storage_is_that_of_a_local_folder(bucket, tmp_path):
    uri, chunks = f"{bucket}/index", make_chunks(40)
    there = ChunkIndex.build(uri, chunks, HashEmbedder(), batch_size=10)
    here = ChunkIndex.build(tmp_path / "index", chunks, HashEmbedder(), batch_size=10)
    assert list(ChunkIndex.open(uri).chunks()) == list(here.chunks()) == chunks
    np.testing.assert_array_equal(there.vectors(), here.vectors())
    [vector] = HashEmbedder().embed([chunks[0].text])
    assert there.retrieve("red river", vector, 7) == here.retrieve("red river", vector, 7)
    embedder = HashEmbedder()
    ChunkIndex.build(uri, chunks, embedder)
    assert embedder.num_embedded == 0
