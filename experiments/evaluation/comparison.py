"""Methods compared on sets of questions, at budgets, with rerankers: `corag evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from corag.models.runtime import in_runtime
from corag.text.visible import to_json
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.leads import gains
from experiments.evaluation.set_run import SetRun, settings_of
from experiments.run.drawing import overview_plot, quality_plot
from experiments.run.journal import (
    FIGURE,
    output_file,
    versions,
    write_atomically,
)
from experiments.run.tables import Result, around_table, markdown, replace_table
from experiments.run.track import log_run, tracked


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        results: For each set of questions, by name, one result a budget, as DESIGN.md describes it.
        leads: What challengers gain over the baseline, at each budget of each set.
        diversity: How much rerankers differ in the F1 of their answers, on each set and on all.
    """

    results: Mapping[str, Sequence[Result]]
    leads: Sequence[Mapping[str, Any]] = ()
    diversity: Sequence[Mapping[str, Any]] = ()

    @property
    def markdown(self) -> str:
        """Tables of it all."""
        return markdown(self.results, self.leads, self.diversity)


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Compare methods on one data folder at one budget, and return what `--out` writes; see `compare`."""
    [[result]] = compare(config).results.values()
    return dict(result)


@tracked
@in_runtime
def compare(config: EvaluateConfig) -> Comparison:
    """Run the comparison that a config describes.

    An interrupted one goes on where it stopped; a set whose results stand in `out` is not measured again.
    """
    plots = [
        (output_file(path, FIGURE), plot)
        for path, plot in ((config.figure, quality_plot), (config.overview, overview_plot))
        if path is not None
    ]
    if config.write is not None:
        around_table(Path(config.write))
    runs = [SetRun(name, one, several=config.several) for name, one in config.by_set().items()]
    results = {run.name: run.results() for run in runs}
    found = Comparison(results, *gains(config, runs)) if config.several else Comparison(results)
    if config.several and config.out is not None:
        content = {**asdict(found), "config": settings_of(config), "versions": versions()}
        write_atomically(Path(config.out) / "comparison.json", to_json(content, indent=2) + "\n")
        write_atomically(Path(config.out) / "comparison.md", found.markdown)
    for path, plot in plots:
        write_atomically(path, plot(results))
    if config.write is not None:
        replace_table(Path(config.write), found.markdown)
    if config.out is not None:
        out = Path(config.out)
        for name, of_set in results.items():
            for result in of_set:
                run, figures = f"{name}-{result['budget_tokens']}", {row["method"]: row for row in result["methods"]}
                log_run("evaluate", config.logger, out, run, settings_of(config), figures, group=out.stem)
    return found
