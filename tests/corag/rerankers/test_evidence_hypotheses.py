"""Which sets are hypotheses, how they are described, and what the network makes of them."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest

from corag.rerankers.evidence.hypotheses import (
    CORES,
    HEADS,
    MAX_LISTED,
    MAX_SIZE,
    NUM_FEATURES,
    PARTNERS,
    features,
    sets_of,
    weigh,
)
from corag.rerankers.evidence.network import Ensemble
from corag.rerankers.evidence.signals import PAIRS, SINGLES
from tests.corag.rerankers.evidence_worlds import signals_of

NUM_SINGLES, NUM_PAIRS = len(SINGLES), len(PAIRS)


def by_cosine(table):
    return 5 * table[:, SINGLES.index("cosine")]


@pytest.mark.parametrize(
    ("num_candidates", "max_size", "expected"), [(0, 4, 1), (1, 4, 2), (3, 1, 4), (3, 4, 8), (5, 2, 16), (6, 4, 57)]
)
def test_all_sets_up_to_the_size_are_hypotheses(num_candidates, max_size, expected):
    found = weigh(signals_of(num_candidates), max_size, by_cosine)
    assert len(found.sets) == len(set(found.sets)) == len(found.logits) == expected
    assert found.sets[0] == ()
    assert found.logits[0] == 0
    assert all(tuple(sorted(chosen)) == chosen for chosen in found.sets)
    for chosen, members in zip(found.sets, found.members, strict=True):
        assert tuple(np.flatnonzero(members)) == chosen


def test_of_many_candidates_the_most_promising_sets_are_hypotheses():
    num_candidates = MAX_LISTED + 40
    given = signals_of(num_candidates)
    given.singles[:, SINGLES.index("cosine")] = np.linspace(0, 1, num_candidates)  # the worse-ranked are the better
    found = weigh(given, MAX_SIZE, by_cosine)
    sets = found.sets
    assert len(sets) == len(set(sets)) == len(found.logits) < 5000
    of_size = {size: {chosen for chosen in sets if len(chosen) == size} for size in range(MAX_SIZE + 1)}
    assert len(of_size[1]) == num_candidates
    heads = range(num_candidates - HEADS, num_candidates)
    assert of_size[2] == {pair for pair in combinations(range(num_candidates), 2) if pair[1] in heads}
    for size in range(3, MAX_SIZE + 1):
        core = set(combinations(range(num_candidates - CORES[size], num_candidates), size))
        assert core <= of_size[size]
        best = max(of_size[size - 1], key=lambda chosen: found.logits[sets.index(chosen)])
        partners = set(range(num_candidates - PARTNERS, num_candidates)) - {*best}
        assert {tuple(sorted((*best, partner))) for partner in partners} <= of_size[size]


def test_a_set_is_described_by_its_chunks_pairs_and_cover():
    assert_allclose = partial(np.testing.assert_allclose, rtol=1e-6)  # they are in single precision
    given = signals_of(4)
    (row,) = features(given, np.array([[0, 2, 3]]))
    assert row.shape == (NUM_FEATURES,)
    chosen = [0, 2, 3]
    assert_allclose(row[:NUM_SINGLES], given.singles[chosen].mean(0))
    assert_allclose(row[NUM_SINGLES : 2 * NUM_SINGLES], given.singles[chosen].min(0))
    assert_allclose(row[2 * NUM_SINGLES : 3 * NUM_SINGLES], given.singles[chosen].max(0))
    either = np.maximum(given.pairs, given.pairs.transpose(1, 0, 2))
    a, b, c = either[0, 2], either[0, 3], either[2, 3]
    start = 3 * NUM_SINGLES
    assert_allclose(row[start : start + NUM_PAIRS], (a + b + c) / 3)
    assert_allclose(row[start + NUM_PAIRS : start + 2 * NUM_PAIRS], np.max([a, b, c], axis=0))
    least_best = np.min([np.maximum(a, b), np.maximum(a, c), np.maximum(b, c)], axis=0)
    assert_allclose(row[start + 2 * NUM_PAIRS : start + 3 * NUM_PAIRS], least_best)
    nearest, held = given.nearest[chosen].max(0), given.held[chosen].max(0)
    start += 3 * NUM_PAIRS
    assert_allclose(row[start : start + 4], [nearest.mean(), nearest.mean(), held.mean(), nearest.min()])
    np.testing.assert_array_equal(row[start + 4 : start + 8], [0, 0, 1, 0])
    assert_allclose(row[start + 8 : start + 28].reshape(4, -1), np.outer([0, 0, 1, 0], given.flags))


def test_a_set_is_described_alike_whoever_stands_beside_it():
    given = signals_of(6)
    sets = sets_of(3, range(6))
    together = features(given, sets)
    np.testing.assert_array_equal(together[7], features(given, sets[7:8])[0])


@pytest.mark.slow
def test_the_network_is_what_torch_makes_of_the_same_weights():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    shapes = {"mean": 5, "linear": (2, 5), "bias": 2, "hidden": (2, 3, 5), "hidden_bias": (2, 3), "output": (2, 3)}
    given = {name: rng.normal(size=shape) for name, shape in shapes.items()} | {"scale": rng.random(5) + 0.5}
    rows = np.random.default_rng(1).normal(size=(7, 5)) * 20
    x = np.clip((rows - given["mean"]) / given["scale"], -8, 8)
    expected = [
        x @ given["linear"][m]
        + given["bias"][m]
        + torch.nn.functional.gelu(
            torch.from_numpy(x @ given["hidden"][m].T + given["hidden_bias"][m]), approximate="tanh"
        ).numpy()
        @ given["output"][m]
        for m in range(2)
    ]
    # It runs in fp32.
    np.testing.assert_allclose(Ensemble.from_tensors(given)(rows), np.mean(expected, axis=0), rtol=1e-6, atol=1e-5)
