"""The reader's network in training: low-rank updates, the loss, and how the scoring engine runs it.

Updates of linear layers (LoRA, Hu et al., 2021) are added to the frozen weights, not computed beside them: with a few
thousand tokens a batch that costs next to nothing, and the merged weight that is shipped is the one that was trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from corag.models.devices import kind_of
from corag.models.engine import Engine, Float32, Int64, Reduction, torch_forward
from corag.models.runtime import BATCH_TOKENS
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import END, PAD, START
from experiments.adapters.reader.data import Batch


def build(encoder: Any, rank: int, seed: int, dropout: float) -> SpanNetwork:
    """Return the network in which low-rank updates, biases, layer norms, token types and the head are trained.

    The encoder is a BERT without pooler. Dropout is after every layer but the attention, where it takes a CPU too long.
    """
    torch.manual_seed(seed)
    # Backwards through attention, PyTorch's fused kernel takes a CPU longer than the plain products.
    encoder.set_attn_implementation("eager")
    network = SpanNetwork(encoder)
    attach(encoder.encoder, rank, seed)
    for name, parameter in encoder.embeddings.named_parameters():
        # A sentence encoder has only ever seen token type 0.
        parameter.requires_grad_("token_type" in name or "LayerNorm" in name)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = dropout
    for layer in encoder.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    return network


def loss_of(logits: torch.Tensor, batch: Batch, kind_weight: float) -> dict[str, torch.Tensor]:
    """Return the loss, `loss`, and its parts, `span` and `kind`.

    Start and end are cross-entropies over the context and [CLS], which stands for "no answer here". Where several spans
    are right, their joint probability counts. Rows of yes and no have no span. Logits are fp32, `[B, L, NUM_OUTPUTS]`.
    """

    def there(values: Any) -> torch.Tensor:
        return torch.from_numpy(values).to(logits.device)

    context = there(batch.context)
    losses = []
    for column, right in ((START, batch.starts), (END, batch.ends)):
        known = there(right.any(axis=1))
        allowed = logits[..., column].masked_fill(~context, -torch.inf)
        hit = logits[..., column].masked_fill(~there(right), -torch.inf)
        difference = torch.logsumexp(allowed[known], 1) - torch.logsumexp(hit[known], 1)
        losses.append(difference.sum() / len(right))
    kind = functional.cross_entropy(logits[:, 0, 2:], there(batch.kinds))
    span = (losses[0] + losses[1]) / 2
    return {"loss": span + kind_weight * kind, "span": span, "kind": kind}


def engine_of(network: SpanNetwork, *, bf16: bool) -> Engine:
    """Return what runs the network as it is, where it is."""
    device = str(network.head.weight.device)
    kind = kind_of(device)
    exact = torch_forward(network, device)

    def forward(inputs: Mapping[str, Int64], reduction: Reduction | None = None) -> Float32:
        with torch.autocast(kind, torch.bfloat16, enabled=bf16):
            return exact(inputs, reduction)

    return Engine(forward, PAD, BATCH_TOKENS[kind])


class LowRank(nn.Module):  # type: ignore[misc]
    """`weight + up @ down`, zero at the start, for a weight of shape (out, in); `generator` draws `down`."""

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
    """Set what `export` returned; a missing tensor is a `KeyError`."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.requires_grad:
                value.copy_(tensors[_plain(name)])


def _plain(name: str) -> str:
    return name.replace("parametrizations.", "").replace(".weight.0.", ".weight.")
