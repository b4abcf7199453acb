"""The running average of what is trained: nearer to the end of a training than its last step is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch


class Average:
    """Exponential moving average of tensors over the steps of a training.

    Args:
        tensors: What is trained.
        decay: Weight of the past, in [0, 1); 0 follows the tensors. In the first steps it is less, so that the
            beginning does not linger: at most `(1 + step) / (10 + step)`.

    Attributes:
        values: The averages, in the order of the tensors.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], decay: float) -> None:
        self._tensors = list(tensors)
        self._decay = decay
        self.values = [tensor.detach().clone() for tensor in tensors]

    def update(self, step: int) -> None:
        """Take in the tensors after a step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        with torch.no_grad():
            for value, tensor in zip(self.values, self._tensors, strict=True):
                value.lerp_(tensor, 1.0 - decay)

    def apply(self) -> None:
        """Set the tensors to their averages."""
        with torch.no_grad():
            for value, tensor in zip(self.values, self._tensors, strict=True):
                tensor.copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set the tensors to their averages while the block runs."""
        kept = [tensor.detach().clone() for tensor in self._tensors]
        self.apply()
        try:
            yield
        finally:
            with torch.no_grad():
                for value, tensor in zip(kept, self._tensors, strict=True):
                    tensor.copy_(value)
