"""What rebuilds an agent (`AgentConfig`) and what trains one (`TrainConfig`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from agent.configurations import SETTINGS, FixedConfiguration, Ranges
from agent.errors import AgentError, require_choice, require_int, require_names, require_number, require_text

Optimizer = Literal["adam", "adamw"]
Precision = Literal["32-true", "bf16-mixed"]
Tracker = Literal["wandb", "csv", "none"]
Keep = Literal["best", "last"]
Choice = Literal["value", "value-minus-cost"]

DESCRIPTIONS = "descriptions"
"""The tensor of the descriptions' vectors."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything needed to rebuild an agent around its weights, and to feed it.

    Attributes:
        feature_dim: Length of a feature vector.
        rerankers: Names of the rerankers in label order.
        ranges: Lowest and highest value of each search setting.
        embedder: Name of the embedder of the queries.
        features: Recipe of the feature vector: names of its parts in order. The agent only keeps them
            for whoever builds the vectors.
        hidden: Sizes of the hidden layers (paper 5.1).
        map_dim: Size of the feature map on which the contrastive loss works (paper 5.1).
        fixed: The best single configuration on the questions for training and validation, if known.
        min_lead: How much more probable than the reranker of `fixed` another has to be for the agent to depart from
            `fixed`, from 0 (it goes by its own prediction always) to 1 (never). Needs `fixed`. Not in the paper.
        choice: How searches picked their answers when the labels were made, and so should with these settings: by
            value, where lambda only guides the search, or by value minus lambda * cost / budget.
        described: Rerankers whose descriptions the agent knows as vectors (paper 5.1), in the order of the vectors.
            Those not in `rerankers` were never labelled; see `ConfigurationAgent.with_reranker`.
    """

    feature_dim: int
    rerankers: tuple[str, ...]
    ranges: Ranges
    embedder: str
    features: tuple[str, ...] = ("query",)
    hidden: tuple[int, ...] = (512, 256)
    map_dim: int = 128
    fixed: FixedConfiguration | None = None
    min_lead: float = 0.0
    choice: Choice = "value"
    described: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_int("feature_dim", self.feature_dim, 1)
        require_names("rerankers", self.rerankers)
        if not isinstance(self.ranges, Ranges):
            raise AgentError(f"ranges must be a Ranges, got {self.ranges!r}")
        require_text("embedder", self.embedder)
        require_names("features", self.features)
        if not isinstance(self.hidden, tuple):
            raise AgentError(f"hidden must be a tuple of layer sizes, got {self.hidden!r}")
        for size in self.hidden:
            require_int("every size in hidden", size, 1)
        require_int("map_dim", self.map_dim, 1)
        if self.fixed is not None:
            require_choice("fixed.reranker", self.fixed.reranker, self.rerankers)
        require_number("min_lead", self.min_lead)
        if self.min_lead > 1:
            raise AgentError(f"min_lead must be between 0 and 1, got {self.min_lead}; it is a lead in probability")
        if self.min_lead and self.fixed is None:
            raise AgentError(f"min_lead is {self.min_lead}, but there is no fixed configuration to keep to; give fixed")
        require_choice("choice", self.choice, get_args(Choice))
        if self.described != ():
            require_names("described", self.described)
        if self.described and not set(self.described) & set(self.rerankers):
            raise AgentError(
                f"none of the described rerankers {', '.join(self.described)} is among those labelled, "
                f"{', '.join(self.rerankers)}; describe these, too"
            )

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Rerankers known by their description alone."""
        return tuple(name for name in self.described if name not in self.rerankers)

    @property
    def all_rerankers(self) -> tuple[str, ...]:
        """All rerankers that can be chosen: those labelled, in label order, then the others."""
        return self.rerankers + self.unlabelled

    @property
    def encoder_shapes(self) -> tuple[tuple[int, int], ...]:
        """(inputs, outputs) of each encoder layer, from features to feature map."""
        return tuple(pairwise((self.feature_dim, *self.hidden, self.map_dim)))

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight tensor by name; weights are `[outputs, inputs]`."""
        layers = {f"encoder.{i}": shape for i, shape in enumerate(self.encoder_shapes)}
        heads = {"reranker": (self.map_dim, len(self.rerankers)), "settings": (self.map_dim, len(SETTINGS))}
        shapes: dict[str, tuple[int, ...]] = {
            f"{name}.{kind}": shape
            for name, (inputs, outputs) in (layers | heads).items()
            for kind, shape in (("weight", (outputs, inputs)), ("bias", (outputs,)))
        }
        return shapes | ({DESCRIPTIONS: (len(self.described), self.feature_dim)} if self.described else {})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AgentConfig:
        """Return the configuration that `to_dict` wrote.

        Raises:
            AgentError: A key is unknown or missing, or a value breaks a rule.
        """
        if isinstance(values, Mapping):
            # Older checkpoints call min_lead caution, or have none; their labels were picked by value.
            values = {"min_lead": values.get("caution", 0.0), "choice": "value", "described": (), **values}
            values.pop("caution", None)
        fields = _fields(cls, "config", values)
        fields["ranges"] = Ranges(**_fields(Ranges, "ranges", fields["ranges"]))
        if fields["fixed"] is not None:
            fields["fixed"] = FixedConfiguration(**_fields(FixedConfiguration, "fixed", fields["fixed"]))
        return cls(**fields)


def _fields(cls: type, where: str, values: object) -> dict[str, Any]:
    """Return `values` with lists turned into tuples, if its keys are exactly the fields of `cls`."""
    if not isinstance(values, Mapping):
        raise AgentError(f"{where} must be a mapping of settings, got {values!r}")
    expected = {field.name for field in dataclasses.fields(cls)}
    for problem, keys in (("unknown", set(values) - expected), ("missing", expected - set(values))):
        if keys:
            raise AgentError(f"{where} has {problem} keys {sorted(keys)}; it needs exactly {sorted(expected)}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


@dataclass(frozen=True)
class TrainConfig:
    """How an agent is trained; the defaults are those of the paper (6.1), which names no optimizer.

    Training runs on one device unless told otherwise: the network is small enough for a CPU.

    Attributes:
        lr: Learning rate.
        batch_size: Questions per step; pairs are formed within a batch, so at least 2.
        epochs: Passes over the training questions.
        margin: Distance beyond which a negative pair adds no loss.
        contrastive_weight: Weight of the contrastive loss in the total.
        reranker_weight: Weight of the classification loss in the total.
        settings_weight: Weight of the regression loss in the total.
        description_weight: Weight of the loss that brings questions to the description of their best reranker; counts
            where the agent knows descriptions.
        regret_weight: Weight of the expected regret in the total; not in the paper.
        temperature: Above 0, the classification learns the distribution softmax(quality / temperature) over the
            rerankers instead of the label of the best one.
        standardize: Scale every feature to mean 0 and standard deviation 1 / sqrt(features) on the training questions,
            so that a vector has a length of about 1, as an embedding has, and no part dominates. The scaling is folded
            into the first layer of the trained agent, so its inputs stay as they are.
        balanced: Weight rerankers by the inverse of their frequency in the classification loss.
        seed: Seed of the initial weights and of the order of the questions.
        optimizer: Adam or AdamW with PyTorch's defaults for all but the learning rate.
        patience: Stop after this many epochs without a better one; None trains all epochs.
        keep: Which epoch's weights are the result: those of the best or of the last; None is `best`.
        accelerator: Lightning accelerator: "cpu", "gpu", ...; "auto" takes a GPU if there is one.
        devices: Number of devices, or the numbers that they have; the batch is divided among them.
        strategy: Lightning strategy for several devices: "ddp", "ddp_spawn", ...
        num_nodes: Number of machines.
        precision: Arithmetic of the training steps; weights are always float32.
        logger: Where the figures of each epoch are logged besides the report.
    """

    lr: float = 1e-3
    batch_size: int = 32
    epochs: int = 60
    margin: float = 1.0
    contrastive_weight: float = 1.0
    reranker_weight: float = 1.0
    settings_weight: float = 1.0
    description_weight: float = 1.0
    regret_weight: float = 0.0
    temperature: float = 0.0
    standardize: bool = False
    balanced: bool = False
    seed: int = 0
    optimizer: Optimizer = "adam"
    patience: int | None = None
    keep: Keep | None = None
    accelerator: str = "auto"
    devices: int | tuple[int, ...] = 1
    strategy: str = "auto"
    num_nodes: int = 1
    precision: Precision = "32-true"
    logger: Tracker = "csv"

    def __post_init__(self) -> None:
        for name in ("lr", "margin"):
            require_number(name, getattr(self, name), above=True)
        weights = ("contrastive_weight", "reranker_weight", "settings_weight", "regret_weight")
        for name in (*weights, "description_weight", "temperature"):
            require_number(name, getattr(self, name))
        if not any(getattr(self, name) for name in weights):
            raise AgentError("all loss weights are 0, so there is nothing to learn; raise one")
        for name, least in {"batch_size": 2, "epochs": 1, "seed": 0, "num_nodes": 1}.items():
            require_int(name, getattr(self, name), least)
        for number in self.devices if isinstance(self.devices, tuple) else ():
            require_int("every number in devices", number, 0)
        require_int("devices", len(self.devices) if isinstance(self.devices, tuple) else self.devices, 1)
        if self.patience is not None:
            require_int("patience", self.patience, 1)
        for name in ("accelerator", "strategy"):
            require_text(name, getattr(self, name))
        if self.keep is not None:
            require_choice("keep", self.keep, get_args(Keep))
        for name, choices in {"optimizer": Optimizer, "precision": Precision, "logger": Tracker}.items():
            require_choice(name, getattr(self, name), get_args(choices))
