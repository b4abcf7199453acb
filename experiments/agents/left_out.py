"""What an agent is worth on a kind of texts that it does not know: each kind is left out of its training in turn.

Letters: `n` questions, `C` configurations, `K` kinds, `L` leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import agent
from corag.types import FloatArray
from experiments.agents.compare import Choices, named
from experiments.agents.targets import TargetConfig, best_fallback, utility
from experiments.evaluation.metrics import kept
from experiments.labels.table import Labels
from experiments.report.difference import paired_difference
from experiments.report.page import Section, Table

LEADS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Values of `min_lead` to choose from; with the last the agent never departs from its fallback."""
NOVELTIES = (0.0, *np.arange(0.4, 1.0, 0.02).round(2).tolist(), 1.2, 1.5, 3.0)
"""Values of `novelty` to choose from; with the first the agent departs only from a fallback that is clearly worse."""
RISK = 0.1
"""The largest share of texts left out on which an agent may lose more than it promises."""
TOLERATED_LOSS = 0.003
"""The most utility that an agent may lose to the best single configuration on a kind left out."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """One kind that an agent was trained without.

    Attributes:
        kind: Its name.
        rows: Its questions, as indices into the labels, `[n]`.
        single: The fallback of each question, the best single configuration of the other kinds, `[n]`.
        leads: Values of `min_lead`, or of `novelty`, `L`.
        by_lead: Measured configuration that the agent names under each of them, `[L, n]`.
    """

    kind: str
    rows: NDArray[np.int64]
    single: NDArray[np.int64]
    leads: tuple[float, ...]
    by_lead: Choices

    def gains(self, values: FloatArray) -> FloatArray:
        """Return the mean gain over the best single configuration under each lead, `[L]`; `values` is `[n, C]`."""
        own = values[self.rows]
        chosen = np.take_along_axis(own.T, self.by_lead, axis=0)
        return np.asarray((chosen - own[np.arange(len(own)), self.single]).mean(axis=1))


def leave_kinds_out(
    labels: Labels,
    tests: Labels,
    target: TargetConfig,
    fit: Callable[[Labels, Labels, str], agent.ConfigurationAgent],
    leads: tuple[float, ...] = LEADS,
    setting: Literal["min_lead", "novelty"] = "min_lead",
) -> list[LeftOut]:
    """Train an agent without each kind, by `fit` with the labels and tests of the others and the kind's name.

    `leads` are values of `setting`, which holds an agent back from departing from its fallback.
    `tests` are the same questions; those of a kind are measured with values that do not know the kind either.
    """
    values, kinds = utility(tests, target), []
    for kind in dict.fromkeys(labels.kind.tolist()):
        rows, others = np.flatnonzero(labels.kind == kind), np.flatnonzero(labels.kind != kind)
        trained, own = fit(labels.of(others), tests.of(others), kind), tests.of(rows)
        configs: list[agent.AgentConfig] = [replace(trained.config, **{setting: lead}) for lead in leads]  # type: ignore[arg-type]
        agents = [agent.ConfigurationAgent(config, trained.weights) for config in configs]
        by_lead = np.stack([named(trained, own) for trained in agents])
        filling = trained.config.filling
        single = np.full(len(rows), best_fallback(tests.of(others), values[others], filling))
        if filling is not None:
            single[own.room >= agent.ROOM] = labels.configurations.index(filling)
        kinds.append(LeftOut(kind, rows, single, leads, by_lead))
    return kinds


def chosen_lead(gains: Sequence[FloatArray]) -> int:
    """Return the index of the lead with the highest mean gain of those that lose little on every kind.

    If each loses more than `TOLERATED_LOSS` on some kind, it is the last. `gains` are `[K, L]`; ties go to the larger
    lead.
    """
    table = np.stack(gains)[:, ::-1]
    mean = np.where((table >= -TOLERATED_LOSS).all(axis=0), table.mean(axis=0), -np.inf)
    return len(mean) - 1 - int(mean.argmax())


def shortfalls(labels: Labels, kinds: Sequence[LeftOut]) -> FloatArray:
    """Return the share of what the fallback holds that is lost on each text left out, `[F, L]`; below 0: won.

    A text is a data folder under one budget. `labels` are measured with values that do not know the kind.
    """
    held, lost = kept(labels.measures), []
    for left in kinds:
        own, at = held[left.rows], np.arange(len(left.rows))
        chosen, texts = np.take_along_axis(own.T, left.by_lead, axis=0), labels.text[left.rows]
        for text in dict.fromkeys(texts.tolist()):
            rows = texts == text
            of_fallback = float(own[at, left.single][rows].mean())
            lost.append((of_fallback - chosen[:, rows].mean(axis=1)) / max(of_fallback, 1e-9))
    return np.array(lost)


def chosen_novelty(lost: FloatArray, promise: float) -> int:
    """Return the index of the largest novelty that keeps a promise on the texts left out; the first if none does.

    It keeps it if the share of texts on which more than promised is lost is at most `RISK`, under it and all smaller
    ones. `lost` is `[F, L]`, novelties ascending.
    """
    risk = np.maximum.accumulate((lost > 1 - promise).mean(axis=0))
    return max(int((risk <= RISK).sum()) - 1, 0)


def left_out_section(labels: Labels, target: TargetConfig, kinds: Sequence[LeftOut]) -> Section:
    """Return a line for each kind left out, and one for their mean.

    `labels` are measured with values that do not know the kind. The lead of each kind is chosen on the others, so that
    nothing of the kind itself is known.
    """
    values, tokens = utility(labels, target), labels.measures["cost_tokens"]
    gains = [left.gains(values) for left in kinds]
    lines, means = [], []
    for number, left in enumerate(kinds):
        lead = chosen_lead(gains[:number] + gains[number + 1 :])
        own, at, spent = values[left.rows], np.arange(len(left.rows)), tokens[left.rows]
        chosen, groups = left.by_lead[lead], labels.group[left.rows].tolist()
        single = left.single
        difference = paired_difference(own[at, chosen], own[at, single], groups=groups)
        utilities = [own[at, single].mean(), own[at, chosen].mean(), own.max(axis=1).mean()]
        means.append([*utilities, spent[at, single].mean(), spent[at, chosen].mean(), difference.mean])
        lines.append([left.kind, f"{len(at)}", *_cells(means[-1]), str(difference), f"{left.leads[lead]:g}"])
    mean = np.mean(means, axis=0).tolist()
    lines.append(["**mean**", f"{len(labels)}", *_cells(mean), f"{mean[-1]:+.4f}", ""])
    headings = [
        "kind left out", "questions", "utility, single", "utility, agent", "utility, oracle", "tokens, single",
        "tokens, agent", "gain", "min_lead",
    ]  # fmt: skip
    note = (
        "Single: the best single configuration of the other kinds. Agent: trained on the other kinds; its min_lead is "
        "given, or the one with the highest mean gain on them that loses at most "
        f"{TOLERATED_LOSS:g} on each. Gain: of the agent over the single one, 95% intervals over resampled documents. "
        "Oracle: the best configuration of each question, with hindsight."
    )
    return Section("Each kind left out of the training", [Table(headings, lines, note=note)])


def promise_section(labels: Labels, kinds: Sequence[LeftOut], novelty: float) -> Section:
    """Return a line for each kind left out: what an agent that forecasts keeps of what its fallback holds.

    `labels` are measured with values that do not know the kind; `novelty` is one of those of the kinds.
    """
    held, tokens, means, lines = kept(labels.measures), labels.measures["cost_tokens"], [], []
    for left in kinds:
        chosen = left.by_lead[left.leads.index(novelty)]
        own, spent, at = held[left.rows], tokens[left.rows], np.arange(len(left.rows))
        groups = labels.group[left.rows].tolist()
        difference = paired_difference(own[at, chosen], own[at, left.single], groups=groups)
        table = [[of[at, left.single].mean(), of[at, chosen].mean()] for of in (own, spent)]
        means.append(np.ravel(table))
        lines.append([left.kind, f"{len(at)}", *_kept_cells(means[-1]), str(difference)])
    mean = np.mean(means, axis=0)
    lines.append(["**mean**", f"{len(labels)}", *_kept_cells(mean), f"{mean[1] - mean[0]:+.4f}"])
    headings = [
        "kind left out",
        "questions",
        "kept, fallback",
        "kept, agent",
        "tokens, fallback",
        "tokens, agent",
        "gain",
    ]
    lost = shortfalls(labels, kinds)[:, kinds[0].leads.index(novelty)]
    kept_shares = f"lost are {np.maximum(lost, 0).mean():.1%} of what the fallback holds, at most {lost.max():.1%}"
    by_kind = [shortfalls(labels, [left]) for left in kinds]
    nested = np.concatenate(
        [
            own[:, chosen_novelty(np.concatenate(by_kind[:number] + by_kind[number + 1 :]), agent.KEEP)]
            for number, own in enumerate(by_kind)
        ]
    )
    note = (
        f"Kept: of the evidence and of the answer's words. Novelty {novelty:g}, the largest with which no more than is "
        f"promised is lost on {1 - RISK:.0%} of the {len(lost)} texts left out, data folders under one budget: "
        f"{kept_shares}, on {(lost <= 1 - agent.KEEP).mean():.0%} of them no more than promised. With the novelty of "
        f"each kind chosen on the others: {np.maximum(nested, 0).mean():.1%}, at most {nested.max():.1%}, on "
        f"{(nested <= 1 - agent.KEEP).mean():.0%} no more than promised. Gain: of the agent, 95% intervals over "
        "resampled documents."
    )
    return Section("Each kind left out of the training", [Table(headings, lines, note=note)])


def _kept_cells(figures: FloatArray) -> list[str]:
    return [*(f"{share:.4f}" for share in figures[:2]), *(f"{tokens:.0f}" for tokens in figures[2:])]


def _cells(figures: Sequence[float]) -> list[str]:
    return [*(f"{utility:.4f}" for utility in figures[:3]), *(f"{tokens:.0f}" for tokens in figures[3:5])]
