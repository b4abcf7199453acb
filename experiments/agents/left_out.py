"""What an agent keeps on a kind of texts that it does not know: each kind is left out of its training in turn.

Letters: `n` questions, `F` texts, `L` novelties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

import agent
from corag.cli.page import Section, Table
from corag.types import FloatArray
from experiments.agents.compare import Choices, named
from experiments.agents.targets import TargetConfig, best_fallback, utility
from experiments.evaluation.metrics import kept
from experiments.labels.table import Labels
from experiments.report.difference import paired_difference

NOVELTIES = (0.0, *np.arange(0.4, 1.0, 0.02).round(2).tolist(), 1.2, 1.5, 3.0)
"""Values of `novelty` to choose from; with the first the agent departs only from a fallback that is clearly worse."""
RISK = 0.1
"""The largest share of texts of unknown kinds on which an agent may lose more than it promises, in expectation."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """One kind that an agent was trained without.

    Attributes:
        kind: Its name.
        rows: Its questions, as indices into the labels, `[n]`.
        fallback: That of each question, by what is best for the other kinds, `[n]`.
        novelties: Values of `novelty`, ascending, `L`.
        chosen: Measured configuration that the agent names under each of them, `[L, n]`.
    """

    kind: str
    rows: NDArray[np.int64]
    fallback: NDArray[np.int64]
    novelties: tuple[float, ...]
    chosen: Choices


def leave_kinds_out(
    labels: Labels,
    tests: Labels,
    target: TargetConfig,
    fit: Callable[[Labels, Labels, str], agent.ConfigurationAgent],
    novelties: tuple[float, ...],
) -> list[LeftOut]:
    """Train an agent without each kind, by `fit` with the labels and tests of the others and the kind's name.

    `tests` are the same questions; those of a kind are measured with values that do not know the kind either.
    """
    values, kinds = utility(tests, target), []
    for kind in dict.fromkeys(labels.kind.tolist()):
        rows, others = np.flatnonzero(labels.kind == kind), np.flatnonzero(labels.kind != kind)
        trained, own = fit(labels.of(others), tests.of(others), kind), tests.of(rows)
        configs = [replace(trained.config, novelty=novelty) for novelty in novelties]
        chosen = np.stack([named(agent.ConfigurationAgent(config, trained.weights), own) for config in configs])
        filling = trained.config.filling
        fallback = np.full(len(rows), best_fallback(tests.of(others), values[others], filling))
        if filling is not None:
            fallback[own.room >= agent.ROOM] = labels.configurations.index(filling)
        kinds.append(LeftOut(kind, rows, fallback, novelties, chosen))
    return kinds


def shortfalls(labels: Labels, kinds: Sequence[LeftOut]) -> FloatArray:
    """Return the share of what the fallback holds that is lost on each text left out, `[F, L]`; below 0: won.

    A text is a data folder under one budget. `labels` are measured with values that do not know the kind.
    """
    held, lost = kept(labels.measures), []
    for left in kinds:
        own, at = held[left.rows], np.arange(len(left.rows))
        chosen, texts = np.take_along_axis(own.T, left.chosen, axis=0), labels.text[left.rows]
        for text in dict.fromkeys(texts.tolist()):
            rows = texts == text
            of_fallback = float(own[at, left.fallback][rows].mean())
            lost.append((of_fallback - chosen[:, rows].mean(axis=1)) / max(of_fallback, 1e-9))
    return np.array(lost)


def chosen_novelty(lost: FloatArray, promise: float) -> int:
    """Return the index of the largest novelty that keeps a promise on the texts left out; the first if none does.

    By conformal risk control (Angelopoulos et al., arXiv 2208.02814): with the promise broken on k of F texts, (k + 1)
    / (F + 1) is at most `RISK`, under it and all smaller ones. `lost` is `[F, L]`, novelties ascending.
    """
    broken = np.maximum.accumulate((lost > 1 - promise).sum(axis=0))
    return max(int(((broken + 1) / (len(lost) + 1) <= RISK).sum()) - 1, 0)


def promise_section(labels: Labels, kinds: Sequence[LeftOut], novelty: float) -> Section:
    """Return a line for each kind left out: what an agent that forecasts keeps of what its fallback holds.

    `labels` are measured with values that do not know the kind; `novelty` is one of those of the kinds.
    """
    held, tokens, means, lines = kept(labels.measures), labels.measures["cost_tokens"], [], []
    for left in kinds:
        chosen = left.chosen[left.novelties.index(novelty)]
        own, spent, at = held[left.rows], tokens[left.rows], np.arange(len(left.rows))
        groups = labels.group[left.rows].tolist()
        difference = paired_difference(own[at, chosen], own[at, left.fallback], groups=groups)
        table = [[of[at, left.fallback].mean(), of[at, chosen].mean()] for of in (own, spent)]
        means.append(np.ravel(table))
        lines.append([left.kind, f"{len(at)}", *_kept_cells(means[-1]), str(difference)])
    mean = np.mean(means, axis=0)
    lines.append(["**mean**", f"{len(labels)}", *_kept_cells(mean), f"{mean[1] - mean[0]:+.4f}"])
    headings = ["kind left out", "questions"]
    headings += [*(f"{what}, {whose}" for what in ("kept", "tokens") for whose in ("fallback", "agent")), "gain"]
    lost = shortfalls(labels, kinds)[:, kinds[0].novelties.index(novelty)]
    kept_shares = f"lost are {np.maximum(lost, 0).mean():.1%} of what the fallback holds, at most {lost.max():.1%}"
    by_kind = [shortfalls(labels, [left]) for left in kinds]
    nested = np.concatenate(
        [
            own[:, chosen_novelty(np.concatenate(by_kind[:number] + by_kind[number + 1 :]), agent.KEEP)]
            for number, own in enumerate(by_kind)
        ]
    )
    note = (
        f"Kept: of the evidence and of the answer's words. Novelty {novelty:g}, the largest with which, by conformal "
        f"risk control over the {len(lost)} texts left out (data folders under one budget), more than promised is lost "
        f"on at most {RISK:.0%} of new ones: "
        f"{kept_shares}, on {(lost <= 1 - agent.KEEP).mean():.0%} of them no more than promised. With the novelty of "
        f"each kind chosen on the others: {np.maximum(nested, 0).mean():.1%}, at most {nested.max():.1%}, on "
        f"{(nested <= 1 - agent.KEEP).mean():.0%} no more than promised. Gain: of the agent, 95% intervals over "
        "resampled documents."
    )
    return Section("Each kind left out of the training", [Table(headings, lines, note=note)])


def _kept_cells(figures: FloatArray) -> list[str]:
    return [*(f"{share:.4f}" for share in figures[:2]), *(f"{tokens:.0f}" for tokens in figures[2:])]
