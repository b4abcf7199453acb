"""How far a training of the reader is: its progress, the running average of its weights, and the file of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from agent.training.resume import read_state, write_state

_MOMENTS = ("exp_avg", "exp_avg_sq")

Named = Sequence[tuple[str, torch.Tensor]]


@dataclass
class Progress:
    """Progress of a training: epochs, batches of the next epoch, batches and tokens in all, seconds over all calls.

    `curve` holds the figures of the validations so far.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: list[dict[str, Any]] = field(default_factory=list)


class Average:
    """Exponential moving average of tensors over the steps of a training.

    The past weighs `decay`, in [0, 1), but at most `(1 + step) / (10 + step)`, so that the first steps do not linger; 0
    follows the tensors. `values` are the averages, in the order of the tensors.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], decay: float) -> None:
        self._tensors = list(tensors)
        self._decay = decay
        self.values = [tensor.detach().clone() for tensor in tensors]

    def update(self, step: int) -> None:
        """Take in the tensors after a step, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        for value, tensor in zip(self.values, self._tensors, strict=True):
            value.lerp_(tensor.detach(), 1.0 - decay)

    def apply(self) -> None:
        """Set the tensors to their averages."""
        _set(self._tensors, self.values)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Set the tensors to their averages while the block runs."""
        kept = [tensor.detach().clone() for tensor in self._tensors]
        self.apply()
        try:
            yield
        finally:
            _set(self._tensors, kept)


def _set(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.detach().copy_(value)


def save_state(
    path: Path, fingerprint: str, progress: Progress, named: Named, average: Average, optimizer: torch.optim.Optimizer
) -> None:
    """Replace the state file in one step; the optimizer is AdamW."""
    tensors: dict[str, torch.Tensor] = {}
    for (name, value), mean in zip(named, average.values, strict=True):
        tensors |= {f"value.{name}": value, f"average.{name}": mean}
        if value in optimizer.state:
            tensors |= {f"{moment}.{name}": optimizer.state[value][moment] for moment in _MOMENTS}
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    write_state(path, fingerprint, {"progress": asdict(progress)}, arrays)


def restore_state(
    path: Path, fingerprint: str, named: Named, average: Average, optimizer: torch.optim.Optimizer
) -> Progress:
    """Set values, average and optimizer to the state of the same training, if any, and return its progress."""
    state = read_state(path, fingerprint)
    if state is None or "progress" not in state[0]:
        return Progress()
    progress = Progress(**state[0]["progress"])
    tensors = {name: torch.from_numpy(array) for name, array in state[1].items()}
    _set([value for _, value in named], [tensors[f"value.{name}"] for name, _ in named])
    _set(average.values, [tensors[f"average.{name}"] for name, _ in named])
    for name, value in named:
        if f"{_MOMENTS[0]}.{name}" in tensors:
            moments = {moment: tensors[f"{moment}.{name}"].to(value.device) for moment in _MOMENTS}
            # The fused optimizer keeps its count beside the values.
            step = torch.tensor(float(progress.step), device=value.device)
            optimizer.state[value] = {"step": step, **moments}
    return progress
