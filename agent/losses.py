"""The three losses of the paper (5.2).

Pure functions. Letters: `b` rows of a batch, `M` size of the feature map, `R` configurations.
Arguments: feature `maps`, `[b, M]`; unnormalised log-probabilities `logits`, `[b, R]`; `label`, the best configuration,
and `weight` of each row, `[b]`. A row of weight 0 counts neither for the
label nor for pairs; where nothing counts, a loss is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def contrastive_loss(maps: Tensor, label: Tensor, weight: Tensor, margin: float) -> Tensor:
    """Eq. 10: pull questions with the same best configuration together, push the others apart.

    The paper leaves F_con open; this is the usual margin form on the Euclidean distance D (Hadsell et al.
    2006): D^2 for a positive pair, max(0, margin - D)^2 for a negative one. All pairs of the batch count, each with the
    product of its rows' weights; each kind is averaged on its own, so that the many negatives do not drown the few
    positives.
    """
    pair_weight = torch.triu(weight[:, None] * weight[None, :], diagonal=1)
    same = label[:, None] == label[None, :]
    squared = (maps.float()[:, None] - maps.float()[None, :]).square().sum(dim=-1)
    distance = squared.clamp_min(1e-12).sqrt()  # the square root has no gradient at 0
    positive = _weighted_mean(squared, pair_weight * same)
    negative = _weighted_mean((margin - distance).relu().square(), pair_weight * ~same)
    return positive + negative


def choice_loss(logits: Tensor, label: Tensor, weight: Tensor) -> Tensor:
    """Eq. 8: cross-entropy of the label, a weighted mean over the rows."""
    return _weighted_mean(functional.cross_entropy(logits.float(), label, reduction="none"), weight)


def settings_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """Eq. 9: mean squared error of the settings `[b, 3]`, both on the scale [0, 1] of `Ranges`."""
    return _weighted_mean((predicted.float() - target).square().mean(dim=1))


def _weighted_mean(values: Tensor, weights: Tensor | None = None) -> Tensor:
    weights = torch.ones_like(values) if weights is None else weights
    total = weights.sum()
    # Dividing by 1 if nothing counts keeps the loss 0 and its gradient finite.
    return (values * weights).sum() / torch.where(total > 0, total, torch.ones_like(total))
