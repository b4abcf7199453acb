"""RAPTOR: trees that repeat, grow and survive a folder, over chunks or an index; retrieval in a budget."""

from dataclasses import replace

import numpy as np
import pytest

import corag
from corag import Chunk
from corag.candidates import as_candidates
from corag.errors import DataError, IndexMismatchError
from corag.index import ChunkIndex
from corag.models.embedders import CachedEmbedder
from corag.selecting import with_missing_cosines
from corag.selectors.raptor.build import build_tree, is_current, load_tree, update_tree
from corag.selectors.raptor.tree import Node, RaptorTree
from tests.fakes import CHARACTERS, FakeSummarizer, HashEmbedder, SignEmbedder, offer

pytestmark = pytest.mark.slow


class TopicEmbedder(HashEmbedder):
    """Texts of one topic, named by their first word, lie close together."""

    def __init__(self):
        super().__init__("topic")

    def embed(self, texts):
        vectors = super().embed([text.split()[0] for text in texts]) + 0.1 * super().embed(texts)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def first_of_all():
    """A summarizer that says the first word, marked."""
    return FakeSummarizer(lambda request: f"{request.texts[0].split()[0]} sum of {len(request.texts)}")


def topics(number, size):
    return [
        Chunk(f"{topic}-{place}", f"topic{topic} text number {place}")
        for topic in range(number)
        for place in range(size)
    ]


def build(chunks):
    return build_tree(chunks, CachedEmbedder(TopicEmbedder()), first_of_all(), 100)


def test_a_tree_groups_topics_and_repeats():
    chunks = topics(5, 8)
    tree = build(chunks)
    assert [(node.id, node.text) for node in tree.layer(0)] == [(chunk.id, chunk.text) for chunk in chunks]
    assert len({node.id for node in tree.nodes}) == len(tree.nodes) == len(tree.vectors)
    by_id = {node.id: node for node in tree.nodes}
    for node in tree.nodes:
        children = [by_id[child] for child in node.children]
        assert all(child.layer == node.layer - 1 for child in children)
        assert bool(children) == (node.layer > 0)
        if children:
            assert set(node.sources) == {source for child in children for source in child.sources}
    for number in range(1, tree.num_layers):
        below = {child for node in tree.layer(number) for child in node.children}
        assert below == {node.id for node in tree.layer(number - 1)}
    assert np.allclose(tree.vectors, TopicEmbedder().embed([node.text for node in tree.nodes]), atol=1e-6)
    assert tree.num_layers >= 2
    assert all(len({source.split("-")[0] for source in node.sources}) == 1 for node in tree.layer(1))
    again = build(chunks)
    assert again.nodes == tree.nodes
    assert (again.vectors == tree.vectors).all()


def hand_made():
    nodes = [
        *(Node(name, f"text {name}", 0, (), (name,)) for name in "abcd"),
        Node("1/0", "sum ab", 1, ("a", "b"), ("a", "b")),
        Node("1/1", "sum cd", 1, ("c", "d"), ("c", "d")),
    ]
    angles = np.deg2rad([30, 0, 50, 90, 20, 70])
    return RaptorTree(tuple(nodes), np.column_stack([np.cos(angles), np.sin(angles)]), "sign")


@pytest.mark.parametrize(
    ("budget", "texts", "ids"),
    [
        (100, ["text b", "sum ab", "text a", "text c", "sum cd", "text d"], "b 1/0 a c 1/1 d"),
        (6, ["text b"], "b"),
        (5, [], ""),
    ],
)
def test_all_nodes_of_a_tree_are_searched_whatever_the_candidates(budget, texts, ids):
    expected = "\n\n".join(texts), tuple(ids.split())
    given_ = {"tree": hand_made(), "embedder": SignEmbedder(), "tokenizer": CHARACTERS}
    made = corag.selector("raptor", **given_)
    for pool in ([], offer("another text")):
        selection = made.select("?", pool, budget)
        assert (selection.text, selection.ids) == expected
    [together] = made.select_many(["?"], [[]], budget)
    assert (together.text, together.ids) == expected
    for chunk, (begin, end) in zip(selection.chunks, selection.spans, strict=True):
        assert selection.text[begin:end] == chunk.text
        if chunk.text == "sum ab":
            assert chunk.metadata == {"layer": 1, "children": ["a", "b"]}


CHUNKS = [replace(chunk, metadata={"title": "T"}) for chunk in topics(6, 9)]


@pytest.fixture
def index(tmp_path):
    return ChunkIndex.build(tmp_path / "index", CHUNKS, TopicEmbedder())


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
    loaded = load_tree(index.uri)
    assert (loaded.nodes, loaded.embedder, loaded.record) == (tree.nodes, tree.embedder, tree.record)
    np.testing.assert_array_equal(loaded.vectors, tree.vectors)
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


def test_a_tree_that_is_damaged_is_refused_and_built_anew(tmp_path, index):
    tree, _ = update_tree(index, TopicEmbedder(), first_of_all())
    (tmp_path / "index" / "raptor" / "tree.npz").write_text("")
    assert not is_current(index)
    with pytest.raises(DataError):
        corag.selector("raptor", tree=index.uri)
    asked = first_of_all()
    again, built = update_tree(index, TopicEmbedder(), asked)
    assert built and again.nodes == tree.nodes and not asked.asked
    np.savez(tmp_path / "tree.npz", vectors=np.array([{"a": 1}], dtype=object), tree=np.array([0]))  # a pickle
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(DataError):
            corag.selector("raptor", tree=folder)


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


def test_candidates_are_not_embedded_where_a_tree_is_given():
    tree = build(topics(2, 3))
    texts = [f"text {row}" for row in range(200)]
    selector = corag.selector("raptor", tree=tree, embedder=TopicEmbedder(), tokenizer=CHARACTERS)
    candidates = as_candidates(texts)
    assert with_missing_cosines("topic1 text", candidates, 60, selector) is candidates
    assert selector.select("topic1 text", texts, 60).text.startswith("topic1")
    assert corag.selector("raptor", embedder=TopicEmbedder()).compares
