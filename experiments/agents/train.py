"""From label tables to a trained agent."""

from __future__ import annotations

import hashlib
import logging
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

import agent
from corag.checks import check_choice, check_count
from corag.cli.console import progress
from corag.errors import DataError, InputError
from corag.models.devices import kind_of, parse_device
from corag.models.ran import ran_in_all
from corag.models.runtime import Runtime, current, in_runtime
from corag.naming import Spellings, split_parts
from corag.selectors.corag.features import check_recipe, feature_dim
from experiments.agents.descriptions import Descriptions, describe
from experiments.agents.recipes import Recipe, departures, left_open
from experiments.agents.targets import TargetConfig, best_single, learnt_targets, make_targets, utility
from experiments.data.config import comma_separated
from experiments.data.splits import divide
from experiments.labels.arrays import LabelArrays, label_paths, read_labels
from experiments.run.track import Tracking, tracked
from experiments.run.track import Wandb as Wandb

logger = logging.getLogger(__name__)

TRAIN, VAL, TEST = 0, 1, 2


@dataclass(frozen=True)
class AgentSettings(Runtime, Tracking):
    """What an agent learns from, and its architecture.

    Attributes:
        labels: Tables of `corag label`, separated by commas; those of several readers are averaged.
        out: Folder for the results. An interrupted run resumes there.
        shares: Shares of the questions for training, choosing the best epoch, and testing; questions that share
            documents stay together.
        split_seed: Seed of that split.
        recipe: Named settings, which those set beside it override: `paper` trains the agent of the CORAG paper; see
            `experiments.agents.recipes`.
        features: Parts of the feature vector, separated by commas: query, candidates, curve.
        hidden: Sizes of the hidden layers.
        map_dim: Size of the feature map.
        min_lead: Lead in probability, from 0 to 1, that another reranker needs over that of the best single
            configuration for the agent to depart from it. 0 follows the prediction, 1 never departs.
        target: What makes one configuration better than another.
        describe: Embed descriptions of the rerankers and bring questions near that of their best one; needs `query` as
            the only feature. By default as the recipe has it: false, in the paper's true.
        descriptions: Descriptions by name of the reranker, in place of those that ship; needs `describe`.
        quiet: Show no progress and no table.
    """

    labels: str
    out: str
    shares: tuple[float, float, float] = (0.6, 0.1, 0.3)
    split_seed: int = 0
    recipe: Recipe = "default"
    features: str = "query"
    hidden: tuple[int, ...] = (512, 256)
    map_dim: int = 128
    min_lead: float = 0.0
    target: TargetConfig = field(default_factory=TargetConfig)
    describe: bool | None = None
    descriptions: dict[str, str] = field(default_factory=dict)
    quiet: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the feature vector."""
        return check_recipe(comma_separated(self.features))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (np.isfinite(self.shares).all() and min(self.shares) >= 0 and self.shares[TRAIN] > 0):
            raise InputError(
                f"shares are {', '.join(map(str, self.shares))}; give three numbers of at least 0 for training, "
                "validation and test, the first above 0"
            )
        check_count("split_seed", self.split_seed, "0 is usual", least=0)
        check_choice("recipe", self.recipe, Recipe)
        _ = self.parts

    def settled(self) -> Self:
        """Return the settings with what they leave open as the recipe has it."""
        open_ = left_open(self, self.recipe)
        for group in ("target", "training"):
            settings = getattr(self, group)
            if of_group := left_open(settings, self.recipe, group):
                open_[group] = replace(settings, **of_group)
        return replace(self, **open_) if open_ else self


@dataclass(frozen=True)
class TrainAgentConfig(AgentSettings):
    """Train the configuration agent on label tables, into `out`: `checkpoint/`, logs, the state of a training.

    Attributes:
        train_split: Split to learn from; by default the questions are split by `shares`.
        val_split: Split that chooses the best epoch, with `train_split`; empty for none.
        extra_rerankers: Rerankers that the labels do not have, separated by commas, which the agent chooses by their
            description alone; needs `describe`.
        training: Settings of the training.
    """

    train_split: str = ""
    val_split: str = ""
    extra_rerankers: Spellings = ""
    training: agent.TrainConfig = field(default_factory=lambda: agent.TrainConfig(logger="wandb"))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.val_split and not self.train_split:
            raise InputError(f"val_split is {self.val_split!r} and train_split is empty; name both, or neither")
        describe = left_open(self, self.recipe).get("describe", self.describe)
        if not describe and (self.descriptions or split_parts(self.extra_rerankers)):
            name = "descriptions" if self.descriptions else "extra_rerankers"
            raise InputError(f"{name} is set, but the agent learns no descriptions; set describe=true or recipe=paper")


@tracked
@in_runtime
def train(config: TrainAgentConfig) -> agent.TrainReport:
    """Train an agent and save its checkpoint; an interrupted training is resumed.

    A damaged table or a missing split is a `DataError`, an unknown figure an `InputError`, too little to learn from an
    `agent.AgentError`.
    """
    config = config.settled()
    arrays = read_labels(config.labels).having(config.target.metrics)
    if len(arrays.budgets) > 1:
        budgets = ", ".join(map(str, arrays.budgets))
        logger.warning("the labels mix the budgets %s, so what is learnt is best on their mean only", budgets)
    if config.recipe == "paper" and arrays.choice == "value":
        logger.warning(
            "the labels' answers were picked by value, where lambda decides nothing; label again for a lambda that acts"
        )
    training, validation = _parts(arrays, config)
    known = np.isin(arrays.ids, training.ids + (() if validation is None else validation.ids))
    learnt = learnt_targets(training, config.target, config.parts)
    if len(learnt) < len(training):
        logger.info("learnt from %s", _said_left(len(learnt), len(training), config.target))
    descriptions = descriptions_of(arrays, config)
    agent_config = agent_config_of(arrays.of(known), config, tuple(map(class_of, descriptions.texts)))
    with progress("train", quiet=config.quiet) as report:
        return agent.fit(
            learnt,
            None if validation is None else make_targets(validation, config.target, config.parts),
            agent_config,
            placed(config.training),
            config.out,
            descriptions=descriptions.vectors,
            facts=_facts(arrays, agent_config, config, descriptions)
            | {"questions learnt from": _said_left(len(learnt), len(training), config.target)},
            progress=report,
        )


def descriptions_of(arrays: LabelArrays, config: TrainAgentConfig) -> Descriptions:
    """Return the descriptions of the rerankers that settled settings ask for; see `describe`."""
    if not config.describe:
        return Descriptions()
    extra = split_parts(config.extra_rerankers)
    return describe(arrays.rerankers, extra, config.descriptions, config.parts, arrays.embedder)


def placed(training: agent.TrainConfig) -> agent.TrainConfig:
    """Return the settings of a training on the devices, and in the precision, of the surrounding runtime.

    What the settings say themselves stays; see `corag.models.runtime`. An `InputError` says what is not possible.
    """
    asked, changes = current(), dict[str, Any]()
    device = parse_device(asked.device)
    if device is not None and training.accelerator == "auto":
        changes["accelerator"] = kind_of(device)
        if device.startswith("cuda"):
            changes["devices"] = (int(device.partition(":")[2]),)
    if asked.precision == "fp16":
        raise InputError("precision is 'fp16', but agents are trained in fp32 or bf16; use one of these")
    if asked.precision == "bf16":
        changes["precision"] = "bf16-mixed"
    return replace(training, **changes)


def agent_config_of(known: LabelArrays, config: TrainAgentConfig, described: tuple[str, ...] = ()) -> agent.AgentConfig:
    """Return the configuration of an agent that knows some questions, those for training and for validation.

    `described` are the rerankers whose descriptions it knows.
    """
    reranker, iterations, exploration, cost_weight = known.configurations[
        best_single(known, utility(known, config.target))
    ]
    return agent.AgentConfig(
        feature_dim=feature_dim(config.parts, known.query_vectors.shape[1]),
        configurations=tuple(map(class_of, known.rerankers)),
        ranges=known.ranges,
        embedder=known.embedder,
        features=config.parts,
        hidden=tuple(config.hidden),
        map_dim=config.map_dim,
        fallback=agent.Fallback(class_of(reranker), iterations, exploration, cost_weight),
        min_lead=config.min_lead,
        described=described,
    )


def class_of(reranker: str) -> str:
    """Return the configuration that stands for a reranker."""
    return f"corag(unit=passage, reranker={reranker})"


def parts_of(arrays: LabelArrays, shares: tuple[float, float, float], seed: int) -> NDArray[np.int64]:
    """Return the part of each question, `[n]`: `TRAIN`, `VAL` or `TEST`; an empty part is a `DataError`."""
    parts = divide(arrays.data, arrays.group, shares, seed)
    for part, (name, share) in enumerate(zip(("training", "validation", "test"), shares, strict=True)):
        if share > 0 and not (parts == part).any():
            raise DataError(
                f"{len(arrays)} questions in {len(set(arrays.group))} groups leave none for {name}, which should "
                f"get {share:g} of them; label more questions, or give other shares"
            )
    return parts


def _parts(arrays: LabelArrays, config: TrainAgentConfig) -> tuple[LabelArrays, LabelArrays | None]:
    if not config.train_split:
        parts = parts_of(arrays, config.shares, config.split_seed)
        return arrays.of(parts == TRAIN), arrays.of(parts == VAL) if config.shares[VAL] > 0 else None
    for split in filter(None, (config.train_split, config.val_split)):
        if split not in arrays.split:
            splits = ", ".join(sorted(set(arrays.split)))
            raise DataError(f"{config.labels} has no rows of split {split!r}; its splits are {splits}")
    training = arrays.of(arrays.split == config.train_split)
    return training, arrays.of(arrays.split == config.val_split) if config.val_split else None


def _said_left(left: int, total: int, target: TargetConfig) -> str:
    if target.weighting != "rule":
        return f"all {total} training questions"
    return (
        f"{left} of {total} training questions, on which the best reranker leads the next by more than "
        f"{target.margin:.0%} of {target.metric}"
    )


def _facts(
    arrays: LabelArrays, agent_config: agent.AgentConfig, config: TrainAgentConfig, descriptions: Descriptions
) -> dict[str, Any]:
    changed = ", ".join(f"{name}={value}" for name, value in departures(config, config.recipe).items())
    counts = ", ".join(f"{name} {(arrays.data == name).sum()}" for name in sorted(set(arrays.data)))
    readers = ", ".join(dict.fromkeys(str(metadata["settings"].get("reader")) for metadata in arrays.metadata))
    budgets = ", ".join(map(str, arrays.budgets))
    if config.train_split:
        division = f"split {config.train_split}" + (f", validation {config.val_split}" if config.val_split else "")
    else:
        division = f"shares {config.shares} by document, seed {config.split_seed}"
    return {
        "recipe": config.recipe + (f" with {changed}" if changed else ""),
        "labels": f"{len(arrays.configurations)} configurations on {len(arrays)} questions: {counts}",
        "label tables": ", ".join(f"{path.name} (sha256 {sha256(path)[:16]})" for path in label_paths(config.labels)),
        "divided by": division,
        "label": f"{config.target.metric} of the answer by reader {readers} at {budgets} tokens",
        "target": ", ".join(f"{name}={value}" for name, value in vars(config.target).items()),
        "best single configuration": agent_config.fallback,
        "min_lead": agent_config.min_lead,
        "descriptions": "; ".join(f"`{name}`: {text.replace('|', '/')}" for name, text in descriptions.texts.items())
        or "none",
        "models of the labels": "; ".join(
            f"{row['model']} on {row['hardware']} ({row['device']}), {row['precision']}, {row['backend']}"
            for row in ran_in_all(metadata.get("models", ()) for metadata in arrays.metadata)
        )
        or "not recorded",
        "commit": commit(),
    }


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def commit() -> str:
    """Return the commit of the source tree, marked when it has changes; `unknown` outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()
