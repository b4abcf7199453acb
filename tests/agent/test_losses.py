import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.losses import choice_loss, contrastive_loss, regret_loss, soft_target

pytestmark = pytest.mark.slow


def contrastive_by_loops(maps, reranker, weight, margin):
    sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for i in range(len(maps)):
        for j in range(i + 1, len(maps)):
            distance = np.sqrt(((maps[i] - maps[j]) ** 2).sum())
            same = bool(reranker[i] == reranker[j])
            loss = distance**2 if same else max(0.0, margin - distance) ** 2
            sums[same][0] += weight[i] * weight[j] * loss
            sums[same][1] += weight[i] * weight[j]
    return sum(loss / total if total else 0.0 for loss, total in sums.values())


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**31), st.floats(0.1, 3.0))
def test_contrastive_loss_agrees_with_loops(num_rows, seed, margin):
    rng = np.random.default_rng(seed)
    maps = rng.normal(size=(num_rows, 3))
    labels = rng.integers(0, 3, num_rows)
    weight = rng.integers(0, 3, num_rows).astype(float)
    loss = contrastive_loss(*map(torch.from_numpy, (maps, labels, weight)), margin)
    assert loss.item() == pytest.approx(contrastive_by_loops(maps, labels, weight, margin), rel=1e-4, abs=1e-5)


def test_choice_loss_worked_by_hand():
    # Softmax of (0, ln 3) is (1/4, 3/4); of (0, 0) it is (1/2, 1/2).
    logits = torch.tensor([[0.0, np.log(3.0)], [0.0, 0.0]])
    labels = torch.tensor([1, 0])
    quarter, half = np.log(4 / 3), np.log(2)
    assert choice_loss(logits, labels, torch.ones(2)).item() == pytest.approx((quarter + half) / 2)
    assert choice_loss(logits, labels, torch.tensor([0.0, 1.0])).item() == pytest.approx(half)
    assert choice_loss(logits, labels, torch.zeros(2)).item() == 0.0


def test_soft_targets_and_regret_worked_by_hand():
    # Qualities apart by ln 3 at temperature 1: the odds are 3 to 1; at half of it 9 to 1.
    quality = torch.tensor([[0.0, np.log(3.0)]])
    torch.testing.assert_close(soft_target(quality, 1.0), torch.tensor([[0.25, 0.75]]))
    torch.testing.assert_close(soft_target(quality, 0.5), torch.tensor([[0.1, 0.9]]))
    logits, half, labels = torch.tensor([[0.0, np.log(3.0)]]), torch.tensor([[0.5, 0.5]]), torch.tensor([1])
    loss = choice_loss(logits, labels, torch.ones(1), target=half)
    assert loss.item() == pytest.approx(0.5 * np.log(4) + 0.5 * np.log(4 / 3))
    # Drawn with probabilities (1/4, 3/4) and (1/2, 1/2), of which the second row loses nothing either way.
    logits = torch.tensor([[0.0, np.log(3.0)], [0.0, 0.0]])
    lost = regret_loss(logits, torch.tensor([[0.2, 0.6], [0.7, 0.7]]))
    assert lost.item() == pytest.approx(0.25 * 0.4 / 2)


def test_identical_maps_have_a_finite_gradient():
    maps = torch.zeros(4, 3, requires_grad=True)
    contrastive_loss(maps, torch.tensor([0, 0, 1, 1]), torch.ones(4), 1.0).backward()
    assert torch.isfinite(maps.grad).all()
