"""The growing factorisation against Gaussian process regression as the book has it, and features counted by hand."""

from __future__ import annotations

from dataclasses import asdict, astuple
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.bayesian.gaussian_process import PRIORS, GaussianProcess, Prior, largest, unit_expected_improvement
from search.bayesian.kernel import Pool
from search.orders import OrderSpace

COSTS, BUDGET = [3, 1, 2, 2, 4], 9


def components(one, other):
    """What two orders have in common, counted the plain way, in the order of `Pool.COMPONENTS`."""

    def means(order):
        share = sum(COSTS[chunk] for chunk in order) / BUDGET
        return np.array([1, len(order), len(order) * (len(order) - 1) / 2, share, share**2])

    def unordered(order):
        return {frozenset(pair) for pair in combinations(order, 2)}

    def adjacent(order):
        return set(pairwise(order))

    return [
        *(means(one) * means(other)),
        len(set(one) & set(other)),
        len(unordered(one) & unordered(other)),
        len(adjacent(one) & adjacent(other)),
        float(set(one) == set(other)),
        float(one == other),
    ]


def dense(orders, scored, values, first_round):
    """Mean, deviation and shares by inverting the whole matrix, `[M, P]`, `[M, P]`, `[M]`, in the process's unit."""
    differences = np.array(values) - values[0]
    targets = differences / np.abs(differences[:first_round]).max()
    everything = np.array([[components(one, other) for other in orders] for one in orders])
    means, deviations, evidences = [], [], []
    for prior in PRIORS:
        covariance = everything @ np.array(astuple(prior))
        among = covariance[np.ix_(scored, scored)]
        across = covariance[scored]
        power = targets @ np.linalg.solve(among, targets)
        variance = np.diag(covariance) - (across * np.linalg.solve(among, across)).sum(0)
        means.append(across.T @ np.linalg.solve(among, targets))
        deviations.append(np.sqrt(np.maximum(variance, 0) * power / (len(scored) - 1)))
        evidences.append(-len(scored) / 2 * np.log(power) - np.linalg.slogdet(among)[1] / 2)
    shares = np.exp(np.array(evidences) - max(evidences))
    return np.array(means), np.array(deviations), shares / shares.sum()


def observed(batches, value_of, parts=1):
    """A pool that grew in parts, and a process that saw batches of rows of it; rows are of the first part."""
    space = OrderSpace(np.array(COSTS), BUDGET)
    rows = space.enumerate(10_000)
    pool = Pool(space.costs, BUDGET, space.max_length)
    process = GaussianProcess(pool)
    cuts = np.linspace(len(rows) // parts, len(rows), parts).astype(int).tolist()
    process.extend(pool.add(rows[: cuts[0]]))
    for number, batch in enumerate(batches):
        process.condition(batch)
        process.observe(np.array([value_of(pool.order(row)) for row in batch]))
        if number + 1 < len(cuts):
            process.extend(pool.add(rows[: cuts[number + 1]]))  # the old ones are known
    return pool, process


def value_of(order):
    return sum(0.3 * chunk - 0.1 * place * chunk for place, chunk in enumerate(order)) + 0.05 * len(order) ** 2 + 7


BATCHES = ([3, 0, 17, 40, 8], [60, 21, 2], [33, 35, 7, 11])


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
def test_equals_dense_regression(parts, scale):
    pool, process = observed(BATCHES, lambda order: scale * value_of(order), parts)
    orders = [pool.order(row) for row in range(len(pool))]
    scored = [row for batch in BATCHES for row in batch]
    means, deviations, shares = dense(orders, scored, [value_of(orders[row]) for row in scored], len(BATCHES[0]))
    rest = np.flatnonzero(process.open)
    assert set(rest) == set(range(len(pool))) - set(scored)
    bound = process.upper_confidence_bound()
    assert bound == pytest.approx(shares @ (means + 2 * deviations), rel=1e-6, abs=1e-5)
    assert process.upper_confidence_bound(slice(5)).tolist() == pytest.approx(bound[:5].tolist())

    best = max(value_of(orders[row]) for row in scored)
    differences = np.array([value_of(orders[row]) for row in scored[:5]]) - value_of(orders[3])
    ahead = (best - value_of(orders[3])) / np.abs(differences).max()
    gains = process.expected_improvement(scale * best)
    assert gains[7:].tolist() == pytest.approx(process.expected_improvement(scale * best, slice(7, None)).tolist())
    for row in rest[::9].tolist():
        expected = sum(
            share * integrated_gain(mean - ahead, deviation)
            for share, mean, deviation in zip(shares, means[:, row], deviations[:, row], strict=True)
            if share > 0.01
        )
        assert gains[row] == pytest.approx(expected, abs=1e-5)


def test_a_batch_is_of_open_rows_that_differ():
    pool, process = observed(BATCHES, value_of)
    gains = np.ones(len(pool))  # so that only what the rows tell about each other counts
    rows = process.batch(gains, 8, 0.0)
    assert len(set(rows)) == 8 and process.open[rows].all()
    assert process.batch(gains, 8, 1.0) == []
    gains[:] = 0.0
    gains[[50, 51]] = 1.0
    assert sorted(process.batch(gains, 8, 0.5)) == [50, 51]
    process.condition([50])
    assert process.batch(gains, 8, 0.5) == [51]


def test_dropped_orders_change_nothing_for_the_others():
    (_, whole), (pool, process) = observed(BATCHES, value_of), observed(BATCHES, value_of)
    kept = np.union1d(process.rows, np.arange(0, len(pool), 3))
    orders = [pool.order(row) for row in kept]
    process.keep(kept)
    assert [pool.order(row) for row in range(len(pool))] == orders
    for some, row in ((whole, 66), (process, int(kept.searchsorted(66)))):
        some.condition([row])
        some.observe(np.array([3.0]))
    assert process.upper_confidence_bound() == pytest.approx(whole.upper_confidence_bound()[kept], rel=1e-9)
    assert (process.open == whole.open[kept]).all()


def test_priors_that_the_values_rule_out_are_dropped():
    _, process = observed([list(range(40))], lambda order: float(len(order)))
    assert len(process._shares) < len(PRIORS)
    assert np.isfinite(process.upper_confidence_bound()).all()


def test_largest_are_in_order_and_the_earlier_of_equals():
    scores = np.array([1.0, 3.0, -np.inf, 3.0, 2.0, 1.0])
    assert largest(scores, 4).tolist() == [1, 3, 4, 0]
    assert largest(scores, 9).tolist() == [1, 3, 4, 0, 5]


def integrated_gain(mean, deviation):
    """Mean of max(x, 0) for x normal, by the trapezoidal rule."""
    z = np.linspace(-12, 12, 40_001)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return np.trapezoid(np.maximum(mean + deviation * z, 0) * density, z)


@pytest.mark.parametrize("z", [-7.3, -3.0, -1.0, -0.001, 0.0, 0.4, 2.0, 7.99, 8.0, 30.0])
def test_unit_expected_improvement_equals_the_integral(z):
    assert unit_expected_improvement(np.array([z]))[0] == pytest.approx(integrated_gain(z, 1.0), abs=1e-6)


def test_unit_expected_improvement_far_out():
    assert unit_expected_improvement(np.array([-1e300, -50.0, 1e300])).tolist() == [pytest.approx(0, abs=1e-12)] * 2 + [
        1e300
    ]


@given(st.permutations(range(5)), st.permutations(range(5)), st.integers(1, 5), st.integers(1, 5))
def test_components_are_what_orders_have_in_common(one, other, num_one, num_other):
    orders = tuple(one[:num_one]), tuple(other[:num_other])
    space = OrderSpace(np.array(COSTS), sum(COSTS))
    pool = Pool(space.costs, BUDGET, space.max_length)
    pool.add(space.rows([*orders, (0, 1, 2)]))
    last = next(row for row in range(len(pool)) if pool.order(row) == orders[1])
    found = pool.covariance(np.eye(10), np.array([0]), slice(last, last + 1))[:, 0, 0]
    assert found == pytest.approx(components(*orders))
    assert pool.variance(np.eye(10), slice(0, 1))[:, 0] == pytest.approx(components(orders[0], orders[0]))


def test_a_pool_takes_each_order_once():
    space = OrderSpace(np.array(COSTS), BUDGET)
    pool = Pool(space.costs, BUDGET, space.max_length)
    assert pool.add(space.rows([(0,), (1, 2)])) == slice(0, 2)
    assert pool.add(space.rows([(1, 2), (2, 1)])) == slice(2, 3)
    assert [pool.order(row) for row in range(len(pool))] == [(0,), (1, 2), (2, 1)]


def test_priors_are_in_the_order_of_the_components():
    assert tuple(asdict(Prior())) == Pool.COMPONENTS


def test_equal_values_are_flat_until_one_differs():
    _, process = observed([[0, 1, 2]], lambda order: 0.1)
    assert process.flat
    process.condition([5])
    process.observe(np.array([0.2]))
    assert not process.flat


def test_more_orders_than_there_was_room_for():
    batches = [list(range(start, start + 8)) for start in range(0, 104, 8)]
    pool, process = observed(batches, rough)
    orders = [pool.order(row) for row in range(len(pool))]
    means, deviations, shares = dense(orders, list(range(104)), [rough(orders[row]) for row in range(104)], 8)
    assert process.upper_confidence_bound() == pytest.approx(shares @ (means + 2 * deviations), abs=1e-3)


def rough(order):
    """Values of which no prior is ruled out soon."""
    return value_of(order) + 0.02 * (hash(order) % 7)
