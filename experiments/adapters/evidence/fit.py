"""Fits the parts of an evidence reranker: the weights of hypotheses, and the reading order.

The loss of a question is the cross-entropy of its true hypothesis among all (the empty one for a question whose
evidence was taken away). Where several may be true, since only the passages of the evidence are known and not its
sentences, it is that of their sum. Larger sets are many and drawn; those drawn stand for all, their weight corrected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from corag.models.engine import Float32
from corag.rerankers.evidence.hypotheses import Sets, features, sets_of
from corag.rerankers.evidence.network import CLIP, Ensemble
from corag.rerankers.evidence.signals import PAIRS, SINGLES, Signals
from corag.types import FloatArray
from experiments.adapters.calibration import minimised
from experiments.adapters.evidence.config import FitSettings

LISTED = 100_000
"""Sets of one size beyond so many are drawn without listing them."""
MEMBER_TENSORS = ("linear", "bias", "hidden", "hidden_bias", "output")
"""Parameters of a network, by their names in `Ensemble`."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question to learn from: signals of its candidates, and its weight in the loss.

    `golds` are the sets each of which may be the evidence, of ascending indices: one where it is known, none if it is
    not among the candidates. `ordered` is the evidence in reading order, empty where the data gives none.
    """

    id: str
    signals: Signals
    golds: tuple[tuple[int, ...], ...]
    ordered: tuple[int, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Table:
    """The hypotheses of an example, H of them, without the empty one.

    Those that may be true are first, unless it is the empty one: that of an example without evidence. `corrections` are
    logarithms of how many sets each stands for.
    """

    example: Example
    num_true: int
    features: Float32  # [H, F]
    corrections: Float32  # [H]


def tabulate(example: Example, max_size: int, settings: FitSettings) -> Table | None:
    """Return the hypotheses of an example, or None where its evidence is larger than any hypothesis."""
    golds = [gold for gold in example.golds if len(gold) <= max_size]
    if example.golds and not golds:
        return None
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(example.id.encode()).digest()[:8], "big"))
    num_candidates = len(example.signals.singles)
    true: list[Float32] = []
    others: list[Float32] = []
    corrections = [np.zeros(len(golds))]
    for size in range(1, min(max_size, num_candidates) + 1):
        of_size = [gold for gold in golds if len(gold) == size]
        if of_size:
            true.append(features(example.signals, np.array(of_size, dtype=np.intp)))
        sets, total = _other_sets(num_candidates, size, set(of_size), settings.max_drawn, rng)
        if total:
            others.append(features(example.signals, sets))
            corrections.append(np.full(len(sets), np.log(total / len(sets))))
    return Table(example, len(golds), np.concatenate([*true, *others]), np.concatenate(corrections).astype(np.float32))


def _other_sets(
    num_candidates: int, size: int, golds: set[tuple[int, ...]], most: int, rng: np.random.Generator
) -> tuple[Sets, int]:
    """Return at most so many sets of a size that are no evidence, all of one candidate, and how many there are."""
    total = comb(num_candidates, size)
    if total > LISTED:
        # Too many to list; drawn one by one, and equal ones are rare.
        drawn = {tuple(sorted(rng.choice(num_candidates, size, replace=False).tolist())) for _ in range(most)} - golds
        return np.array(sorted(drawn), dtype=np.intp).reshape(-1, size), total - len(golds)
    sets = sets_of(size, range(num_candidates))
    if golds:
        sets = sets[[tuple(row) not in golds for row in sets.tolist()]]
    total = len(sets)
    return (sets[rng.choice(total, most, replace=False)] if total > most and size > 1 else sets), total


def standards(tables: Sequence[Table]) -> tuple[FloatArray, FloatArray]:
    """Return mean and scale of the features, `[F]` each."""
    rows = np.concatenate([table.features[::5] for table in tables]).astype(np.float64)
    return rows.mean(axis=0), rows.std(axis=0) + 1e-3


class Network(nn.Module):  # type: ignore[misc]
    """A linear floor, and hidden units that start with no say."""

    def __init__(self, num_features: int, settings: FitSettings) -> None:
        super().__init__()
        bound = num_features**-0.5
        self.linear = nn.Parameter(torch.zeros(num_features))
        self.bias = nn.Parameter(torch.zeros(()))
        # As in `nn.Linear`, which warns of layers without units.
        self.hidden = nn.Parameter(torch.empty(settings.hidden, num_features).uniform_(-bound, bound))
        self.hidden_bias = nn.Parameter(torch.empty(settings.hidden).uniform_(-bound, bound))
        self.output = nn.Parameter(torch.zeros(settings.hidden))
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits, `[N, F]` to `[N]`."""
        activations = nn.functional.gelu(x @ self.hidden.T + self.hidden_bias, approximate="tanh")
        return torch.as_tensor(x @ self.linear + self.bias + self.dropout(activations) @ self.output)


def fit_member(
    tables: Sequence[Table], mean: FloatArray, scale: FloatArray, settings: FitSettings, seed: int, device: str = "cpu"
) -> tuple[Network, list[float]]:
    """Fit one network on a device; return it, on the CPU, with the mean loss of each epoch."""
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(len(mean), settings).to(device)
        steps = settings.epochs * -(-len(tables) // settings.batch_size)
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.learning_rate, total_steps=steps)
        curve = []

        def loss_of(batch: Sequence[Table]) -> torch.Tensor:
            drawn = [_draw(table, settings.max_rows, rng) for table in batch]
            x = np.clip((np.concatenate([rows for rows, _ in drawn]) - mean) / scale, -CLIP, CLIP)
            logits = network(torch.from_numpy(x.astype(np.float32)).to(device))
            parts = torch.split(logits, [len(rows) for rows, _ in drawn])
            losses = []
            for table, part, (_, corrections) in zip(batch, parts, drawn, strict=True):
                weighed = torch.cat([part.new_zeros(1), part + torch.from_numpy(corrections).to(device)])
                true = slice(1, 1 + table.num_true) if table.num_true else slice(0, 1)
                losses.append(-table.example.weight * torch.log_softmax(weighed, 0)[true].logsumexp(0))
            return torch.stack(losses).sum() / sum(table.example.weight for table in batch)

        for _ in range(settings.epochs):
            losses = []
            for rows in np.array_split(rng.permutation(len(tables)), steps // settings.epochs):
                loss = loss_of([tables[row] for row in rows.tolist()])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(float(loss.detach()))
            curve.append(float(np.mean(losses)))
    return network.cpu().eval(), curve


def _draw(table: Table, most: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return at most so many hypotheses, those that may be true among them, with their corrections."""
    kept = table.num_true
    others = len(table.features) - kept
    if len(table.features) <= most:
        return table.features, table.corrections
    rows = np.concatenate([np.arange(kept), kept + rng.choice(others, most - kept, replace=False)])
    corrections = table.corrections[rows].copy()
    corrections[kept:] += np.float32(np.log(others / (most - kept)))
    return table.features[rows], corrections


def to_ensemble(networks: Sequence[Network], mean: FloatArray, scale: FloatArray) -> Ensemble:
    """Return fitted networks as the library evaluates them."""

    def stack(name: str) -> FloatArray:
        return np.asarray(torch.stack([getattr(network, name) for network in networks]).detach().double().numpy())

    return Ensemble(mean, scale, **{name: stack(name) for name in MEMBER_TENSORS})


def fit_order(examples: Sequence[Example], weight_decay: float = 1.0) -> FloatArray:
    """Fit how surely one piece of evidence comes before another: a logistic regression without a constant.

    Half of `weight_decay` times the squared weights is added to the summed loss. The weights, `[len(SINGLES) +
    len(PAIRS)]`, are zero if no example has an order.
    """
    x = torch.from_numpy(_ordered_pairs(examples))

    def loss(weights: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(-x @ weights).sum() + weight_decay / 2 * weights.square().sum()

    return minimised(loss, np.zeros(x.shape[1]))


def order_accuracy(examples: Sequence[Example], weights: FloatArray) -> dict[str, float]:
    """Return the number of pairs of evidence, and the share that the weights put in the order of the data."""
    rows = _ordered_pairs(examples)
    return {"pairs": len(rows), "in order": float((rows @ weights > 0).mean()) if len(rows) else float("nan")}


def _ordered_pairs(examples: Sequence[Example]) -> FloatArray:
    """Return the differences of features between each piece of evidence and each later one, `[pairs, figures]`."""
    rows = [
        np.concatenate([singles[first] - singles[second], pairs[first, second] - pairs[second, first]])
        for example in examples
        for singles, pairs in [(example.signals.singles, example.signals.pairs)]
        for place, first in enumerate(example.ordered)
        for second in example.ordered[place + 1 :]
    ]
    return np.array(rows).reshape(len(rows), len(SINGLES) + len(PAIRS))
