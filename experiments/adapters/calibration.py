"""From values to probabilities: Platt's line, and how well values agree with what happened."""

from __future__ import annotations

import numpy as np

from corag.types import FloatArray


def fit_line(x: FloatArray, right: FloatArray, *, intercept: bool = True, strength: float = np.inf) -> FloatArray:
    """Return the weights, `[d]`, of a logistic regression on `[n, d]`, and behind them its constant, if it has one.

    `right` is 1 or 0, `[n]`; both have to occur. `strength` weighs the summed loss against half the squared weights.
    """
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, fit_intercept=intercept, tol=1e-8, max_iter=1000).fit(x, right)
    weights: FloatArray = np.append(model.coef_[0], model.intercept_ if intercept else [])
    return weights


def fit_sigmoid(values: FloatArray, right: FloatArray) -> tuple[float, float]:
    """Return the slope and offset that turn values into log-odds of being right, by maximum likelihood (Platt, 1999).

    `right` is 1 if a value, `[n]`, was right, else 0; both have to occur.
    """
    slope, offset = fit_line(values[:, None], right).tolist()
    return slope, offset


def calibration_error(confidence: FloatArray, right: FloatArray, bins: int = 10) -> float:
    """Return the expected calibration error over bins of equal size (Naeini et al., 2015)."""
    order = np.argsort(confidence, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(p) * abs(confidence[p].mean() - right[p].mean()) for p in parts) / len(confidence))
