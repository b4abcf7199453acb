import numpy as np

from search import SearchTree


def test_root():
    tree = SearchTree(np.array([3, 1]), 4)
    assert len(tree) == 1
    assert tree.order(tree.ROOT) == ()
    assert tree.parent[tree.ROOT] == tree.NO_PARENT
    assert tree.chunk[tree.ROOT] == tree.NO_CHUNK
    assert not tree.num_children[tree.ROOT]
    assert not tree.closed[tree.ROOT]


def test_children_lie_side_by_side_and_know_their_end():
    tree = SearchTree(np.array([3, 1, 9, 1]), 4)
    assert tree.expand(tree.ROOT) == [(1,), (3,), (0,)]  # 9 never fits
    assert tree.children(tree.ROOT) == slice(1, 4)
    assert tree.cost[1:4].tolist() == [1, 1, 3]
    assert not tree.closed[1:4].any()  # every one can still be followed by one of cost 1
    assert tree.expand(3) == [(0, 1), (0, 3)]
    assert tree.closed[tree.children(3)].all()  # the budget is used up
    assert tree.expand(1) == [(1, 3), (1, 0)]
    assert tree.closed[tree.children(1)].tolist() == [True, True]  # (1, 3) costs 2, and 0 costs 3


def test_longest_orders_are_closed():
    tree = SearchTree(np.array([1, 1]), 9, max_length=1)
    tree.expand(tree.ROOT)
    assert tree.closed[1:3].all()


def test_grows_and_trims():
    tree = SearchTree(np.ones(200, dtype=np.int64), 10)
    tree.expand(tree.ROOT)
    tree.expand(1)
    assert len(tree) == 1 + 200 + 199
    assert len(tree.parent) >= len(tree)
    tree.trim()
    assert len(tree.parent) == len(tree.closed) == len(tree.value) == len(tree)
    assert tree.order(201) == (0, 1)
