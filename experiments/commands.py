"""Commands whose jobs others run, too: each runs its job and prints where the result is.

The command line names them; each imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Any

from corag.cli.console import say, stderr


def label(config: Any) -> None:
    """Measure every configuration on every question."""
    from experiments.labels.label import label

    path = label(config)
    say(f"labels in {path}; train an agent with: corag train --labels {path} --out runs/agent")


def train(config: Any) -> None:
    """Train an agent."""
    from experiments.agents.train import train

    report = train(config)
    best = report.history[report.best_epoch]
    names = dict.fromkeys((report.monitor, f"{report.monitor.partition('_')[0]}_accuracy"))
    figures = ", ".join(f"{name} {best[name]:.4f}" for name in names)
    say(f"epoch {report.best_epoch + 1} of {len(report.history)} is kept: {figures}; the card has all figures")
    say(f"checkpoint in {report.checkpoint}; use it with: corag ask 'your question' --agent {config.out}")


def evaluate(config: Any) -> None:
    """Compare selectors."""
    from experiments.evaluation.comparison import compare
    from experiments.report.comparison import sets_page, terminal_page

    config.check_used()
    results = compare(config)
    if config.several and not config.quiet:
        sets_page(results, title="Methods compared").show()
    elif not config.quiet:
        [[result]] = results.values()
        title = f"{config.data}, {result.record['split']}: {result.questions} questions, {config.budget} tokens"
        terminal_page(result, title).show()
    if config.out is not None:
        say(f"written to {config.out}", stderr())


def references(config: Any) -> None:
    """Write reference answers."""
    from experiments.data.references import write_references

    folder, number = write_references(config)
    say(f"{number} reference answers; data folder in {folder}")
