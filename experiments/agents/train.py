"""From label tables to a trained agent."""

from __future__ import annotations

import hashlib
import logging
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

import agent
from agent.checkpoint import CARD_FILE
from corag.checks import check_choice, check_count
from corag.cli.console import progress
from corag.errors import DataError, InputError
from corag.models.devices import parse_device
from corag.models.runtime import Runtime, current, in_runtime, merge_records
from corag.naming import Spellings, split_parts
from corag.selectors.corag.features import Float32, check_recipe, feature_dim
from experiments.agents.compare import comparison
from experiments.agents.descriptions import describe
from experiments.agents.recipes import RECIPES, Recipe, departures, settled
from experiments.agents.targets import TargetConfig, best_single, learnt_targets, make_targets, utility
from experiments.data.config import comma_separated
from experiments.data.splits import divide
from experiments.labels.table import Labels, fallback_of, label_paths, read_labels
from experiments.run.journal import write_atomically
from experiments.run.track import Tracking, tracked
from experiments.run.track import Wandb as Wandb

logger = logging.getLogger(__name__)

TRAIN, VAL, TEST = 0, 1, 2
PAGE_FILE = "report.html"


@dataclass(frozen=True)
class TrainAgentConfig(Runtime, Tracking):
    """Train the configuration agent on label tables, into `out`: `checkpoint/`, a page, logs.

    The page, and the checkpoint's card, compare the agent with baselines on questions that it has not seen.

    Attributes:
        labels: Tables of `corag label`, separated by commas; those of several readers are averaged.
        out: Folder for the results. An interrupted run resumes there.
        shares: Shares of the questions for training, choosing the best epoch, and testing; questions that share
            documents stay together.
        split_seed: Seed of that split.
        train_split: Split to learn from; by default the questions are split by `shares`.
        val_split: Split that chooses the best epoch, with `train_split`; empty for none. The other splits are for
            testing.
        recipe: Named settings, which those set beside it override: `paper` trains the agent of the CORAG paper; see
            `experiments.agents.recipes`.
        features: Parts of the feature vector, separated by commas: query, candidates, curve.
        hidden: Sizes of the hidden layers.
        map_dim: Size of the feature map.
        min_lead: Lead in probability, from 0 to 1, that another configuration needs over the best single one for the
            agent to depart from it. 0 follows the prediction, 1 never departs.
        target: What makes one configuration better than another.
        describe: Embed descriptions of the rerankers and bring questions near that of their best one; needs `query` as
            the only feature. By default as the recipe has it: false, in the paper's true.
        descriptions: Descriptions by name of the reranker, in place of those that ship; needs `describe`.
        extra_rerankers: Rerankers that the labels do not have, separated by commas, which the agent chooses by their
            description alone; needs `describe`.
        training: Settings of the training.
        quiet: Show no progress and no table.
    """

    labels: str
    out: str
    shares: tuple[float, float, float] = (0.6, 0.1, 0.3)
    split_seed: int = 0
    train_split: str = ""
    val_split: str = ""
    recipe: Recipe = "default"
    features: str = "query"
    hidden: tuple[int, ...] = (512, 256)
    map_dim: int = 128
    min_lead: float = 0.0
    target: TargetConfig = field(default_factory=TargetConfig)
    describe: bool | None = None
    descriptions: dict[str, str] = field(default_factory=dict)
    extra_rerankers: Spellings = ""
    training: agent.TrainConfig = field(default_factory=lambda: agent.TrainConfig(logger="wandb"))
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
        if self.val_split and not self.train_split:
            raise InputError(f"val_split is {self.val_split!r} and train_split is empty; name both, or neither")
        describe = RECIPES[self.recipe]["agent"]["describe"] if self.describe is None else self.describe
        if not describe and (self.descriptions or split_parts(self.extra_rerankers)):
            name = "descriptions" if self.descriptions else "extra_rerankers"
            raise InputError(f"{name} is set, but the agent learns no descriptions; set describe=true or recipe=paper")

    def settled(self) -> Self:
        """Return the settings with those that are None as the recipe has them."""
        return replace(
            settled(self, self.recipe, "agent"),
            target=settled(self.target, self.recipe, "target"),
            training=settled(self.training, self.recipe, "training"),
        )


@tracked
@in_runtime
def train(config: TrainAgentConfig) -> agent.TrainReport:
    """Train an agent, save its checkpoint and compare it with baselines; an interrupted training is resumed.

    A damaged table or a missing split is a `DataError`, an unknown measure an `InputError`, too little to learn from an
    `agent.AgentError`.
    """
    config = config.settled()
    labels = read_labels(config.labels).having(config.target.metrics)
    budgets = ", ".join(map(str, labels.budgets))
    if len(labels.budgets) > 1:
        logger.warning("the labels mix the budgets %s, so what is learnt is best on their mean only", budgets)
    parts = divided(labels, config)
    training, validation = labels.of(parts == TRAIN), labels.of(parts == VAL) if (parts == VAL).any() else None
    learnt = learnt_targets(training, config.target, config.parts)
    number = f"all {len(training)} training questions"
    if config.target.weighting == "rule":
        number = (
            f"{len(learnt)} of {len(training)} training questions, on which the best class leads the next by more than "
            f"{config.target.margin:.0%} of {config.target.metric}"
        )
        logger.info("learnt from %s", number)
    texts, vectors, agent_config = agent_config_of(labels.of(parts != TEST), config)
    with progress("train", quiet=config.quiet) as report:
        trained = agent.fit(
            learnt,
            None if validation is None else make_targets(validation, config.target, config.parts),
            agent_config,
            placed(config.training),
            config.out,
            descriptions=vectors,
            facts=_facts(labels, config, texts) | {"questions learnt from": number},
            progress=report,
        )
    if (parts == TEST).any():
        test = labels.of(parts == TEST)
        page = comparison(trained.agent, training, validation, test, config.target, config.parts)
        body = page.markdown().partition("\n")[2].replace("\n## ", "\n### ").strip()
        card, heading = trained.checkpoint / CARD_FILE, "## On questions it has not seen"
        before = card.read_text(encoding="utf-8").partition(heading)[0].rstrip()
        write_atomically(card, f"{before}\n\n{heading}\n\n{body}\n")
        write_atomically(Path(config.out) / PAGE_FILE, page.html())
        if not config.quiet:
            page.show()
    return trained


def divided(labels: Labels, config: TrainAgentConfig) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the part of each question, `[n]`: `TRAIN`, `VAL` or `TEST`; an empty part is a `DataError`."""
    if config.train_split:
        for split in filter(None, (config.train_split, config.val_split)):
            if split not in labels.split:
                splits = ", ".join(sorted(set(labels.split)))
                raise DataError(f"{config.labels} has no rows of split {split!r}; its splits are {splits}")
        return np.select([labels.split == config.train_split, labels.split == config.val_split], [TRAIN, VAL], TEST)
    parts = divide(labels.data, labels.group, config.shares, config.split_seed)
    for part, (name, share) in enumerate(zip(("training", "validation", "test"), config.shares, strict=True)):
        if share > 0 and not (parts == part).any():
            raise DataError(
                f"{len(labels)} questions in {len(set(labels.group))} groups leave none for {name}, which should "
                f"get {share:g} of them; label more questions, or give other shares"
            )
    return parts


def agent_config_of(
    known: Labels, config: TrainAgentConfig
) -> tuple[dict[str, str], Float32 | None, agent.AgentConfig]:
    """Return the descriptions of an agent's classes, their vectors, and its configuration, from what is known."""
    classes, texts, vectors = known.classes(), dict[str, str](), None
    if config.describe:
        extra = [f"corag(unit=passage, reranker={name})" for name in split_parts(config.extra_rerankers)]
        texts, vectors = describe(classes.names, extra, config.descriptions, config.parts, known.embedder)
    ranges = None
    if classes.grid is not None:
        # As spelled: float32 would round a bound such as 0.3.
        settings = [fallback_of(name).settings for name in known.configurations]
        ranges = agent.Ranges(*((min(column), max(column)) for column in zip(*settings, strict=True)))
    best = known.configurations[best_single(known, utility(known, config.target))]
    return (
        texts,
        vectors,
        agent.AgentConfig(
            configurations=classes.names,
            fallback=agent.Fallback(best) if ranges is None else fallback_of(best),
            feature_dim=feature_dim(config.parts, known.query_vectors.shape[1]),
            embedder=known.embedder,
            features=config.parts,
            hidden=tuple(config.hidden),
            map_dim=config.map_dim,
            ranges=ranges,
            min_lead=config.min_lead,
            described=tuple(texts),
        ),
    )


def placed(training: agent.TrainConfig) -> agent.TrainConfig:
    """Return the settings of a training on the devices, and in the precision, of the surrounding runtime.

    What the settings say themselves stays; see `corag.models.runtime`. An `InputError` says what is not possible.
    """
    asked, changes = current(), dict[str, Any]()
    if training.device == "auto" and (device := parse_device(asked.device)) is not None:
        changes["device"] = device
    if asked.precision == "fp16":
        raise InputError("precision is 'fp16', but agents are trained in fp32 or bf16; use one of these")
    if asked.precision == "bf16":
        changes["precision"] = "bf16-mixed"
    return replace(training, **changes)


def _facts(labels: Labels, config: TrainAgentConfig, descriptions: Mapping[str, str]) -> dict[str, Any]:
    usual = TrainAgentConfig(config.labels, config.out, recipe=config.recipe).settled()
    changed = ", ".join(f"{name}={value}" for name, value in departures(config, usual).items())
    counts = ", ".join(f"{name} {(labels.data == name).sum()}" for name in sorted(set(labels.data)))
    readers = ", ".join(dict.fromkeys(str(metadata["settings"].get("reader")) for metadata in labels.metadata))
    division = f"shares {config.shares} by document, seed {config.split_seed}"
    if config.train_split:
        division = f"split {config.train_split}" + (f", validation {config.val_split}" if config.val_split else "")
    texts = "; ".join(f"`{name}`: {text.replace('|', '/')}" for name, text in descriptions.items())
    models = "; ".join(
        f"{row['model']} on {row['hardware']} ({row['device']}), {row['precision']}, {row['backend']}"
        for row in merge_records(metadata.get("models", ()) for metadata in labels.metadata)
    )
    return {
        "recipe": config.recipe + (f" with {changed}" if changed else ""),
        "labels": f"{len(labels.configurations)} configurations on {len(labels)} questions: {counts}",
        "label tables": ", ".join(f"{path.name} (sha256 {sha256(path)[:16]})" for path in label_paths(config.labels)),
        "divided by": division,
        "label": f"{config.target.metric} of the answer by reader {readers} at "
        f"{', '.join(map(str, labels.budgets))} tokens",
        "target": ", ".join(f"{name}={value}" for name, value in vars(config.target).items()),
        "min_lead": config.min_lead,
        "descriptions": texts or "none",
        "models of the labels": models or "not recorded",
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
