"""The Lightning module around model and losses: batches, steps and figures, no files.

Letters: `b` rows, `d` features, `R` configurations.
"""

from __future__ import annotations

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from agent.config import SETTINGS, AgentConfig, TrainConfig
from agent.losses import choice_loss, contrastive_loss, settings_loss
from agent.model import AgentModel, AgentOutput
from agent.predict import decide
from agent.training.data import FeatureScaling, Float32, TrainingTable
from agent.training.lightning import loader_of

Batch = dict[str, Tensor]
"""The columns of a `TrainingTable` by name; settings are on the scale [0, 1] of `AgentConfig.ranges`."""


class AgentModule(pl.LightningModule):  # type: ignore[misc]
    """Trains a model on a table, and validates it on another, if there is one."""

    def __init__(
        self, config: AgentConfig, train_config: TrainConfig, train: TrainingTable, val: TrainingTable | None
    ) -> None:
        super().__init__()
        self.model = AgentModel(config, train_config.seed)
        self.train_config = train_config
        self._config = config
        self._scaling = FeatureScaling.of(train.features) if train_config.standardize else None
        self._rows = {"train": _tensors(train, config, self._scaling)}
        if val is not None:
            self._rows["val"] = _tensors(val, config, self._scaling)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return this epoch's batches; Lightning asks again at every epoch."""
        return self._batches("train", self.current_epoch)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return the validation batches, shuffled once so that a sorted table still forms negative pairs."""
        return self._batches("val", 0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.model.parameters(), lr=self.train_config.lr)

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Return the total loss of a batch, and log its figures."""
        return self._loss("train", batch)

    def validation_step(self, batch: Batch, _: int) -> None:
        """Log the figures of a batch."""
        self._loss("val", batch)

    def _log_predictions(self, split: str, output: AgentOutput, batch: Batch) -> None:
        """Log how often the best class is first and among the first two, the error of each setting, and the regret."""
        label, rows = batch["label"], len(batch["label"])
        first = output.logits.topk(min(2, output.logits.shape[1]), dim=1).indices == label[:, None]
        self._log_mean(f"{split}_accuracy", first[:, 0].float().mean(), rows)
        self._log_mean(f"{split}_top2_accuracy", first.any(dim=1).float().mean(), rows)
        # To the CPU first: not every accelerator has float64.
        probabilities = output.logits.detach().float().cpu().double().softmax(dim=1).numpy()
        unit = output.settings.detach().float().cpu().double().numpy()
        chosen, _, _ = decide(self._config, probabilities, unit)
        if self._config.ranges is not None and "settings" in batch:
            best = self._config.ranges.from_unit(batch["settings"].float().cpu().double().numpy())
            errors = np.abs(self._config.ranges.from_unit(unit) - best).mean(axis=0)
            for name, error in zip(SETTINGS, errors, strict=True):
                self._log_mean(f"{split}_{name}_error", torch.tensor(error), rows)
        if (values := batch.get("quality")) is not None:
            index = torch.from_numpy(chosen).to(values.device)
            lost = values.max(dim=1).values - values.gather(1, index[:, None])[:, 0]
            self._log_mean(f"{split}_regret", lost.mean(), rows)

    def finished_weights(self) -> dict[str, Float32]:
        """Return a copy of the weights for features as they are."""
        weights = self.model.weights()
        return weights if self._scaling is None else self._scaling.fold(weights)

    def _batches(self, split: str, epoch: int) -> DataLoader[Batch]:
        rows, config = self._rows[split], self.train_config
        # The order depends on (seed, epoch) alone, so that an interrupted training continues as if it had not been.
        order = np.random.default_rng((config.seed, epoch)).permutation(len(rows["features"]))
        parts = torch.from_numpy(order).split(config.batch_size)
        return loader_of([{name: column[part] for name, column in rows.items()} for part in parts])

    def _loss(self, split: str, batch: Batch) -> Tensor:
        """Return the total loss; log it, its parts, and how good the predictions are."""
        config, settings = self.train_config, batch.get("settings")
        label, weight = batch["label"], batch["weight"]
        output = self.model(batch["features"])
        losses = {
            "contrastive": contrastive_loss(output.maps, label, weight, config.margin),
            "choice": choice_loss(output.logits, label, weight),
        }
        if settings is not None:
            losses["settings"] = settings_loss(output.settings, settings)
        # Eq. 11; in the paper each weight is 1.
        weights = {"contrastive": config.contrastive_weight, "choice": 1.0, "settings": config.settings_weight}
        total: Tensor = sum(loss * weights[name] for name, loss in losses.items())
        for name, value in {"loss": total, **losses}.items():
            self._log_mean(f"{split}_{name}", value.detach(), len(output.maps))
        self._log_predictions(split, output, batch)
        return total

    def _log_mean(self, name: str, mean: Tensor, rows: int) -> None:
        self.log(name, mean, on_step=False, on_epoch=True, batch_size=rows, logger=False)


def _tensors(table: TrainingTable, config: AgentConfig, scaling: FeatureScaling | None) -> Batch:
    """Return all rows of a table as one batch, the features scaled if asked."""
    columns = table.arrays
    columns["features"] = table.features if scaling is None else scaling(table.features)
    if config.ranges is not None and table.settings is not None:
        columns["settings"] = config.ranges.to_unit(table.settings).astype(np.float32)
    return {name: torch.from_numpy(column) for name, column in columns.items()}
