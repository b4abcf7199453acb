"""From what the network says to a configuration: the one rule that training and use share. NumPy only.

Letters: `b` rows, `R` rerankers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agent.config import AgentConfig
from agent.ranges import SETTINGS

FloatArray = NDArray[np.float64]


def decide(
    config: AgentConfig, probabilities: FloatArray, unit: FloatArray, allowed: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the label of the reranker, `[b]`, and the search settings in natural units, `[b, 3]`.

    They are the most probable reranker, among equals the first in label order, and the predicted settings. With
    `config.min_lead` they are the fixed configuration wherever the most probable reranker leads the fixed one's by less
    than that; the settings too, since nothing says how sure they are. Where the fixed configuration's reranker may not
    be chosen there is nothing to keep to.

    Args:
        config: The agent's configuration.
        probabilities: Of each reranker, `[b, R]`.
        unit: Predicted settings on the scale [0, 1] of `config.ranges`, `[b, 3]`.
        allowed: Which rerankers may be chosen, at least one, `[R]`; None for all.
    """
    if allowed is not None:
        probabilities = np.where(allowed, probabilities, -1.0)
    labels = np.asarray(probabilities.argmax(axis=1), dtype=np.int64)
    settings = config.ranges.from_unit(unit)
    if config.min_lead and config.fixed is not None:
        fixed = config.rerankers.index(config.fixed.reranker)
        if allowed is None or allowed[fixed]:
            unclear = probabilities.max(axis=1) - probabilities[:, fixed] < config.min_lead
            labels[unclear] = fixed
            settings[unclear] = [getattr(config.fixed, name) for name in SETTINGS]
    return labels, settings
