"""Which sets are hypotheses, how they are described, and what the network makes of them."""

from itertools import combinations

import numpy as np
import pytest

from corag.rerankers.evidence.hypotheses import (
    CORES,
    HEADS,
    MAX_LISTED,
    MAX_SIZE,
    PARTNERS,
    weigh,
)
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
