"""Token states that were computed before, used in place of a pass of the encoder.

with STATES.set(stored):
    encoder.states(ids)  # runs the model only for the texts that `stored` does not know
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from corag.ambient import Ambient
from corag.models.engine import Float32


class StoredStates(Protocol):
    """Token states of texts by their token ids."""

    def get(self, ids: Sequence[NDArray[np.int64]]) -> dict[int, Float32]:
        """Return the states of the known texts, special tokens included, by their index in `ids`."""


STATES: Ambient[StoredStates | None] = Ambient(None)
"""Where an encoder looks before it runs."""


def states_key(ids: NDArray[np.int64]) -> bytes:
    """Return the key of a text by its token ids."""
    return hashlib.sha256(ids.astype("<i8").tobytes()).digest()
