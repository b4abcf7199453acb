"""The network: a shared encoder and two heads. Pure PyTorch; knows no file, no trainer and no label.

Letters: `b` rows, `d` features, `M` size of the feature map, `R` rerankers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import skip_init

from agent.config import AgentConfig
from agent.configurations import SETTINGS


class AgentOutput(NamedTuple):
    """Feature maps, unnormalised log-probabilities of the rerankers, and settings on the scale [0, 1] of `Ranges`."""

    maps: Tensor  # [b, M]
    logits: Tensor  # [b, R]
    settings: Tensor  # [b, 3]


class AgentModel(nn.Module):  # type: ignore[misc]
    """The encoder (linear layers with ReLU) and its two heads.

    `seed` is that of the initial weights; the global generator is neither read nor changed.
    """

    def __init__(self, config: AgentConfig, seed: int) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(skip_init(nn.Linear, *shape) for shape in config.encoder_shapes)
        self.reranker = skip_init(nn.Linear, config.map_dim, len(config.rerankers))
        self.settings = skip_init(nn.Linear, config.map_dim, len(SETTINGS))
        # As `nn.Linear` draws them, U(-1/sqrt(inputs), 1/sqrt(inputs)), from a generator of our own.
        generator = torch.Generator().manual_seed(seed)
        for layer in (*self.encoder, self.reranker, self.settings):
            bound = 1 / math.sqrt(layer.in_features)
            for parameter in (layer.weight, layer.bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, features: Tensor) -> AgentOutput:
        """Return the output for features `[b, d]`."""
        maps = self.maps(features)
        return AgentOutput(maps, self.reranker(maps), self.settings(maps).sigmoid())

    def maps(self, features: Tensor) -> Tensor:
        """Return the feature maps of vectors `[b, d]`, `[b, M]`."""
        maps = features
        for layer in self.encoder:
            maps = layer(maps).relu()
        return maps

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return a copy of every tensor by name, as in `AgentConfig.tensor_shapes`."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}

    def load_weights(self, weights: Mapping[str, NDArray[np.float32]]) -> None:
        """Take over the tensors that `weights` returned."""
        self.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
