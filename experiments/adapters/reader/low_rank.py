"""Low-rank updates of a network's linear layers (LoRA, Hu et al., 2021), trained as a sum with the frozen weights.

The product is added to the weight, not computed beside it: with a few thousand tokens a batch that costs next to
nothing, and the merged weight that is shipped is the very one that was trained.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.utils import parametrize

DOWN, UP = "down", "up"


class LowRank(nn.Module):  # type: ignore[misc]
    """`weight + up @ down`, zero at the start.

    Args:
        shape: Of the weight, `(out, in)`.
        rank: Of the update.
        generator: Draws `down`.
    """

    def __init__(self, shape: tuple[int, int], rank: int, generator: torch.Generator) -> None:
        super().__init__()
        out, into = shape
        self.down = nn.Parameter(torch.randn((rank, into), generator=generator) / into**0.5)
        self.up = nn.Parameter(torch.zeros((out, rank)))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Return the updated weight."""
        return weight + self.up @ self.down


def attach(module: nn.Module, rank: int, seed: int) -> None:
    """Freeze a network but for its biases and layer norms, and give each linear weight a trained low-rank update."""
    generator = torch.Generator().manual_seed(seed)
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name.endswith("bias") or "LayerNorm" in name)
    for layer in linear:
        shape = (layer.out_features, layer.in_features)
        parametrize.register_parametrization(layer, "weight", LowRank(shape, rank, generator))


def export(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return what was trained, by the names of the plain network: `NAME.down` and `NAME.up` for an updated weight."""
    return {_plain(name): value.detach() for name, value in module.named_parameters() if value.requires_grad}


def restore(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Set what `export` returned.

    Raises:
        KeyError: A tensor is missing.
    """
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.requires_grad:
                value.copy_(tensors[_plain(name)])


def _plain(name: str) -> str:
    return name.replace("parametrizations.", "").replace(".weight.0.", ".weight.")
