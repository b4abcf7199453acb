"""The Lightning module around model and losses: batches, steps and figures, no files.

Letters: `b` rows, `d` features, `R` rerankers, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agent.config import AgentConfig, TrainConfig
from agent.configurations import Ranges
from agent.losses import (
    Losses,
    contrastive_loss,
    description_loss,
    regret_loss,
    reranker_loss,
    settings_loss,
    soft_target,
    total_loss,
)
from agent.model import AgentModel, AgentOutput
from agent.predict import decide
from agent.training.data import FeatureScaling, TrainingTable, epoch_order

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class AgentModule(pl.LightningModule):  # type: ignore[misc]
    """Trains a model that has been trained for `first_epoch` epochs.

    `moments` are what `optimizer_arrays` returned after those epochs; empty for a fresh start. `descriptions` are the
    vectors of `config.described`, `[K, d]`, if there are any.
    """

    def __init__(
        self,
        model: AgentModel,
        config: AgentConfig,
        train_config: TrainConfig,
        train: TrainingTable,
        val: TrainingTable | None,
        first_epoch: int,
        moments: Mapping[str, NDArray[np.float32]],
        descriptions: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self._config = config
        self._grid = None if val is None else val.grid
        self.train_config = train_config
        self.first_epoch = first_epoch
        self._moments = moments
        self._scaling = FeatureScaling.of(train.features) if train_config.standardize else None
        self._rows = {"train": whole_table(train, config.ranges, self._scaling)}
        if val is not None:
            self._rows["val"] = whole_table(val, config.ranges, self._scaling)
        class_weight = balanced_class_weight(train, len(config.rerankers)) if train_config.balanced else None
        self.register_buffer("_class_weight", class_weight, persistent=False)
        self._register_descriptions(config, descriptions)
        self._figures: list[dict[str, Tensor]] = []

    def _register_descriptions(self, config: AgentConfig, vectors: NDArray[np.float32] | None) -> None:
        """Keep the descriptions of the labelled rerankers: no question says anything about the others."""
        rows = [row for row, name in enumerate(config.described) if name in config.rerankers]
        self._described = bool(rows) and self.train_config.description_weight > 0
        if self._described:
            assert vectors is not None
            kept = vectors[rows] if self._scaling is None else self._scaling(vectors[rows])
            labels = torch.tensor([config.rerankers.index(config.described[row]) for row in rows])
            self.register_buffer("_descriptions", torch.from_numpy(np.ascontiguousarray(kept)), persistent=False)
            self.register_buffer("_described_labels", labels, persistent=False)

    def train_dataloader(self) -> Batches:
        """Return this epoch's batches; Lightning asks again at every epoch."""
        return self._batches("train", self.first_epoch + self.current_epoch)

    def val_dataloader(self) -> Batches:
        """Return the validation batches, shuffled once so that a sorted table still forms negative pairs."""
        return self._batches("val", 0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer, with the moments of an interrupted training if there are any."""
        optimizer = OPTIMIZERS[self.train_config.optimizer](self.model.parameters(), lr=self.train_config.lr)
        state: dict[int, dict[str, Tensor]] = {}
        for full_name, array in self._moments.items():
            index, name = full_name.split(".", 1)
            state.setdefault(int(index), {})[name] = torch.from_numpy(array.copy())
        if state:
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        return optimizer

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Return the total loss of a batch."""
        return self._loss("train", self.model(batch.features), batch)

    def validation_step(self, batch: Batch, _: int) -> None:
        """Note the losses of a batch, and what its predictions lose to the best ones."""
        output = self.model(batch.features)
        self._loss("val", output, batch)
        # To the CPU first: not every accelerator has float64.
        probabilities = output.logits.float().cpu().double().softmax(dim=1).numpy()
        unit = output.settings.float().cpu().double().numpy()
        chosen, settings = decide(self._config, probabilities, unit)[:2]
        values = batch.quality
        if self._grid is not None:
            chosen, values = self._grid.nearest(chosen, settings, self._config.ranges), batch.utility
        if values is not None:
            index = torch.from_numpy(chosen).to(values.device)
            lost = values.max(dim=1).values - values.gather(1, index[:, None])[:, 0]
            self._figures[-1]["val_regret"] = lost.sum()

    def pop_figures(self) -> dict[str, float]:
        """Return the figures since the last call: means over the rows, of all processes together."""
        named = dict.fromkeys(name for figures in self._figures for name in figures)
        sums = {name: sum(figures[name] for figures in self._figures if name in figures) for name in named}
        self._figures = []
        totals = {name: float(self.trainer.strategy.reduce(value, reduce_op="sum")) for name, value in sums.items()}
        num_rows = {split: len(rows.features) for split, rows in self._rows.items()}
        return {name: total / num_rows[name.split("_", 1)[0]] for name, total in totals.items()}

    def finished_weights(self) -> dict[str, NDArray[np.float32]]:
        """Return a copy of the weights for features as they are."""
        weights = self.model.weights()
        return weights if self._scaling is None else self._scaling.fold(weights)

    def optimizer_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return a copy of the optimizer's moments and step counts, named `<parameter index>.<name>`."""
        state: dict[int, dict[str, Tensor]] = self.optimizers(use_pl_optimizer=False).state_dict()["state"]
        return {
            f"{index}.{name}": tensor.cpu().numpy().copy()
            for index, tensors in state.items()
            for name, tensor in tensors.items()
        }

    def _batches(self, split: str, epoch: int) -> Batches:
        rows = self._rows[split]
        order = epoch_order(len(rows.features), self.train_config.seed, epoch)
        config, trainer = self.train_config, self.trainer
        return Batches(rows, order, config.batch_size, trainer.global_rank, trainer.world_size)

    def _loss(self, split: str, output: AgentOutput, batch: Batch) -> Tensor:
        """Return the total loss; note it and its parts."""
        config, quality = self.train_config, batch.quality
        target = None if quality is None or not config.temperature else soft_target(quality, config.temperature)
        nothing = output.logits.sum() * 0
        aligned = nothing
        if self._described:
            maps, labels = self.model.maps(self._descriptions), self._described_labels
            aligned = description_loss(output.maps, batch.reranker, batch.weight, maps, labels, config.margin)
        losses = Losses(
            contrastive_loss(output.maps, batch.reranker, batch.weight, config.margin),
            reranker_loss(output.logits, batch.reranker, batch.weight, self._class_weight, target),
            settings_loss(output.settings, batch.settings),
            aligned,
            nothing if quality is None else regret_loss(output.logits, quality),
        )
        weights = (
            config.contrastive_weight,
            config.reranker_weight,
            config.settings_weight,
            config.description_weight,
            config.regret_weight,
        )
        total = total_loss(losses, weights)
        named: dict[str, Any] = {"loss": total, **losses._asdict()}
        if not self._described:
            del named["descriptions"]
        # Kept as tensors until the epoch ends: reading one number would make the GPU wait.
        self._figures.append({f"{split}_{name}": value.detach() * len(output.maps) for name, value in named.items()})
        return total


def balanced_class_weight(table: TrainingTable, num_rerankers: int) -> Tensor:
    """Return weights `[R]` under which all rerankers seen weigh the same in sum; 0 for one never seen."""
    totals = np.bincount(table.reranker, weights=table.weight, minlength=num_rerankers)
    seen = totals > 0
    weights = np.divide(totals.sum() / seen.sum(), totals, out=np.zeros(num_rerankers), where=seen)
    return torch.from_numpy(weights.astype(np.float32))


class Batch(NamedTuple):
    """Rows of a `TrainingTable`; settings are on the scale [0, 1] of `Ranges`."""

    features: Tensor  # [b, d]
    reranker: Tensor  # [b]
    settings: Tensor  # [b, 3]
    weight: Tensor  # [b]
    quality: Tensor | None  # [b, R]
    utility: Tensor | None  # [b, C]


class Batches:
    """A table cut into batches along an order of its rows, `[n]`; the last one may be smaller.

    Of `num_processes` processes each takes its share, given by `rank`, of every batch, so that the batch size does not
    depend on the number of devices.
    """

    def __init__(
        self, rows: Batch, order: NDArray[np.int64], batch_size: int, rank: int = 0, num_processes: int = 1
    ) -> None:
        self._rows = rows
        self._parts = [part[rank::num_processes] for part in torch.from_numpy(order).split(batch_size)]

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Batch]:
        for part in self._parts:
            yield Batch(*(None if column is None else column[part] for column in self._rows))


def whole_table(table: TrainingTable, ranges: Ranges, scaling: FeatureScaling | None = None) -> Batch:
    """Return all rows of a table as one batch, their features scaled where a scaling is given."""
    return Batch(
        features=torch.from_numpy(table.features if scaling is None else scaling(table.features)),
        reranker=torch.from_numpy(table.reranker),
        settings=torch.from_numpy(ranges.to_unit(table.settings).astype(np.float32)),
        weight=torch.from_numpy(table.weight),
        quality=None if table.quality is None else torch.from_numpy(table.quality),
        utility=None if table.utility is None else torch.from_numpy(table.utility),
    )
