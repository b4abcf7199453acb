"""RAPTOR: soft clusters that do not overfit, trees that repeat, grow and survive a folder, retrieval in a budget."""

import json

import numpy as np
import pytest

import corag
from corag.errors import DataError, IndexMismatchError
from corag.models.embedders import CachedEmbedder
from corag.selectors.raptor.build import build_tree
from corag.selectors.raptor.tree import Node, RaptorTree
from tests.corag.selectors.topics import TopicEmbedder, first_of_all, topics
from tests.fakes import CHARACTERS, SignEmbedder, offer

pytestmark = pytest.mark.slow


def build(chunks):
    return build_tree(chunks, CachedEmbedder(TopicEmbedder()), first_of_all(), 100)


def test_a_tree_groups_topics_and_repeats():
    chunks = topics(5, 8)
    tree = build(chunks)
    assert [(node.id, node.text) for node in tree.layer(0)] == [(chunk.id, chunk.text) for chunk in chunks]
    assert len({node.id for node in tree.nodes}) == len(tree.nodes) == len(tree.vectors)
    for node in tree.nodes:
        children = [tree.nodes[tree.positions[child]] for child in node.children]
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


def test_a_folder_without_a_whole_tree(tmp_path):
    def refused(error):
        with pytest.raises(error):
            RaptorTree.load(tmp_path)

    refused(DataError)
    tree = build(topics(1, 6))
    tree.save(tmp_path)
    content = json.loads((tmp_path / "tree.json").read_text())
    np.save(tmp_path / "vectors.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused(DataError)
    (tmp_path / "tree.json").write_text(json.dumps(content | {"version": 99}))
    refused(IndexMismatchError)


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
