"""Fits what an evidence value is made of: the networks that score hypotheses, and the reading order.

The loss of a question is the cross-entropy of its true hypothesis among all (the empty one for a question whose
evidence was taken away). If several may be true, since only the passages of the evidence are known and not its
sentences, it is that of their sum. Larger sets are many and drawn; those drawn stand for all, their weight corrected.

Letters: M networks, B questions of a batch, N hypotheses of these, F features, H hidden units.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, comb
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader

from agent.training.lightning import loader_of
from corag.models.engine import Float32
from corag.rerankers.evidence.hypotheses import NUM_WITHOUT_PLACES, SIZES, Sets, describer, sets_of
from corag.rerankers.evidence.network import CLIP, Ensemble
from corag.rerankers.evidence.signals import PAIRS, SINGLES, UNIT_PAIRS, UNIT_SINGLES, Signals
from corag.types import FloatArray
from experiments.adapters.config import ValueTraining
from experiments.adapters.pools import Pooled
from experiments.adapters.training import Fit, fit_line

LISTED = 100_000
"""Sets of one size beyond this number are drawn without listing them."""
MAX_DRAWN, MAX_ROWS = 400, 500
"""Maximum number of sets of each size that are drawn for a question, and of sets of a question in one batch."""
MEMBERS = 5
"""Networks in the ensemble, which differ in their initial weights and dropout."""
FLOOR_EPOCHS = 4
"""Passes over the questions that fit the linear floor."""
BATCH_SIZE = 16
"""Questions in a batch."""
DROPOUT = 0.4
"""Of the hidden units."""
LEARNING_RATE, WEIGHT_DECAY = 5e-3, 1e-2
_LATE_SINGLES = ("cosine", "sentence", "maxsim", "rare_maxsim", "lexical")
_LATE_UNIT_SINGLES = ("is_unit", "source_cosine", "source_maxsim")


@dataclass(frozen=True, slots=True)
class ValueExample:
    """A question to learn from, the signals of its candidates, and its weight in the loss.

    It has N hypotheses without the empty one; the `num_true` that may be true are first. `corrections` are logarithms
    of how many sets each stands for.
    """

    pooled: Pooled
    kind: str
    weight: float
    signals: Signals
    num_true: int
    features: Float32  # [N, F]
    corrections: Float32  # [N]


def example_of(
    pooled: Pooled, signals: Signals, max_size: int, kind: str = "", weight: float = 1.0
) -> ValueExample | None:
    """Return a question with its hypotheses, or None if its evidence is larger than any hypothesis."""
    golds = [gold for gold in pooled.golds if len(gold) <= max_size]
    if pooled.golds and not golds:
        return None
    name = f"{pooled.id} {len(pooled.chunks)}"
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    num_candidates = len(signals.singles)
    true: list[Float32] = []
    others: list[Float32] = []
    corrections = [np.zeros(len(golds))]
    for size in range(1, min(max_size, num_candidates) + 1):
        of_size = [gold for gold in golds if len(gold) == size]
        if of_size:
            true.append(describer(signals)(np.array(of_size, dtype=np.intp)))
        sets, total = _other_sets(num_candidates, size, set(of_size), rng)
        if total:
            others.append(describer(signals)(sets))
            corrections.append(np.full(len(sets), np.log(total / len(sets))))
    features = np.concatenate([*true, *others])
    return ValueExample(
        pooled, kind, weight, signals, len(golds), features, np.concatenate(corrections).astype(np.float32)
    )


def _other_sets(
    num_candidates: int, size: int, golds: set[tuple[int, ...]], rng: np.random.Generator
) -> tuple[Sets, int]:
    """Return up to `MAX_DRAWN` sets of a size that are not the evidence (all for one candidate), and their number."""
    total = comb(num_candidates, size)
    if total > LISTED:
        # Too many to list; drawn one by one, and equal ones are rare.
        drawn = {
            tuple(sorted(rng.choice(num_candidates, size, replace=False).tolist())) for _ in range(MAX_DRAWN)
        } - golds
        return np.array(sorted(drawn), dtype=np.intp).reshape(-1, size), total - len(golds)
    sets = sets_of(size, range(num_candidates))
    if golds:
        sets = sets[[tuple(row) not in golds for row in sets.tolist()]]
    total = len(sets)
    return (sets[rng.choice(total, MAX_DRAWN, replace=False)] if total > MAX_DRAWN and size > 1 else sets), total


class ValueBatches:
    """The batches of each epoch, a dictionary of tensors each.

    Args:
        examples: The questions.
        counts: 1 if a network learns from a question, else 0, `[questions, M]`.
        seed: Seed of orders and draws.
    """

    def __init__(self, examples: Sequence[ValueExample], counts: FloatArray, seed: int) -> None:
        self.examples, self.seed = examples, seed
        self.weights = counts * np.array([[example.weight] for example in examples])
        rows = np.concatenate([example.features[::5] for example in examples]).astype(np.float64)
        self.mean, self.scale = rows.mean(axis=0), rows.std(axis=0) + 1e-3
        self.number = ceil(len(examples) / BATCH_SIZE)

    def epoch(self, number: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the batches of an epoch."""
        rng = np.random.default_rng((self.seed, number))
        for rows in np.array_split(rng.permutation(len(self.examples)), self.number):
            examples = [self.examples[row] for row in rows.tolist()]
            drawn = [_draw(example, rng) for example in examples]
            x = np.clip((np.concatenate([part for part, _ in drawn]) - self.mean) / self.scale, -CLIP, CLIP)
            yield {
                "features": torch.from_numpy(x.astype(np.float32)),
                "corrections": torch.from_numpy(np.concatenate([part for _, part in drawn])),
                "sizes": torch.tensor([len(part) for part, _ in drawn]),
                "num_true": torch.tensor([example.num_true for example in examples]),
                "weights": torch.from_numpy(self.weights[rows].astype(np.float32)),
            }


def _draw(example: ValueExample, rng: np.random.Generator) -> tuple[Float32, Float32]:
    """Return at most `MAX_ROWS` hypotheses, those that may be true among them, with their corrections."""
    kept = example.num_true
    others, wanted = len(example.features) - kept, MAX_ROWS - kept
    if others <= wanted:
        return example.features, example.corrections
    rows = np.concatenate([np.arange(kept), kept + rng.choice(others, wanted, replace=False)])
    corrections = example.corrections[rows].copy()
    corrections[kept:] += np.float32(np.log(others / wanted))
    return example.features[rows], corrections


class ValueModule(pl.LightningModule):  # type: ignore[misc]
    """Several networks trained side by side: a linear part and hidden units on top of a floor; or the floor itself.

    The floor has no hidden units and is linear in what late interaction says.

    They share batches and nothing else: each has its own initial weights and dropout. A network with a floor starts as
    it and learns what it leaves.

    Args:
        batches: Of the training.
        seeds: Seed of each network's initial weights, `M`.
        config: Of the training.
        floor: The floor of each, `M`; None to train it.
    """

    def __init__(
        self, batches: ValueBatches, seeds: Sequence[int], config: ValueTraining, floor: ValueModule | None = None
    ) -> None:
        super().__init__()
        self.batches, self.epochs = batches, FLOOR_EPOCHS if floor is None else config.epochs
        self.loss_name = "floor_loss" if floor is None else "train_loss"
        networks, num_features, num_hidden = len(seeds), len(batches.mean), config.hidden if floor is not None else 0
        bound = num_features**-0.5
        drawn = []
        for number in seeds:
            generator = torch.Generator().manual_seed(number)
            shapes = ((num_hidden, num_features), (num_hidden,))
            drawn.append([torch.empty(shape).uniform_(-bound, bound, generator=generator) for shape in shapes])
        self.linear = nn.Parameter(torch.zeros(networks, num_features))
        self.bias = nn.Parameter(torch.zeros(networks))
        # As in `nn.Linear`, which warns of layers without units.
        self.hidden = nn.Parameter(torch.stack([weights for weights, _ in drawn]))
        self.hidden_bias = nn.Parameter(torch.stack([bias for _, bias in drawn]))
        self.output = nn.Parameter(torch.zeros(networks, num_hidden))
        self.dropout = nn.Dropout(DROPOUT)
        mask = torch.from_numpy(late_interaction()).float() if floor is None else torch.ones(num_features)
        self.register_buffer("mask", mask)
        self.register_buffer("floor", torch.zeros(networks, num_features + 1) if floor is None else floor.line.detach())

    def train_dataloader(self) -> DataLoader[Any]:
        """Return this epoch's batches; Lightning asks again at every epoch."""
        return loader_of(list(self.batches.epoch(self.trainer.current_epoch)))

    @property
    def line(self) -> torch.Tensor:
        """The linear parts, `[M, F + 1]`, the constant last."""
        return torch.cat([self.linear * self.mask, self.bias[:, None]], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits, `[N, F]` to `[M, N]`."""
        units = torch.einsum("nf,mhf->mnh", x, self.hidden) + self.hidden_bias[:, None]
        activations = self.dropout(nn.functional.gelu(units, approximate="tanh"))
        line = self.line + self.floor
        linear = line[:, :-1] @ x.T + line[:, -1:]
        return torch.as_tensor(linear + torch.einsum("mnh,mh->mn", activations, self.output))

    def losses(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the mean loss of each network over the questions that it learns from, `[M]`."""
        logits = self(batch["features"]) + batch["corrections"]
        losses = []
        for part, num_true in zip(torch.split(logits, batch["sizes"].tolist(), 1), batch["num_true"], strict=True):
            # The empty hypothesis is first.
            chances = torch.log_softmax(torch.cat([part.new_zeros(len(part), 1), part], 1), 1)
            true = slice(1, 1 + int(num_true)) if num_true else slice(0, 1)
            losses.append(-chances[:, true].logsumexp(1))
        weights = batch["weights"]
        return (torch.stack(losses) * weights).sum(0) / weights.sum(0).clamp_min(1e-9)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Let dropout depend on the step alone, so that a resumed training ends with the same bits."""
        torch.manual_seed(self.batches.seed * 1_000_003 + self.global_step)

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Return the sum of the losses: the networks share no weight, so each has the gradient of its own."""
        losses = self.losses(batch)
        self.log(self.loss_name, losses.mean(), on_step=False, on_epoch=True, batch_size=len(batch["sizes"]))
        return losses.sum()

    def configure_optimizers(self) -> Any:
        """Return AdamW with a one-cycle schedule."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        steps = self.epochs * self.batches.number
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def ensemble(self, networks: slice) -> Ensemble:
        """Return some of the networks as the library evaluates them."""
        line = self.floor + self.line
        parts = (line[:, :-1], line[:, -1], self.hidden, self.hidden_bias, self.output)
        arrays = (part[networks].detach().cpu().double().numpy() for part in parts)
        return Ensemble(self.batches.mean, self.batches.scale, *arrays)


def fit_networks(
    batches: ValueBatches, seeds: Sequence[int], config: ValueTraining, fit: Fit, device: str
) -> ValueModule:
    """Fit networks side by side, of a seed each, first their floors; see `training.fit`."""
    floor = ValueModule(batches, seeds, config)
    # One thread: the bits then do not depend on the number of cores.
    fit(floor, part="floor", epochs=floor.epochs, device=device, threads=1)
    module = ValueModule(batches, seeds, config, floor)
    fit(module, epochs=module.epochs, device=device, threads=1)
    return module


def fit_order(examples: Sequence[ValueExample]) -> FloatArray:
    """Fit how surely one piece of evidence comes before another: a logistic regression without a constant.

    Half the squared weights is added to the summed loss. The weights, `[len(SINGLES) + len(PAIRS)]`, are
    zero if no example has an order.
    """
    rows = _ordered_pairs(examples)
    if not len(rows):
        return np.zeros(rows.shape[1])
    # Both orders of each pair, at half the weight: a regression needs both outcomes.
    outcomes = np.repeat([1.0, 0.0], len(rows))
    return fit_line(np.concatenate([rows, -rows]), outcomes, intercept=False, strength=0.5)


def order_accuracy(examples: Sequence[ValueExample], weights: FloatArray) -> dict[str, float]:
    """Return the number of pairs of evidence, and the share that the weights put in the order of the data."""
    rows = _ordered_pairs(examples)
    return {"pairs": len(rows), "in order": float((rows @ weights > 0).mean()) if len(rows) else float("nan")}


def _ordered_pairs(examples: Sequence[ValueExample]) -> FloatArray:
    """Return the differences of features between each piece of evidence and each later one, `[pairs, figures]`."""
    rows = [
        np.concatenate([singles[first] - singles[second], pairs[first, second] - pairs[second, first]])
        for example in examples
        for singles, pairs in [(example.signals.singles, example.signals.pairs)]
        for index, first in enumerate(example.pooled.ordered)
        for second in example.pooled.ordered[index + 1 :]
    ]
    return np.array(rows).reshape(len(rows), len(SINGLES) + len(PAIRS))


def late_interaction() -> NDArray[np.bool_]:
    """Return which features say how near a set is to the question, token by token, and its size, `[NUM_FEATURES]`.

    They mean the same for every kind of text, so the linear floor of a network looks at nothing else.
    """
    singles = [name in _LATE_SINGLES for name in SINGLES]
    places = [name in _LATE_UNIT_SINGLES for name in UNIT_SINGLES]
    covered_and_size = [True] * (4 + SIZES)
    between = NUM_WITHOUT_PLACES - 3 * len(SINGLES) - 3 * len(PAIRS) - len(covered_and_size)
    columns = [*singles * 3, *[False] * 3 * len(PAIRS), *covered_and_size, *[False] * between]
    return np.array([*columns, *places * 3, *[False] * 3 * len(UNIT_PAIRS)])
