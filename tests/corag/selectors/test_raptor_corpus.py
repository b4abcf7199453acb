"""A tree over the corpus of an index: whole or resumed the same, bound to the index's content, found by default."""

from dataclasses import replace

import numpy as np
import pytest

import corag
from corag import Chunk
from corag.errors import DataError, IndexMismatchError
from corag.index import ChunkIndex
from corag.models.embedders import CachedEmbedder
from corag.selectors.raptor.build import build_tree, is_current, load_tree, update_tree
from corag.selectors.raptor.tree import RaptorTree
from tests.corag.selectors.topics import TopicEmbedder, first_of_all, topics
from tests.fakes import CHARACTERS, HashEmbedder

pytestmark = pytest.mark.slow

CHUNKS = [replace(chunk, metadata={"title": "T"}) for chunk in topics(6, 9)]


@pytest.fixture
def index(tmp_path):
    return ChunkIndex.build(tmp_path / "index", CHUNKS, TopicEmbedder())


def assert_same(one: RaptorTree, other: RaptorTree) -> None:
    assert (one.nodes, one.embedder, one.record) == (other.nodes, other.embedder, other.record)
    np.testing.assert_array_equal(one.vectors, other.vectors)


def test_a_tree_beside_an_index_is_that_over_its_chunks(index):
    summarizer, told = first_of_all(), []
    assert is_current(index)
    tree, built = update_tree(index, TopicEmbedder(), summarizer, report=lambda done, total: told.append((done, total)))
    plain = build_tree(CHUNKS, CachedEmbedder(TopicEmbedder()), first_of_all())
    assert built and tree.nodes == plain.nodes and tree.num_layers > 1
    np.testing.assert_allclose(tree.vectors, plain.vectors, atol=1e-6)
    assert [node.metadata for node in tree.layer(0)] == [{"title": "T"}] * len(CHUNKS)
    number = len(tree.nodes) - len(CHUNKS)
    assert len(summarizer.asked) == number and told[-1] == (number, number)
    assert all(done <= total for done, total in told) and told == sorted(told)
    assert_same(load_tree(index.uri), tree)
    assert is_current(index)
    # The index is as it was, and nothing is done twice.
    assert list(ChunkIndex.open(index.uri).chunks()) == CHUNKS
    again, built = update_tree(index, TopicEmbedder(), first_of_all())
    assert not built and again.nodes == tree.nodes


def test_a_tree_of_another_state_is_refused_and_brought_up_to_date(index):
    first = first_of_all()
    update_tree(index, TopicEmbedder(), first)
    changed = [*CHUNKS[:-1], Chunk("new", "topic5 a new text")]
    later = ChunkIndex.build(index.uri, changed, TopicEmbedder(), overwrite=True)
    assert not is_current(later)
    with pytest.raises(IndexMismatchError, match="--tree"):
        corag.selector("raptor", tree=index.uri)
    with pytest.raises(IndexMismatchError, match="--tree"):
        corag.ask("topic1 ?", later, method="raptor", embedder=TopicEmbedder(), reader="extractive")
    with pytest.raises(IndexMismatchError):
        update_tree(index, TopicEmbedder(), first_of_all())
    second = first_of_all()
    tree, built = update_tree(later, TopicEmbedder(), second)
    assert built and {node.id for node in tree.layer(0)} == {chunk.id for chunk in changed}
    assert 0 < len(second.asked) < len(first.asked)
    assert is_current(later) and load_tree(later.uri).nodes == tree.nodes


def test_a_damaged_tree_is_refused_and_built_anew(tmp_path, index):
    tree, _ = update_tree(index, TopicEmbedder(), first_of_all())
    (tmp_path / "index" / "raptor" / "vectors.npy").write_bytes(b"")
    assert not is_current(index)
    with pytest.raises(DataError):
        corag.selector("raptor", tree=index.uri)
    asked = first_of_all()
    again, built = update_tree(index, TopicEmbedder(), asked)
    assert built and again.nodes == tree.nodes and not asked.asked
    with pytest.raises(DataError):
        corag.selector("raptor", tree=tmp_path)


def test_asking_an_index_uses_its_tree(index):
    asked = {"embedder": TopicEmbedder(), "reader": "extractive", "tokenizer": CHARACTERS, "budget_tokens": 60}
    without = corag.selector("raptor", embedder=TopicEmbedder(), summarizer=first_of_all())
    assert corag.ask("topic3 ?", index, **asked | {"method": without}).selection.trace.details["nodes"] < len(CHUNKS)
    tree, _ = update_tree(index, TopicEmbedder(), first_of_all())
    own = corag.selector("raptor", tree=index.uri, embedder=TopicEmbedder(), tokenizer=CHARACTERS)
    reply = corag.ask("topic3 ?", index, **asked | {"method": own})
    assert reply.selection.trace.details["nodes"] == len(tree.nodes)
    assert any("topic3" in chunk.text for chunk in reply.selection.chunks)
    assert reply.selection.cost_tokens <= 60
    # A name takes the index's tree by itself, and another embedder than the tree's is refused.
    for source in (index, index.uri):
        corag.EMBEDDERS.parts["topic"] = TopicEmbedder
        try:
            by_name = corag.ask("topic3 ?", source, **asked | {"method": "raptor"})
        finally:
            del corag.EMBEDDERS.parts["topic"]
        assert by_name.selection.ids == reply.selection.ids
    with pytest.raises(IndexMismatchError):
        corag.selector("raptor", tree=index.uri, embedder=HashEmbedder()).select("?", [], 60)
