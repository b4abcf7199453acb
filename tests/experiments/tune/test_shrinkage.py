import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.tune.shrinkage import (
    OWN_WEIGHT,
    Estimate,
    Prior,
    estimate,
    prior_of,
    recentred,
    together,
    unknown_prior,
)


def names(number):
    return [str(n) for n in range(number)]


def test_the_prior_of_two_kinds_by_hand():
    # Within: squares 2 * .01 + 2 * .01 over 2 degrees of freedom = .02. Weights 2 / .02 = 100 each, so the centre is
    # .2, the excess 100 * (.01 + .01) - 1 = 1, and between = 1 / (200 - 20000 / 200) = .01.
    found = prior_of({"a": np.array([0.0, 0.2]), "b": np.array([0.2, 0.4])})
    assert found.within == pytest.approx(0.02)
    assert found.mean == pytest.approx(0.2)
    # The mean of two kinds, each with .01 between and .02 / 2 within: (.01 + .01) / 2.
    assert found.variance == pytest.approx(0.01 + 0.01)
    assert found.kinds == 2


def test_kinds_that_differ_by_chance_alone_have_no_variance_between_them():
    found = prior_of({"a": np.array([0.0, 0.4]), "b": np.array([0.1, 0.3])})
    # Nothing but the doubt about the mean: within .05, over four questions.
    assert found.variance == pytest.approx(found.within / 4)


def test_the_posterior_by_hand():
    prior = Prior(mean=-0.1, variance=0.01, within=0.04, kinds=3)
    gains = np.array([0.1, 0.3, 0.1, 0.3])
    # Within: (20 * .04 + 4 * .01) / 23, over 4 questions.
    variance = (OWN_WEIGHT * 0.04 + 0.04) / (OWN_WEIGHT + 3) / 4
    weight = 0.01 / (0.01 + variance)
    found = estimate(gains, names(4), prior)
    assert found.weight == pytest.approx(weight)
    assert found.posterior == pytest.approx(weight * 0.2 + (1 - weight) * -0.1)
    assert found.spread == pytest.approx(np.sqrt(0.01 * variance / (0.01 + variance)))
    assert (found.own, found.prior, found.questions) == (pytest.approx(0.2), -0.1, 4)


def test_without_own_questions_the_prior_stands():
    found = estimate(np.zeros(0), [], Prior(0.03, 0.04, 0.1, 5))
    assert found == Estimate(0.03, pytest.approx(0.2), None, 0.03, 0.0, 0)


def test_with_many_own_questions_their_best_wins_and_with_few_the_prior_s():
    random = np.random.default_rng(0)
    priors = {"liked": Prior(0.05, 0.0025, 0.09, 8), "own": Prior(-0.05, 0.0025, 0.09, 8)}

    def chosen(number):
        gains = {
            "liked": -0.04 + 0.3 * random.standard_normal(number),
            "own": 0.06 + 0.3 * random.standard_normal(number),
        }
        found = {name: estimate(gains[name], names(number), prior) for name, prior in priors.items()}
        return max(found, key=lambda name: found[name].cautious)

    assert chosen(3) == "liked"
    assert chosen(2000) == "own"


def test_what_gains_nothing_for_certain_is_not_counted_on():
    flat = estimate(np.zeros(50), names(50), Prior(0.0, 0.01, 0.01, 3))
    assert flat.posterior == 0 and flat.cautious < 0
    few, many = (
        estimate(np.tile([0.5, -0.3], number // 2), names(number), Prior(0.0, 0.01, 0.1, 3)) for number in (4, 4000)
    )
    assert few.cautious < 0 < few.posterior
    assert many.cautious == pytest.approx(0.1, abs=0.01)


def test_kinds_that_happen_to_agree_do_not_outvote_own_questions():
    sure, unsure = Prior(0.03, 0.0001, 0.05, 5), Prior(-0.02, 0.0099, 0.05, 10)
    found = together({"sure": sure, "unsure": unsure})
    assert found["unsure"] == unsure
    assert found["sure"].variance == pytest.approx(0.005) and found["sure"].mean == sure.mean
    losing = np.full(40, -0.1) + np.tile([0.2, -0.2], 20)
    assert estimate(losing, names(40), sure).posterior > 0 > estimate(losing, names(40), found["sure"]).posterior
    assert together({}) == {}


def test_questions_of_one_document_count_less_than_as_many_of_several():
    prior = Prior(0.0, 0.01, 0.02, 4)
    gains = np.repeat([0.3, -0.1, 0.2, 0.4, -0.2, 0.3], 10)
    apart = estimate(gains, names(60), prior)
    together = estimate(gains, [str(n // 10) for n in range(60)], prior)
    assert together.weight < apart.weight


def test_a_configuration_that_the_labels_lack_is_not_believed_to_be_better():
    found = unknown_prior([Prior(0.1, 0.01, 0.04, 4), Prior(-0.02, 0.01, 0.06, 4)])
    assert found.mean == 0.0
    assert found.within == pytest.approx(0.05)
    assert found.variance > 0.01
    assert found.kinds == 0
    assert unknown_prior([]).variance > 0


def test_parts_of_the_own_questions_start_from_the_whole():
    whole = estimate(np.full(100, 0.1), names(100), Prior(0.0, 0.01, 0.01, 4))
    assert recentred(Prior(0.0, 0.01, 0.01, 4), whole).mean == whole.posterior


GAINS = st.lists(st.floats(-1, 1), min_size=1, max_size=30).map(np.array)


@given(GAINS, st.floats(-0.5, 0.5), st.floats(1e-6, 1), st.floats(1e-6, 1))
@settings(max_examples=60, deadline=None)
def test_the_posterior_lies_between_prior_and_own_mean_and_is_surer_than_the_prior(gains, mean, variance, within):
    found = estimate(gains, names(len(gains)), Prior(mean, variance, within, 3))
    low, high = sorted((mean, float(gains.mean())))
    assert low - 1e-9 <= found.posterior <= high + 1e-9
    assert found.spread <= np.sqrt(variance) + 1e-9
    assert 0 <= found.weight <= 1


@given(st.dictionaries(st.sampled_from("abcd"), GAINS, min_size=1))
@settings(max_examples=60, deadline=None)
def test_a_prior_is_a_mean_of_kinds_with_a_variance(gains):
    found = prior_of(gains)
    means = [values.mean() for values in gains.values()]
    assert min(means) - 1e-9 <= found.mean <= max(means) + 1e-9
    assert found.variance > 0
    assert found.within > 0
