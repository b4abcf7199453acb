"""From values to probabilities: Platt's line, and how well values agree with what happened."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from corag.types import FloatArray


def minimised(loss: Callable[[torch.Tensor], torch.Tensor], start: FloatArray) -> FloatArray:
    """Return the parameters at the minimum of a smooth loss, by L-BFGS from `start`, `[p]`."""
    parameters = torch.from_numpy(start.astype(np.float64)).requires_grad_()
    optimizer = torch.optim.LBFGS([parameters], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(parameters)
        value.backward()
        return value

    optimizer.step(closure)
    return np.asarray(parameters.detach().numpy())


def fit_sigmoid(values: FloatArray, right: FloatArray, start: tuple[float, float] = (1.0, 0.0)) -> tuple[float, float]:
    """Return the slope and offset that turn values into log-odds of being right, by maximum likelihood (Platt, 1999).

    `right` is 1 where a value, `[n]`, was right, else 0; both have to occur. The optimisation begins at `start`.
    """
    x, y = torch.from_numpy(values).double(), torch.from_numpy(right).double()
    entropy = torch.nn.functional.binary_cross_entropy_with_logits
    slope, offset = minimised(lambda line: entropy(line[0] * x + line[1], y), np.array(start)).tolist()
    return slope, offset


def calibration_error(confidence: FloatArray, right: FloatArray, bins: int = 10) -> float:
    """Return the expected calibration error over bins of equal size (Naeini et al., 2015)."""
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(p) * abs(confidence[p].mean() - right[p].mean()) for p in parts) / len(confidence))


def separation(answerable: FloatArray, unanswerable: FloatArray) -> float:
    """Return how often a question with an answer has the larger margin than one without (area under the ROC curve).

    Equal margins count half; NaN where one of the sides is empty.
    """
    if not len(answerable) or not len(unanswerable):
        return float("nan")
    return float((np.sign(answerable[:, None] - unanswerable[None, :]).mean() + 1) / 2)
