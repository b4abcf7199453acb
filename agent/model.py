"""The network: a shared encoder and two heads. Pure PyTorch; knows no file, no trainer and no label.

Letters: `b` rows, `d` features, `M` size of the feature map, `R` configurations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import skip_init

from agent.config import SETTINGS, AgentConfig


class AgentOutput(NamedTuple):
    """Feature maps, unnormalised log-probabilities of the configurations, and settings on the scale [0, 1] of `Ranges`.

    Without a head for them the settings are 0.
    """

    maps: Tensor  # [b, M]
    logits: Tensor  # [b, R]
    settings: Tensor  # [b, 3]


class AgentModel(nn.Module):  # type: ignore[misc]
    """Encoder (linear layers, ReLU) and heads: choice, and settings (with `config.ranges`).

    `seed` is that of the initial weights; the global generator is neither read nor changed.
    """

    def __init__(self, config: AgentConfig, seed: int) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(skip_init(nn.Linear, *shape) for shape in config.encoder_shapes)
        self.choice = skip_init(nn.Linear, config.map_dim, len(config.configurations))
        self.settings = skip_init(nn.Linear, config.map_dim, len(SETTINGS)) if config.ranges is not None else None
        # As `nn.Linear` draws them, U(-1/sqrt(inputs), 1/sqrt(inputs)), from a generator of our own.
        generator = torch.Generator().manual_seed(seed)
        heads = [head for head in (self.choice, self.settings) if head is not None]
        for layer in (*self.encoder, *heads):
            bound = 1 / math.sqrt(layer.in_features)
            for parameter in (layer.weight, layer.bias):
                nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, features: Tensor) -> AgentOutput:
        """Return the output for features `[b, d]`."""
        maps = features
        for layer in self.encoder:
            maps = layer(maps).relu()
        settings = maps.new_zeros(len(maps), len(SETTINGS)) if self.settings is None else self.settings(maps).sigmoid()
        return AgentOutput(maps, self.choice(maps), settings)

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return a copy of every tensor by name, as in `AgentConfig.tensor_shapes`."""
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}
