"""The reader's network in training: low-rank updates, the loss, Lightning's module and batches.

Updates of linear layers (LoRA, Hu et al., 2021) are added to the frozen weights, not computed beside them: with a few
thousand tokens a batch that costs next to nothing, and the merged weight that is shipped is the one that was trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import ceil
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import WeightAveraging
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrize

from corag.models.devices import kind_of
from corag.models.engine import Engine, Float32, Int64, torch_forward
from corag.models.minilm import load_bert
from corag.models.runtime import BATCH_TOKENS
from corag.readers.span_network import SpanNetwork
from corag.readers.span_reader import END, NUM_OUTPUTS, START
from experiments.adapters.config import CrossTraining, ReaderTraining
from experiments.adapters.reader_rows import ReadingExample, ReadingRow, batches, collate, rows
from experiments.adapters.training import Epoch, fit

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
WEIGHT_DECAY, LARGEST_GRADIENT = 0.01, 1.0
"""Of matrices; the norm that longer gradients are cut to."""

Validate = Callable[[SpanNetwork], dict[str, float]]


def build(encoder: Any, rank: int, seed: int, num_outputs: int = NUM_OUTPUTS) -> SpanNetwork:
    """Return the network in which low-rank updates, biases, layer norms, token types and the head are trained.

    The encoder is a BERT without pooler. There is no dropout.
    """
    torch.manual_seed(seed)
    # Backwards through attention, PyTorch's fused kernel takes a CPU longer than the plain products.
    encoder.set_attn_implementation("eager")
    network = SpanNetwork(encoder, num_outputs)
    attach(encoder.encoder, rank, seed)
    for name, parameter in encoder.embeddings.named_parameters():
        # A sentence encoder has only ever seen token type 0.
        parameter.requires_grad_("token_type" in name or "LayerNorm" in name)
    for layer in network.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    return network


def loss_of(logits: torch.Tensor, batch: Mapping[str, torch.Tensor], kind_weight: float) -> dict[str, torch.Tensor]:
    """Return the loss, `loss`, and its parts, `span` and `kind`.

    Start and end are cross-entropies over the context and [CLS], which stands for "no answer here". Where several spans
    are right, their joint probability counts. Rows of yes and no have no span. Logits are fp32, `[B, L, NUM_OUTPUTS]`.
    """
    losses = []
    for column, right in ((START, batch["starts"]), (END, batch["ends"])):
        known = right.any(dim=1)
        allowed = logits[..., column].masked_fill(~batch["context"], -torch.inf)
        hit = logits[..., column].masked_fill(~right, -torch.inf)
        difference = torch.logsumexp(allowed[known], 1) - torch.logsumexp(hit[known], 1)
        losses.append(difference.sum() / len(right))
    kind = functional.cross_entropy(logits[:, 0, 2:], batch["kinds"])
    span = (losses[0] + losses[1]) / 2
    return {"loss": span + kind_weight * kind, "span": span, "kind": kind}


def engine_of(network: SpanNetwork, *, bf16: bool) -> Engine:
    """Return what runs the network as it is, where it is."""
    device = str(network.head.weight.device)
    kind = kind_of(device)
    exact = torch_forward(network, device)

    def forward(inputs: Mapping[str, Int64], mean: bool = False) -> Float32:
        with torch.autocast(kind, torch.bfloat16, enabled=bf16):
            return exact(inputs, mean)

    return Engine(forward, BATCH_TOKENS[kind])


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


def _plain(name: str) -> str:
    return name.replace("parametrizations.", "").replace(".weight.0.", ".weight.")


def learning_rate(config: ReaderTraining | CrossTraining, step: int, num_steps: int) -> float:
    """Return the learning rate of a step as a share of its peak: up in a straight line, level, down in one."""
    rise = min((step + 1) / max(config.warmup_steps, 1), 1.0)
    left = max(1.0 - step / num_steps, 0.0)
    return rise * min(left / config.decay if config.decay else 1.0, 1.0)


class ReaderBatches(pl.LightningDataModule):  # type: ignore[misc]
    """The batches of a training, in stages of `validate_every` batches, which are Lightning's epochs.

    A pass over the questions has its rows and their order from (seed, number of the pass) alone.
    """

    def __init__(self, config: ReaderTraining, learning: Sequence[ReadingExample]) -> None:
        super().__init__()
        self._config, self._learning = config, learning
        self._of_pass = lru_cache(maxsize=1)(self._batches)
        self.num_steps = ceil(config.epochs * len(self._of_pass(0)))
        self.num_stages = ceil(self.num_steps / config.validate_every)

    def _batches(self, number: int) -> list[list[ReadingRow]]:
        seed = (self._config.seed, number)
        return batches(rows(self._learning, self._config.rows, seed), self._config.step_tokens, (*seed, 1))

    def train_dataloader(self) -> Epoch:
        """Return the batches of this stage; Lightning asks again at every stage."""
        first = self.trainer.current_epoch * self._config.validate_every
        last = min(first + self._config.validate_every, self.num_steps)
        return Epoch(last - first, partial(self.steps, first, last))

    def val_dataloader(self) -> list[int]:
        """Return one batch, since the reader is validated as a whole."""
        return [0]

    def steps(self, first: int, last: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the batches of some steps."""
        number, start = 0, 0
        while start < last:
            of_pass = self._of_pass(number)
            for group in of_pass[max(first - start, 0) : max(last - start, 0)]:
                yield collate(group)
            number, start = number + 1, start + len(of_pass)


class ReaderModule(pl.LightningModule):  # type: ignore[misc]
    """The reader's network, its loss and its optimizer.

    Args:
        config: Of the training.
        num_steps: Batches in all.
        validate: Returns figures of a network on held-out questions.
    """

    def __init__(self, config: ReaderTraining, num_steps: int, validate: Validate) -> None:
        super().__init__()
        self.network = build(load_bert(), config.rank, config.seed).train()
        self._config, self._num_steps, self._validate = config, num_steps, validate

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        logits = self.network(**{name: batch[name] for name in INPUTS})[0]
        losses = loss_of(logits.float(), batch, self._config.kind_weight)
        self.log_dict(losses, batch_size=len(batch["kinds"]))
        return losses["loss"]

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Leave out a step whose gradient is not finite."""
        trained = [value for value in self.parameters() if value.grad is not None]
        if not all(bool(value.grad.isfinite().all()) for value in trained):
            for value in trained:
                value.grad = None

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log the figures of the running average of the weights, which Lightning has put in."""
        self.log_dict(self._validate(self.network), batch_size=1)

    def configure_optimizers(self) -> Any:
        """Return AdamW, which does not decay biases, norms and the one embedding, and the learning rate's course."""
        values = [(name, value) for name, value in self.named_parameters() if value.requires_grad]
        decayed = [value for name, value in values if name.endswith((".down", ".up", "head.weight"))]
        others = [value for name, value in values if not name.endswith((".down", ".up", "head.weight"))]
        groups = [
            {"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0},
        ]  # fmt: skip
        optimizer = torch.optim.AdamW(groups, lr=self._config.learning_rate)
        rate = partial(learning_rate, self._config, num_steps=self._num_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def learn(
    config: ReaderTraining, learning: Sequence[ReadingExample], validate: Validate, work: str, device: str
) -> SpanNetwork:
    """Train, from the stage where an earlier call for the same work was stopped, and return the averaged network."""
    data = ReaderBatches(config, learning)
    module = ReaderModule(config, data.num_steps, validate)

    def average(mean: torch.Tensor, value: torch.Tensor, number: Any) -> torch.Tensor:
        # The past weighs less at first, so that the first steps do not linger.
        decay = min(config.average, (1 + int(number)) / (10 + int(number)))
        return mean.lerp(value, 1.0 - decay)

    fit(
        module,
        data,
        config,
        work,
        epochs=data.num_stages,
        device=device,
        callbacks=[WeightAveraging(use_buffers=False, avg_fn=average)],
        gradient_clip_val=LARGEST_GRADIENT,
        precision="32-true" if config.precision == "fp32" else "bf16-mixed",
    )
    network: SpanNetwork = module.network.eval()
    return network
