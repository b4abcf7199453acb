"""Labels by a language model: what an agent learns from them beside one taught by evidence, and how much is noise.

    corag label --config experiments/configs/labels-llm.yaml          # also with `prompt`, the same question reworded
    python -m experiments.agents.reader_labels LABELS RUNS [REWORDED]

Each kind of the labels is left out in turn; of its questions nothing is learned, and the answers to whatever is chosen
are in the table.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace

import numpy as np

import agent
from corag.cli.console import say
from corag.cli.page import Page, Section
from experiments.agents.compare import AGENT, BASE, CEILING, Choices, choices_of, method_table, named
from experiments.agents.targets import TargetConfig, best_configuration, make_targets, utility
from experiments.agents.train import TRAIN, VAL, TrainAgentConfig, divided, fitted_without, known_labels
from experiments.labels.table import Labels
from experiments.report.difference import paired_difference

PAPER = TargetConfig(metric="rougeL", price=0)
TARGETS = {AGENT: PAPER, "agent of evidence": TargetConfig(price=0)}
"""What agents learn from; both are compared by the first."""


def left_out_choices(labels: Labels, config: TrainAgentConfig) -> dict[str, Choices]:
    """Return the configuration that each method names for each question, `[n]`, without its kind in the training."""
    chosen: dict[str, Choices] = {}
    for kind in dict.fromkeys(labels.kind.tolist()):
        test, rest = labels.of(labels.kind == kind), labels.of(labels.kind != kind)
        parts = divided(rest, replace(config, shares=(0.9, 0.1, 0.0)))
        agents = {
            name: fitted_without(replace(config, target=target, out=f"{config.out}/{number}"), rest, kind)
            for number, (name, target) in enumerate(TARGETS.items())
        }
        of_kind = choices_of(agents[AGENT], rest.of(parts == TRAIN), rest.of(parts == VAL), test, PAPER)
        of_kind |= {name: named(trained, test) for name, trained in agents.items()}
        for name, rows in of_kind.items():
            chosen.setdefault(name, np.zeros(len(labels), dtype=np.int64))[labels.kind == kind] = rows
    return chosen


def compared(labels: Labels, config: TrainAgentConfig) -> Page:
    """Return what each method's choices are worth to the reader, and how often agents name which configuration."""
    chosen, values, rows = left_out_choices(labels, config), utility(labels, PAPER), np.arange(len(labels))
    table = method_table(chosen, labels, PAPER, base=BASE, ceiling=CEILING, marked=AGENT)
    names = [str(name) for name in labels.configurations]
    lines = ["Mean of each configuration: " + ", ".join(map("{} {:.3f}".format, names, values.mean(axis=0)))]
    for name, of_method in chosen.items():
        counts = Counter(names[row] for row in of_method).most_common()
        lines.append(f"{name} names " + ", ".join(f"{one} {number} times" for one, number in counts))
    ours, groups = values[rows, chosen[AGENT]], labels.group.tolist()
    for name in (*list(TARGETS)[1:], BASE):
        same = (chosen[name] == chosen[AGENT]).mean()
        gain = paired_difference(ours, values[rows, chosen[name]], groups=groups)
        lines.append(f"{AGENT} less {name}: {gain}; the same configuration for {same:.0%}")
    lead = f"{len(labels)} questions of {len(set(labels.kind))} kinds, each left out of the training in turn."
    return Page("Labels by a language model", lead, [Section("What each method's choices are worth", [table, *lines])])


def noise(first: Labels, second: Labels) -> list[str]:
    """Return how much of a label is noise, from the same questions labelled twice."""
    shared = [name for name in first.ids if name in second.ids]
    pair = [labels.of([labels.ids.index(name) for name in shared]) for labels in (first, second)]
    # The tables may name the configurations in another order.
    order = [second.configurations.index(name) for name in first.configurations]
    values = [utility(pair[0], PAPER), utility(pair[1], PAPER)[:, order]]
    best = [best_configuration(pair[0], values[0]), values[1].argmax(axis=1)]
    at_best = [of >= of.max(axis=1, keepdims=True) for of in values]
    within = [of - of.mean(axis=1, keepdims=True) for of in values]
    error = np.var(within[0] - within[1]) / 2
    passed = [make_targets(labels, PAPER, ["query"]).weight > 0 for labels in pair]
    both = passed[0] & passed[1]
    rows = np.arange(len(shared))
    single = int(values[0].mean(axis=0).argmax())
    gain_of_first = values[0][rows, best[0]] - values[0][:, single]
    gain_of_second = values[1][rows, best[0]] - values[1][:, single]
    return [
        f"{len(shared)} questions, labelled twice",
        f"ROUGE-L {values[0].mean():.3f} and {values[1].mean():.3f}, correlation {_correlation(*values):.2f}; "
        f"of the differences within a question {_correlation(*within):.2f}",
        f"noise in the variance within a question: {error / np.mean([np.var(of) for of in within]):.0%}",
        f"another configuration is best: {(~(at_best[0] & at_best[1]).any(axis=1)).mean():.0%}",
        f"pass the {PAPER.margin:.0%} rule: {passed[0].mean():.0%} and {passed[1].mean():.0%}, {both.mean():.0%} "
        f"both times, of these with the same best one {np.mean((best[0] == best[1])[both]):.0%}",
        f"the oracle's gain over one configuration: {gain_of_first.mean():.3f} by the labels that it chose from, "
        f"{paired_difference(gain_of_second, groups=pair[0].group.tolist())} by the others",
    ]


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


if __name__ == "__main__":
    paths, runs, *reworded = sys.argv[1:]
    training = agent.TrainConfig(keep="last")
    settings = TrainAgentConfig(
        paths, runs, features="query", target=PAPER, training=training, quiet=True, logger="none"
    )
    known = known_labels(settings)
    page = compared(known, settings)
    if reworded:
        twice = noise(known, known_labels(replace(settings, labels=reworded[0])))
        page = replace(page, sections=[*page.sections, Section("The same questions, labelled twice", twice)])
    say(page.markdown())
