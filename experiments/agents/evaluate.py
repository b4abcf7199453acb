"""The agent beside what it has to beat: on held-out questions, on unseen data folders, and with fewer questions."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import agent
from agent.config import Tracker
from corag.cli.console import progress, stdout, table
from corag.errors import InputError
from experiments.agents.figures import BASE, CEILING, by_folder, method_figures
from experiments.agents.methods import AGENT, BASELINES, WITHOUT_CAUTION, Fold, ablations, run_method
from experiments.agents.targets import TargetConfig, make_targets
from experiments.agents.train import TEST, TRAIN, VAL, TrainAgentConfig, parts_of
from experiments.data.splits import divide
from experiments.labels.arrays import LabelArrays, read_labels
from experiments.run.journal import Journal, fingerprint, versions, write_atomically
from experiments.run.report import COLORS, new_figure, to_svg

logger = logging.getLogger(__name__)

Protocol = Literal["held-out", "unseen-folder", "learning-curve"]
HELD_OUT = "held-out"
CURVE_SHARES = (0.125, 0.25, 0.5)
"""Of the training questions; the learning curve ends with all of them, the held-out figures."""
NOT_WORK = ("labels", "out", "methods", "protocols", "seeds", "logger", "quiet")
"""Settings on which the choices of one method with one seed do not depend: the labels count by their content."""
UNSEEN_SHOWN = (AGENT, WITHOUT_CAUTION, "knn", "ridge")
"""Methods that the plot of unseen data folders shows."""
SHOWN = {
    "method": "", "quality": "quality", "utility": "utility", "regret": "regret", "gap_closed": "gap closed",
    "interval": "95%", "p_questions": "p, questions", "p_seeds": "p, seeds", "cost_tokens": "tokens",
    "latency_ms": "search ms", "predict_us": "predict us", "fit_s": "fit s",
}  # fmt: skip


@dataclass(frozen=True)
class EvaluateAgentConfig:
    """Compare the configuration agent with baselines, ablations and the oracle.

    Attributes:
        labels: Tables of `corag label`, separated by commas.
        out: Folder for the result: `result.json`, `result.md`, `agents.svg`. An interrupted run resumes.
        methods: Methods, separated by commas; by default all.
        protocols: What to measure, separated by commas. held-out: questions of the test share. unseen-folder: each
            data folder in turn by methods that learned from the others. learning-curve: held-out, with a part of the
            training questions.
        seeds: Number of seeds; each splits the questions that are not tested into training and validation.
        shares: Shares of the questions for training, validation and test.
        split_seed: Seed of the choice of test questions.
        features: Parts of the agent's feature vector; see `corag train`.
        hidden: Sizes of the agent's hidden layers.
        map_dim: Size of its feature map.
        caution: Lead that a prediction needs over the best single configuration; see `corag train`.
        target: What makes one configuration better than another.
        training: Settings of the agent's training.
        logger: `wandb` also logs the table to W&B (offline unless WANDB_MODE is set).
        quiet: Show no progress and no table.
    """

    labels: str
    out: str
    methods: str = ""
    protocols: str = "held-out,unseen-folder,learning-curve"
    seeds: int = 5
    shares: tuple[float, float, float] = (0.6, 0.1, 0.3)
    split_seed: int = 0
    features: str = "query"
    hidden: tuple[int, ...] = (512, 256)
    map_dim: int = 128
    caution: float = 0.0
    target: TargetConfig = field(default_factory=TargetConfig)
    training: agent.TrainConfig = field(default_factory=agent.TrainConfig)
    logger: Tracker = "wandb"
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InputError(f"seeds must be at least 1, got {self.seeds}; tests need at least 5")
        if min(self.shares) <= 0:
            raise InputError(f"shares are {self.shares}; training, validation and test each need some questions")
        self.protocol_list()
        self.method_list()

    def train_config(self) -> TrainAgentConfig:
        """Return how the agent is trained."""
        return TrainAgentConfig(
            labels=self.labels,
            out=self.out,
            shares=self.shares,
            split_seed=self.split_seed,
            features=self.features,
            hidden=self.hidden,
            map_dim=self.map_dim,
            caution=self.caution,
            target=self.target,
            training=self.training,
            quiet=True,
        )

    def protocol_list(self) -> list[str]:
        """Return the protocols by name.

        Raises:
            InputError: One is unknown.
        """
        names = [name.strip() for name in self.protocols.split(",") if name.strip()]
        known = Protocol.__args__  # type: ignore[attr-defined]
        if not names or not set(names) <= set(known):
            raise InputError(f"protocols is {self.protocols!r}; give some of {', '.join(known)}")
        return names

    def method_list(self) -> list[str]:
        """Return the methods by name; the best single configuration and the oracle are always among them.

        Raises:
            InputError: One is unknown.
        """
        known = (*BASELINES, AGENT, *ablations(self.train_config()))
        names = [name.strip() for name in self.methods.split(",") if name.strip()] or list(known)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InputError(f"unknown method {unknown[0]!r}; the methods are {', '.join(known)}")
        return [name for name in known if name in {*names, BASE, CEILING}]


@dataclass(frozen=True)
class Part:
    """One piece of a protocol: who learns from what, and is asked about what.

    Attributes:
        protocol: Name of the protocol.
        name: Name of the piece within it.
        methods: Who.
        test_rows: The questions asked.
        known_rows: The questions to learn from and to validate by.
        share: Share of the training questions that may be used.
    """

    protocol: str
    name: str
    methods: tuple[str, ...]
    test_rows: NDArray[np.int64]
    known_rows: NDArray[np.int64]
    share: float = 1.0


def evaluate_agent(config: EvaluateAgentConfig) -> dict[str, Any]:
    """Compare, write the result into a folder and return it.

    With a part of the questions, or without a data folder, there may be too little to learn from: one reranker may be
    the best one throughout. A method that then cannot be trained, be it with one of the seeds, is left out of that
    part, with a warning; the part's `left_out` says why. Of the held-out questions no method is left out: there it is
    an error.

    Raises:
        DataError: A table cannot be used, or has too few questions.
        InputError: The tables have no such figure.
        agent.AgentError: There is too little to learn from.
    """
    out = Path(config.out)
    arrays = read_labels(config.labels).having(config.target.metrics)
    train_config = config.train_config()
    make_targets(arrays, config.target, train_config.recipe).check_trainable()
    settings = {name: value for name, value in asdict(config).items() if name not in NOT_WORK}
    work = fingerprint([settings, fingerprint(_content(arrays)), versions()])
    parts = list(_parts(arrays, config))
    jobs = [(part, name, seed) for part in parts for name in part.methods for seed in range(config.seeds)]
    with Journal(out / "journal.jsonl", work) as journal, progress("compare", quiet=config.quiet) as report:
        for number, (part, name, seed) in enumerate(jobs, start=1):
            key = _key(part, name, seed)
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
    _to_wandb(config, result, out)
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
    main = tuple(name for name in methods if name in BASELINES or name in (AGENT, WITHOUT_CAUTION))
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
    return Fold(arrays, known[sides == TRAIN], known[sides == VAL], part.test_rows, config, seed, folder)


def _unit(part: Part, name: str, fold: Fold) -> dict[str, Any]:
    """Return what a method chooses with one seed, or why it cannot."""
    try:
        chosen = run_method(name, fold)
    except agent.AgentError as error:
        if part.protocol == HELD_OUT:
            raise
        return {"left_out": str(error)}
    return {"choices": chosen.choices.tolist(), "fit_s": chosen.fit_s, "predict_us": chosen.predict_us}


def _key(part: Part, name: str, seed: int) -> str:
    return f"{part.protocol}/{part.name}/{name}/{seed}"


def _protocols(
    arrays: LabelArrays, parts: Sequence[Part], units: Mapping[str, Any], config: EvaluateAgentConfig
) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        of_method = {name: [units[_key(part, name, seed)] for seed in range(config.seeds)] for name in part.methods}
        left_out = {}
        for name in part.methods:
            reasons = [unit["left_out"] for unit in of_method[name] if "left_out" in unit]
            if reasons:
                del of_method[name]
                left_out[name] = f"{len(reasons)} of {config.seeds} seeds: {reasons[0]}"
                logger.warning("%s, %s: %s is left out: %s", part.protocol, part.name, name, left_out[name])
        chosen = {
            name: [np.array(unit["choices"], dtype=np.int64) for unit in of_seeds]
            for name, of_seeds in of_method.items()
        }
        test = arrays.of(part.test_rows)
        rows = method_figures(test, chosen, config.target)
        for row in rows:
            for figure in ("fit_s", "predict_us"):
                row[figure] = float(np.median([unit[figure] for unit in of_method[row["method"]]]))
        of_part: dict[str, Any] = {"questions": len(test), "learned_from": len(part.known_rows), "methods": rows}
        if left_out:
            of_part["left_out"] = left_out
        if part.protocol == HELD_OUT:
            of_part["by_folder"] = by_folder(test, chosen, config.target)
        found.setdefault(part.protocol, {})[part.name] = of_part
    return found


def _content(arrays: LabelArrays) -> list[Any]:
    return [arrays.ids, [asdict(one) for one in arrays.configurations], [one.get("work") for one in arrays.metadata]]


def _lines(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return figures as a table shows them."""
    lines = []
    for row in rows:
        line = {"method": row["method"], "interval": f"{row['gap_closed_low']:+.2f} to {row['gap_closed_high']:+.2f}"}
        formats = {"gap_closed": "+.3f", "cost_tokens": ".1f", "latency_ms": ".1f", "predict_us": ".0f", "fit_s": ".1f"}
        for name in SHOWN:
            if name not in line:
                value = row[name]
                line[name] = "-" if value is None else format(value, formats.get(name, ".4f"))
        lines.append(line)
    return lines


def markdown(result: Mapping[str, Any]) -> str:
    """Return a result as Markdown tables."""
    text = [
        "# The agent and what it has to beat",
        "",
        f"{result['questions']} questions, {result['configurations']} configurations, {result['metric']}, "
        f"{result['seeds']} seeds.",
    ]
    for protocol, parts in result["protocols"].items():
        for name, part in parts.items():
            text += ["", f"## {protocol}, {name}: {part['questions']} questions", ""]
            text += _markdown_table(
                list(SHOWN.values()), [[line[name] for name in SHOWN] for line in _lines(part["methods"])]
            )
            text += [line for one, why in part.get("left_out", {}).items() for line in ("", f"Left out: {one}, {why}")]
            if "by_folder" in part:
                names = [row["method"] for row in part["methods"]]
                text += ["", "Utility by data folder:", ""]
                text += _markdown_table(
                    ["", "questions", *names],
                    [
                        [folder, str(figures["questions"]), *(f"{figures[one]:.3f}" for one in names)]
                        for folder, figures in part["by_folder"].items()
                    ],
                )
    return "\n".join(text) + "\n"


def _markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (headings, ["---"] * len(headings), *rows)]


def plot(result: Mapping[str, Any]) -> str:
    """Return an SVG: the share of the gap that each method closes, and how it grows with the training questions."""
    held_out = result["protocols"].get(HELD_OUT, {}).get("all")
    curve = result["protocols"].get("learning-curve", {})
    unseen = result["protocols"].get("unseen-folder", {})
    panels = [name for name, there in (("bars", held_out), ("curve", curve), ("unseen", unseen)) if there]
    figure = new_figure(6.0 * len(panels), 5.0)
    for name, axis in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        {"bars": _draw_bars, "curve": _draw_curve, "unseen": _draw_unseen}[name](axis, result)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    return str(to_svg(figure))


def _draw_bars(axis: Any, result: Mapping[str, Any]) -> None:
    rows = [row for row in result["protocols"][HELD_OUT]["all"]["methods"] if row["method"] not in (BASE, CEILING)]
    values = [row["gap_closed"] for row in rows]
    bounds = [
        [max(0.0, row["gap_closed"] - row["gap_closed_low"]) for row in rows],
        [max(0.0, row["gap_closed_high"] - row["gap_closed"]) for row in rows],
    ]
    colors = [COLORS[1] if row["method"].startswith(AGENT) else COLORS[0] for row in rows]
    axis.barh([row["method"] for row in rows], values, xerr=bounds, color=colors, ecolor="#555555", capsize=2)
    axis.invert_yaxis()
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_xlabel("share of the oracle's gap closed (held-out questions, 95%)")


def _draw_curve(axis: Any, result: Mapping[str, Any]) -> None:
    parts = {float(name): part["methods"] for name, part in result["protocols"]["learning-curve"].items()}
    names = [name for name in _methods(parts.values()) if name not in (BASE, CEILING, "oracle-reranker")]
    if HELD_OUT in result["protocols"]:
        parts[1.0] = result["protocols"][HELD_OUT]["all"]["methods"]
    for place, name in enumerate(names):
        rows = {share: row for share, of_part in parts.items() for row in of_part if row["method"] == name}
        axis.plot(
            sorted(rows), [rows[share]["utility"] for share in sorted(rows)], marker="o", markersize=4, label=name,
            color=COLORS[place % len(COLORS)], linewidth=2.2 if name == AGENT else 1.2,
        )  # fmt: skip
    axis.set_xlabel("share of the training questions")
    axis.set_ylabel("utility on held-out questions")
    if names:
        axis.legend(frameon=False, fontsize=8)


def _draw_unseen(axis: Any, result: Mapping[str, Any]) -> None:
    parts = result["protocols"]["unseen-folder"]
    folders = {name: {row["method"]: row["utility"] for row in part["methods"]} for name, part in parts.items()}
    names = [name for name in _methods(part["methods"] for part in parts.values()) if name in UNSEEN_SHOWN]
    for place, name in enumerate(names):
        # A method may be left out of a part; every folder keeps its place.
        leads = [rows.get(name, np.nan) - rows[BASE] for rows in folders.values()]
        axis.plot(leads, list(folders), marker="os^v"[place % 4], linestyle="", label=name, color=COLORS[place])
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_xlabel("utility above the best single configuration (unseen data folder)")
    if names:
        axis.legend(frameon=False, fontsize=8)


def _methods(parts: Iterable[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return the names of the methods that are in any of these parts, each once."""
    return list(dict.fromkeys(row["method"] for rows in parts for row in rows))


def show(result: Mapping[str, Any]) -> None:
    """Print the tables of a result."""
    console = stdout()
    console.width = max(console.width, 160)
    for protocol, parts in result["protocols"].items():
        for name, part in parts.items():
            title = f"{protocol}, {name}: {part['questions']} questions"
            console.print(table(_lines(part["methods"]), SHOWN, title=title))


def _to_wandb(config: EvaluateAgentConfig, result: Mapping[str, Any], out: Path) -> None:
    """Log the tables; a comparison never fails for W&B, which documents no closed set of errors."""
    if config.logger != "wandb":
        return
    try:
        import wandb

        quiet = wandb.Settings(silent=True, console="off", mode=os.environ.get("WANDB_MODE", "offline"))
        with wandb.init(project="corag-agent", name=out.name, dir=str(out), settings=quiet) as run:
            for protocol, parts in result["protocols"].items():
                rows = [{"part": name, **row} for name, part in parts.items() for row in part["methods"]]
                run.log({protocol: wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])})
            run.log({"agents": wandb.Html((out / "agents.svg").read_text(encoding="utf-8"))})
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning("W&B could not take the result (%s); it stands in %s", error, out)
