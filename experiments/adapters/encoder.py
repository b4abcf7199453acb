"""The encoder in training: low-rank updates, the optimizer, and batches in stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import ceil
from typing import Any

import lightning.pytorch as pl
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn
from torch.utils.data import DataLoader

from agent.training.lightning import loader_of
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import NUM_OUTPUTS
from experiments.adapters.config import EncoderTraining
from experiments.adapters.training import Fit

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def build(encoder: Any, rank: int, seed: int, num_outputs: int = NUM_OUTPUTS) -> SpanNetwork:
    """Return the network in which low-rank updates, biases, layer norms, token types and the head are trained.

    The encoder is a BERT without pooler. There is no dropout.
    """
    torch.manual_seed(seed)
    # Backwards through attention, PyTorch's fused kernel takes a CPU longer than the plain products.
    encoder.set_attn_implementation("eager")
    network = SpanNetwork(encoder, num_outputs)
    layers = [name for name, layer in encoder.named_modules() if isinstance(layer, nn.Linear)]
    # Updates as they are merged: up @ down, unscaled.
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=rank, target_modules=layers), encoder)
    for name, parameter in encoder.encoder.named_parameters():
        parameter.requires_grad_(name.endswith("bias") or "LayerNorm" in name or "lora_" in name)
    for name, parameter in encoder.embeddings.named_parameters():
        # A sentence encoder has only ever seen token type 0.
        parameter.requires_grad_("token_type" in name or "LayerNorm" in name)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def export(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return what was trained, by the names of the plain network: `NAME.down` and `NAME.up` for an updated weight."""
    return {plain_name(name): value.detach() for name, value in module.named_parameters() if value.requires_grad}


def plain_name(name: str) -> str:
    """Return the name that a parameter has in the exported adapter."""
    name = name.replace(".lora_A.default.weight", ".weight.down").replace(".lora_B.default.weight", ".weight.up")
    return name.replace(".base_layer.", ".")


class EncoderModule(pl.LightningModule):  # type: ignore[misc]
    """The encoder in training: its optimizer, and its batches in stages of `save_every`, Lightning's epochs.

    Args:
        config: Of the training.
        network: With low-rank updates; see `build`.
        batches_of: Returns the batches of a pass over the questions, which derive from seed and number of the pass.
    """

    def __init__(
        self, config: EncoderTraining, network: SpanNetwork, batches_of: Callable[[int], list[list[Any]]]
    ) -> None:
        super().__init__()
        self.config, self.network = config, network.train()
        # The cache is never copied, and so neither are the questions, when the weights are averaged in a copy.
        self._batches_of = lru_cache(maxsize=1)(batches_of)
        self.num_steps = ceil(config.epochs * len(self._batches_of(0)))
        self.num_stages = ceil(self.num_steps / config.save_every)

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of this stage; Lightning asks again at every stage."""
        first = self.trainer.current_epoch * self.config.save_every
        last = min(first + self.config.save_every, self.num_steps)
        chosen, number, start = list[list[Any]](), 0, 0
        while start < last:
            of_pass = self._batches_of(number)
            chosen += of_pass[max(first - start, 0) : max(last - start, 0)]
            number, start = number + 1, start + len(of_pass)
        return loader_of(chosen)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Return the batch as it is: its rows become tensors in the step."""
        return batch

    def groups(self) -> list[dict[str, Any]]:
        """Return what is trained, as AdamW takes it."""
        return [{"params": [value for value in self.parameters() if value.requires_grad]}]

    def configure_optimizers(self) -> Any:
        """Return AdamW, and the learning rate's course."""
        optimizer = torch.optim.AdamW(self.groups(), lr=self.config.learning_rate, weight_decay=0.01)
        rate = partial(learning_rate, self.config, num_steps=self.num_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def learn(self, fit: Fit, device: str, callbacks: Sequence[pl.Callback] = ()) -> SpanNetwork:
        """Train, from the stage where an earlier training of the same work was stopped, and return the network."""
        precision = "32-true" if self.config.precision == "fp32" else "bf16-mixed"
        epochs = self.num_stages
        fit(self, epochs=epochs, device=device, callbacks=callbacks, gradient_clip_val=1.0, precision=precision)
        network: SpanNetwork = self.network.eval()
        return network


def learning_rate(config: EncoderTraining, step: int, num_steps: int) -> float:
    """Return the learning rate of a step as a share of its peak: up in a straight line, level, down in one."""
    rise = min((step + 1) / max(config.warmup_steps, 1), 1.0)
    left = max(1.0 - step / num_steps, 0.0)
    return rise * min(left / config.decay if config.decay else 1.0, 1.0)
