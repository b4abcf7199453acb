"""The agent compared with baselines: on held-out questions, on unseen data folders, and with fewer questions."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

import agent
from agent.config import Tracker
from corag.cli.console import progress
from corag.errors import InputError
from corag.models.runtime import WHERE, in_runtime
from experiments.agents.figures import BASE, CEILING, by_folder, method_figures
from experiments.agents.methods import AGENT, BASELINES, WITHOUT_MIN_LEAD, Fold, ablations, run_method
from experiments.agents.report import HELD_OUT, markdown, page, plot, show, track
from experiments.agents.targets import learnt_targets
from experiments.agents.train import TEST, TRAIN, VAL, AgentSettings, TrainAgentConfig, parts_of
from experiments.data.config import comma_separated
from experiments.data.splits import divide
from experiments.labels.arrays import LabelArrays, read_labels
from experiments.run.journal import Journal, fingerprint, versions, write_atomically
from experiments.run.track import UNMEASURED, tracked

logger = logging.getLogger(__name__)

Protocol = Literal["held-out", "unseen-folder", "learning-curve"]
CURVE_SHARES = (0.125, 0.25, 0.5)
"""Of the training questions; the learning curve ends with all of them, the held-out figures."""
NOT_WORK = ("labels", "out", "methods", "protocols", "seeds", "quiet", *UNMEASURED, *WHERE)
"""Settings on which the choices of one method with one seed do not depend: the labels count by their content."""


@dataclass(frozen=True)
class EvaluateAgentConfig(AgentSettings):
    """Compare the configuration agent with baselines, ablations and the oracle.

    Writes `report.html`, `result.json`, `result.md` and `agents.svg` into `out`. `split_seed` chooses what is tested.

    Attributes:
        methods: Methods, separated by commas; by default all.
        protocols: What to measure, separated by commas. held-out: questions of the test share. unseen-folder: each
            data folder in turn by methods that learned from the others. learning-curve: held-out, with a part of the
            training questions.
        seeds: Number of seeds; each splits the questions that are not tested into training and validation.
        training: Settings of the agent's training.
        logger: Where figures are logged besides: `wandb`, with tables and figure, `csv` or `none`.
    """

    methods: str = ""
    protocols: str = "held-out,unseen-folder,learning-curve"
    seeds: int = 5
    training: agent.TrainConfig = field(default_factory=agent.TrainConfig)
    logger: Tracker = "wandb"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds < 1:
            raise InputError(f"seeds must be at least 1, got {self.seeds}; tests need at least 5")
        if min(self.shares) <= 0:
            raise InputError(f"shares are {self.shares}; training, validation and test each need some questions")
        self.protocol_list()
        self.method_list()

    def train_config(self) -> TrainAgentConfig:
        """Return how the agent is trained."""
        shared = {field.name: getattr(self, field.name) for field in fields(AgentSettings)}
        return TrainAgentConfig(**shared | {"quiet": True}, training=self.training)

    def protocol_list(self) -> list[str]:
        """Return the protocols by name; an unknown one is an `InputError`."""
        names, known = comma_separated(self.protocols), get_args(Protocol)
        if not names or not set(names) <= set(known):
            raise InputError(f"protocols is {self.protocols!r}; give some of {', '.join(known)}")
        return names

    def method_list(self) -> list[str]:
        """Return the methods by name, with the best single configuration and the oracle; or raise `InputError`."""
        known = (*BASELINES, AGENT, *ablations(self.settled().train_config()))
        names = comma_separated(self.methods) or list(known)
        if unknown := [name for name in names if name not in known]:
            raise InputError(f"unknown method {unknown[0]!r}; the methods are {', '.join(known)}")
        return [name for name in known if name in {*names, BASE, CEILING}]


class Part(NamedTuple):
    """One piece of a protocol: methods that learn from `known_rows` and choose for `test_rows`.

    They may use this `share` of the training questions.
    """

    protocol: str
    name: str
    methods: tuple[str, ...]
    test_rows: NDArray[np.int64]
    known_rows: NDArray[np.int64]
    share: float = 1.0

    def key(self, method: str, seed: int) -> str:
        """Return the name of one method's work with one seed in the journal."""
        return f"{self.protocol}/{self.name}/{method}/{seed}"


@tracked
@in_runtime
def evaluate_agent(config: EvaluateAgentConfig) -> dict[str, Any]:
    """Compare, write the result into a folder and return it.

    With a part of the questions, or without a data folder, there may be too little to learn from, such as one reranker
    that is the best throughout. A method that cannot be trained with one of the seeds is left out of that part, with a
    warning and a reason in `left_out`; for the held-out questions it is an error.

    Raises:
        DataError: A table cannot be used, or has too few questions.
        InputError: The tables have no such figure.
        agent.AgentError: There is too little to learn from.
    """
    config, out = config.settled(), Path(config.out)
    arrays = read_labels(config.labels).having(config.target.metrics)
    train_config = config.train_config()
    learnt_targets(arrays, config.target, train_config.parts).check_trainable()
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    configurations = [configuration._asdict() for configuration in arrays.configurations]
    content = [arrays.ids, configurations, [metadata.get("work") for metadata in arrays.metadata]]
    work = fingerprint([settings, fingerprint(content), versions()])
    if not (parts := list(_parts(arrays, config))):
        raise InputError(
            f"protocols is {config.protocols!r}, which needs labels of two data folders, and {config.labels} has one; "
            "add held-out, or label a second folder"
        )
    jobs = [(part, name, seed) for part in parts for name in part.methods for seed in range(config.seeds)]
    with Journal(out / "journal.jsonl", work) as journal, progress("compare", quiet=config.quiet) as report:
        for number, (part, name, seed) in enumerate(jobs, start=1):
            key = part.key(name, seed)
            if key not in journal.units:
                folder = out / "training" / key.replace("/", "-")
                journal.add(key, _unit(part, name, _fold(arrays, part, seed, train_config, folder)))
                shutil.rmtree(folder, ignore_errors=True)
            report(number, len(jobs))
    shutil.rmtree(out / "training", ignore_errors=True)
    result = {
        "questions": len(arrays),
        "configurations": len(arrays.configurations),
        "metric": config.target.metric,
        "protocols": _protocols(arrays, parts, journal.units, config),
        "config": {"methods": config.methods, "protocols": config.protocols, **settings},
        "seeds": config.seeds,
        "versions": versions(),
    }
    write_atomically(out / "result.json", json.dumps(result, indent=1) + "\n")
    write_atomically(out / "result.md", markdown(result))
    write_atomically(out / "agents.svg", plot(result))
    write_atomically(out / "report.html", page(result))
    track(result, config.logger, out)
    if not config.quiet:
        show(result)
    return result


def _parts(arrays: LabelArrays, config: EvaluateAgentConfig) -> Iterator[Part]:
    protocols, methods = config.protocol_list(), config.method_list()
    tested = parts_of(arrays, config.shares, config.split_seed) == TEST
    test_rows, known_rows = np.flatnonzero(tested), np.flatnonzero(~tested)
    if HELD_OUT in protocols:
        yield Part(HELD_OUT, "all", tuple(methods), test_rows, known_rows)
    # Ablations answer what a part of the agent brings; once is enough, but for what unseen data are about.
    main = tuple(name for name in methods if name in BASELINES or name in (AGENT, WITHOUT_MIN_LEAD))
    folders = sorted(set(arrays.data))
    if "unseen-folder" in protocols and len(folders) > 1:
        for folder in folders:
            rows = arrays.data == folder
            # The tested questions stay out of what is learned here too.
            yield Part("unseen-folder", str(folder), main, np.flatnonzero(rows), np.flatnonzero(~rows & ~tested))
    if "learning-curve" in protocols:
        for share in CURVE_SHARES:
            yield Part("learning-curve", f"{share:g}", main, test_rows, known_rows, share)


def _fold(arrays: LabelArrays, part: Part, seed: int, config: TrainAgentConfig, folder: Path) -> Fold:
    known = part.known_rows
    train_share, val_share = config.shares[TRAIN], config.shares[VAL]
    unused = train_share * (1 - part.share)
    shares = (train_share - unused, val_share, unused)
    sides = divide(arrays.data[known], arrays.group[known], shares if unused else shares[:2], seed)
    train, val = known[sides == TRAIN], known[sides == VAL]
    both = np.concatenate([train, val])
    return Fold(arrays.of(train), arrays.of(val), arrays.of(both), arrays.of(part.test_rows), config, seed, folder)


def _unit(part: Part, name: str, fold: Fold) -> dict[str, Any]:
    """Return what a method chooses with one seed, or why it cannot."""
    try:
        return run_method(name, fold)
    except agent.AgentError as error:
        if part.protocol == HELD_OUT:
            raise
        return {"left_out": str(error)}


def _protocols(
    arrays: LabelArrays, parts: Sequence[Part], units: Mapping[str, Any], config: EvaluateAgentConfig
) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        of_method = {name: [units[part.key(name, seed)] for seed in range(config.seeds)] for name in part.methods}
        left_out = {}
        for name in part.methods:
            reasons = [unit["left_out"] for unit in of_method[name] if "left_out" in unit]
            if reasons:
                del of_method[name]
                left_out[name] = f"{len(reasons)} of {config.seeds} seeds: {reasons[0]}"
                logger.warning("%s, %s: %s is left out: %s", part.protocol, part.name, name, left_out[name])
        chosen = {name: [np.array(unit["choices"]) for unit in of_seeds] for name, of_seeds in of_method.items()}
        test = arrays.of(part.test_rows)
        rows = method_figures(test, chosen, config.target)
        for row in rows:
            units_of = of_method[row["method"]]
            row |= {name: float(np.median([unit[name] for unit in units_of])) for name in ("fit_s", "predict_us")}
        of_part: dict[str, Any] = {"questions": len(test), "learned_from": len(part.known_rows), "methods": rows}
        if left_out:
            of_part["left_out"] = left_out
        if part.protocol == HELD_OUT:
            of_part["by_folder"] = by_folder(test, chosen, config.target)
        found.setdefault(part.protocol, {})[part.name] = of_part
    return found
