"""From label tables to a trained agent."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import agent
from common.checkpoint import CARD_FILE
from common.storage import folder_lock, write_atomically
from corag.cli.console import progress, say
from corag.cli.page import Page, Section, Table
from corag.errors import DataError, InputError
from corag.models.runtime import Runtime, current, in_runtime, merge_records, parse_device
from corag.selectors.corag.features import check_recipe, feature_dim
from experiments.agents.compare import comparison, departing, gain_over_single, left_out_table
from experiments.agents.targets import TargetConfig, best_single, make_targets, training_targets, utility
from experiments.data.config import comma_separated
from experiments.data.splits import divide
from experiments.labels.table import Labels, label_paths, read_labels, search_settings
from experiments.run.journal import commit, digest
from experiments.run.track import TrackedRun, Tracker, Tracking

logger = logging.getLogger(__name__)

TRAIN, VAL, TEST = 0, 1, 2
FEW_QUESTIONS, FEW_SHARE = 100, 0.25
"""With fewer questions to learn from, or a smaller share of them, a training warns."""
PAGE_FILE = "report.html"


@dataclass(frozen=True)
class TrainAgentConfig(Runtime, Tracking):
    """Train the configuration agent on label tables, into `out`: `checkpoint/`, a page, logs.

    The page, and the checkpoint's card, compare the agent with baselines on questions that it has not seen.

    Attributes:
        labels: Tables of `corag label`, separated by commas; those of several readers are averaged.
        out: Folder for the results. An interrupted run resumes there.
        shares: Shares of the questions for training, for validation, which chooses the best epoch and `min_lead`, and
            for testing; questions that share documents stay together.
        own_splits: Divide the questions by their own splits instead: learn from train, validate on dev, and test on all
            others.
        leave_kinds_out: Also train without each kind of the labels, and say what these agents reach on it.
        features: Parts of the feature vector, separated by commas: query, candidates, curve; see
            `corag.selectors.corag.features`. The paper has the first.
        hidden: Sizes of the hidden layers.
        map_dim: Size of the feature map.
        min_lead: Lead in probability, from 0 to 1, that another configuration has to exceed over the best single one
            for the agent to depart from it: 0 follows the prediction, 1 never departs. By default 0 if on the
            validation questions the agent gains over the best single one beyond chance, else 1.
        target: What makes one configuration better than another.
        training: Settings of the training.
        quiet: Show no progress and no table.
    """

    labels: str
    out: str
    shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
    own_splits: bool = False
    leave_kinds_out: bool = False
    features: str = "query,candidates,curve"
    hidden: tuple[int, ...] = (512, 256)
    map_dim: int = 128
    min_lead: float | None = None
    target: TargetConfig = field(default_factory=TargetConfig)
    training: agent.TrainConfig = field(default_factory=agent.TrainConfig)
    logger: Tracker = field(default="wandb", kw_only=True)
    quiet: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the feature vector."""
        return check_recipe(comma_separated(self.features))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (min(self.shares) >= 0 and self.shares[TRAIN] > 0 and abs(sum(self.shares) - 1) < 1e-6):
            raise InputError(
                f"shares are {', '.join(map(str, self.shares))}; give three numbers of at least 0 for training, "
                "validation and test, the first above 0, that sum to 1"
            )
        _ = self.parts


@in_runtime
def train(config: TrainAgentConfig) -> agent.TrainReport:
    """Train an agent, save its checkpoint and compare it with baselines; an interrupted training is resumed.

    Of several processes with one `out`, one works and the others wait.

    A damaged table or a missing split is a `DataError`; an unknown measure or too little to learn from, `InputError`.
    """
    labels = known_labels(read_labels(config.labels), config)
    agent_config_of(labels, config)  # refuses settings before anything is written
    if config.leave_kinds_out and len(set(labels.kind)) < 2:
        raise InputError(f"all labels are of kind {labels.kind[0]}, so none can be left out; label more sources")
    with folder_lock(Path(config.out), ".train.lock"):
        return _train(config, labels)


def _train(config: TrainAgentConfig, labels: Labels) -> agent.TrainReport:
    parts, left_out = divided(labels, config), list[Section]()
    if config.leave_kinds_out:
        table = left_out_table(labels, config.target, partial(fitted_without, config))
        left_out.append(Section("Each kind left out of the training", [table]))

    def compare(trained: agent.TrainReport) -> Page:
        training, validation, test = (labels.of(parts == part) for part in (TRAIN, VAL, TEST))
        # In the checkpoint of a finished training it may be what was decided.
        followed = departing(trained.agent, config.min_lead or 0.0)
        used, decision = followed, ""
        if config.min_lead is None:  # not by the questions to test on, whose figures would then be too hopeful
            gain = gain_over_single(followed, validation, config.target) if len(validation) else None
            used = followed if gain is not None and gain.low > 0 else departing(followed, 1.0)
            known = f"On {gain.n} validation questions it gains {gain}" if gain else "There are no validation questions"
            single = f"names `{used.config.best_single}` for every question (`min_lead` is 1)"
            decision = f" {known}: the checkpoint {'follows it' if used is followed else single}."
        page = Page("The agent", "There are no questions to test it on.", [])
        if len(test):
            page = comparison(followed, training, validation, test, config.target)
        page = replace(page, lead=page.lead + decision, sections=[*page.sections, *left_out])
        body = page.markdown().partition("\n")[2].replace("\n## ", "\n### ").strip()
        heading = "## On questions it has not seen"
        before = (trained.checkpoint / CARD_FILE).read_text(encoding="utf-8").partition(heading)[0].rstrip()
        agent.save(trained.checkpoint, used, f"{before}\n\n{heading}\n\n{body}\n")
        write_atomically(Path(config.out) / PAGE_FILE, page.html())
        if not config.quiet:
            page.show()
        return page

    trained = fit(labels, config, compare=compare)
    best = trained.history[trained.best_epoch]
    names = dict.fromkeys((trained.monitor, f"{trained.monitor.partition('_')[0]}_accuracy"))
    figures = ", ".join(f"{name} {best[name]:.4f}" for name in names)
    say(f"epoch {trained.best_epoch + 1} of {len(trained.history)} is kept: {figures}; the card has all figures")
    say(f"checkpoint in {trained.checkpoint}; use it with: corag ask 'your question' --agent {config.out}")
    return replace(trained, agent=agent.load(trained.checkpoint))


def known_labels(labels: Labels, config: TrainAgentConfig) -> Labels:
    """Return the labels of the questions that have a utility; a warning counts the others."""
    known = np.isfinite(utility(labels, config.target)).all(axis=1)
    if not known.all():
        lacking = int((~known).sum())
        logger.warning("%d of %d questions have no %s and are left out", lacking, len(labels), config.target.metric)
    return labels.of(known)


def fit(
    labels: Labels,
    config: TrainAgentConfig,
    group: str | None = None,
    title: str = "train",
    compare: Callable[[agent.TrainReport], Page | None] = lambda trained: None,
) -> agent.TrainReport:
    """Train an agent on labels and save its checkpoint; an interrupted training is resumed.

    Its fallback is the best single configuration on all questions that it is not tested on. `group` is that of the W&B
    run if the settings name none, `title` is shown with the progress. `compare` returns the page of the comparison with
    baselines, which W&B gets, too.
    """
    parts = divided(labels, config)
    training, validation = labels.of(parts == TRAIN), labels.of(parts == VAL)
    targets = training_targets(training, config.target, config.parts)
    number = (
        f"{len(targets)} of {len(training)} training questions, on which the best class leads the next by more than "
        f"{config.target.margin:.0%} of {config.target.metric}"
    )
    few = len(targets) < max(FEW_QUESTIONS, FEW_SHARE * len(training))
    remedy = "label more questions, label rerankers that differ more, or lower target.margin"
    logger.log(logging.WARNING if few else logging.INFO, "learns from %s%s", number, f": {remedy}" if few else "")
    # One configuration of a few is hardly fitted, and on fewer questions chance decides between the best two.
    agent_config = agent_config_of(labels.of(parts != TEST), config)
    tables = [{"name": path.name, "sha256": digest(path)} for path in label_paths(config.labels)]
    settings = asdict(config) | {"agent": agent_config.to_dict(), "questions": len(labels), "label_tables": tables}
    run = TrackedRun("train", config, Path(config.out), settings, group=group)
    with progress(title, quiet=config.quiet) as report, run:
        trained = agent.fit(
            targets,
            make_targets(validation, config.target, config.parts) if len(validation) else None,
            agent_config,
            config.training,
            config.out,
            device=parse_device(current().device) or "auto",
            facts=_facts(labels, config) | {"questions learnt from": number},
            progress=report,
            logger=run.start,
        )
        report(len(trained.history), len(trained.history))  # of a training that was finished already, too
        page = compare(trained)
        # A training that was finished already has logged this.
        if trained.epochs_resumed < len(trained.history):
            kept = trained.history[trained.best_epoch]
            if page is not None:
                run.log_html("report", page.html())
                blocks = [block for section in page.sections for block in section.blocks]
                for table in [block for block in blocks if isinstance(block, Table)][:1]:
                    rows = [[cell.replace("**", "") for cell in row] for row in table.rows]
                    run.log_table("comparison", table.headings, rows)
            run.log_metrics({f"kept_{figure}": value for figure, value in kept.items()})
            card = (trained.checkpoint / CARD_FILE).read_text(encoding="utf-8")
            run.log_checkpoint(trained.checkpoint, {**agent_config.to_dict(), **kept, "card": card})
        return trained


def fitted_without(config: TrainAgentConfig, labels: Labels, kind: str) -> agent.ConfigurationAgent:
    """Return an agent trained on labels of all kinds but one; none of their questions is kept for a test."""
    training, validation, test = config.shares
    out = Path(config.out) / "left-out" / re.sub(r"[^\w-]+", "-", kind)
    shares = (training + test, validation, 0.0)
    without = replace(config, out=str(out), shares=shares, own_splits=False, logger="none")
    return fit(labels, without, title=f"train without {kind}").agent


def divided(labels: Labels, config: TrainAgentConfig) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the part of each question, `[n]`: `TRAIN`, `VAL` or `TEST`; an empty part is a `DataError`."""
    if config.own_splits:
        if "train" not in labels.split:
            splits = ", ".join(sorted(set(labels.split)))
            raise DataError(f"{config.labels} has no questions of split train, only {splits}; set own_splits=false")
        return np.select([labels.split == "train", labels.split == "dev"], [TRAIN, VAL], TEST)
    parts = divide(labels.data, labels.group, config.shares)
    for part, (name, share) in enumerate(zip(("training", "validation", "test"), config.shares, strict=True)):
        if share > 0 and not (parts == part).any():
            raise DataError(
                f"{len(labels)} questions in {len(set(labels.group))} groups leave none for {name}, which should "
                f"get {share:g} of them; label more questions, or give other shares"
            )
    return parts


def agent_config_of(known: Labels, config: TrainAgentConfig) -> agent.AgentConfig:
    """Return an agent's configuration, from what is known."""
    classes, ranges = known.classes(), None
    if classes.settings is not None:
        # As spelled: float32 would round a bound such as 0.3.
        settings = [search_settings(name)[1] or () for name in known.configurations]
        ranges = agent.Ranges(*((min(column), max(column)) for column in zip(*settings, strict=True)))
    best = known.configurations[best_single(known, utility(known, config.target))]
    fallback, of_fallback = (best, None) if ranges is None else search_settings(best)
    return agent.AgentConfig(
        configurations=classes.names,
        fallback=fallback,
        feature_dim=feature_dim(config.parts, known.query_vectors.shape[1]),
        embedder=str(known.metadata[0]["embedder"]),
        features=config.parts,
        hidden=tuple(config.hidden),
        map_dim=config.map_dim,
        ranges=ranges,
        min_lead=config.min_lead or 0.0,
        fallback_settings=of_fallback,
    )


def _facts(labels: Labels, config: TrainAgentConfig) -> dict[str, Any]:
    counts = ", ".join(f"{name} {(labels.data == name).sum()}" for name in sorted(set(labels.data)))
    readers = ", ".join(dict.fromkeys(str(metadata["settings"].get("reader")) for metadata in labels.metadata))
    division = "their own splits" if config.own_splits else f"shares {config.shares} by document"
    models = "; ".join(
        f"{row['model']} on {row['hardware']} ({row['device']}), {row['precision']}, {row['backend']}"
        for row in merge_records(metadata.get("models", ()) for metadata in labels.metadata)
    )
    return {
        "layers": f"hidden={config.hidden}, map_dim={config.map_dim}",
        "labels": f"{len(labels.configurations)} configurations on {len(labels)} questions: {counts}",
        "label tables": ", ".join(f"{path.name} (sha256 {digest(path)[:16]})" for path in label_paths(config.labels)),
        "divided by": division,
        "label": f"{config.target.metric} at {', '.join(map(str, np.unique(labels.budget)))} tokens, reader: {readers}",
        "target": ", ".join(f"{name}={value}" for name, value in vars(config.target).items()),
        "models of the labels": models or "not recorded",
        "commit": commit(),
    }
