"""What orders are worth, worked out by hand from few hypotheses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.rerankers.evidence.hypotheses import Hypotheses
from corag.rerankers.evidence.values import EvidenceScorer, Weights

PLAIN = Weights(temperature=1.0, share=0.5, sequence=0.0, slope=2.0, offset=-1.0)


def scorer_of(probabilities, num_candidates, weights=PLAIN, tokens=None, before=None):
    """A scorer with these probabilities of sets, the empty set among them."""
    sets = tuple(probabilities)
    members = np.array([[index in chosen for index in range(num_candidates)] for chosen in sets])
    logits = np.log(np.array(list(probabilities.values())))
    return EvidenceScorer(
        Hypotheses(members.reshape(len(sets), num_candidates), logits),
        np.full(num_candidates, 256.0) if tokens is None else np.array(tokens, dtype=float),
        np.zeros((num_candidates, num_candidates)) if before is None else np.array(before, dtype=float),
        weights,
        np.zeros(num_candidates, dtype=bool),
    )


def utility(value, weights=PLAIN):
    return (np.log(value / (1 - value)) - weights.offset) / weights.slope


def test_values_by_hand():
    # If the evidence is there (8 in 10), it is {0, 1} with 3/4 and {2} with 1/4.
    scorer = scorer_of({(): 0.2, (0, 1): 0.6, (2,): 0.2}, 3)
    assert scorer.answerable == pytest.approx(0.8)
    np.testing.assert_allclose(scorer.shares, [3 / 8, 3 / 8, 1 / 4])
    np.testing.assert_allclose(scorer.complete([(0,), (0, 1), (2,), (2, 1, 0), ()]), [0, 3 / 4, 1 / 4, 1, 0])
    values = scorer([(0,), (0, 1), (2,), (0, 1, 2)])
    expected = [3 / 16, 3 / 4 + 3 / 8, 1 / 4 + 1 / 8, 1 + 1 / 2]
    np.testing.assert_allclose(utility(values), 0.8 * np.array(expected))


@given(st.integers(0, 150), st.data())
def test_the_probability_that_an_order_is_complete_is_that_of_the_sets_it_holds(num_candidates, data):
    index = st.integers(0, max(0, num_candidates - 1))
    sets = st.frozensets(index, min_size=1, max_size=5) if num_candidates else st.nothing()
    found = data.draw(st.lists(sets, unique=True, max_size=6) if num_candidates else st.just([]))
    scorer = scorer_of(
        {(): 0.5, **{tuple(sorted(one)): 0.1 * (row + 1) for row, one in enumerate(found)}}, num_candidates
    )
    orders = data.draw(st.lists(st.lists(index, unique=True, max_size=8).map(tuple), max_size=5)) if found else [()]
    total = sum(0.1 * (row + 1) for row in range(len(found))) or 1.0
    expected = [sum(0.1 * (row + 1) for row, one in enumerate(found) if one <= {*order}) / total for order in orders]
    np.testing.assert_allclose(scorer.complete(orders), expected, atol=1e-12)


def test_a_telling_order_is_worth_more_and_only_where_both_are_evidence():
    before = np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 0]])
    weights = Weights(share=0.5, sequence=0.02)
    scorer = scorer_of({(): 0.1, (0, 1): 0.6, (0, 2): 0.3}, 3, weights, before=before)
    assert scorer.order_matters
    first, second = utility(scorer([(0, 1), (1, 0)]), weights) / 0.9
    assert first - second == pytest.approx(2 * 0.02 * 2 / 3)
    values = scorer([(0, 2), (2, 0), (0, 1, 2), (2, 0, 1)])
    assert values[0] == values[1]
    assert values[2] == values[3]
