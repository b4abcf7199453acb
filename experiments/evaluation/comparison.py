"""Methods compared on sets of questions, at budgets: `corag evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corag.models.runtime import in_runtime
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.set_run import SetRun, settings_of
from experiments.report.comparison import sets_page
from experiments.report.results import Result
from experiments.run.journal import PAGE, output_file, write_atomically
from experiments.run.track import log_run, tracked


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Compare methods on one data folder at one budget, and return what `--out` writes; see `compare`."""
    [[result]] = compare(config).values()
    return dict(result.record)


@tracked
@in_runtime
def compare(config: EvaluateConfig) -> Mapping[str, list[Result]]:
    """Run the comparison that a config describes, and return for each set of questions one result a budget.

    An interrupted one goes on where it stopped; a set whose results are in `out` is not measured again.
    """
    runs = [SetRun(name, one, several=config.several) for name, one in config.by_set().items()]
    results = {run.name: run.results() for run in runs}
    if config.out is None:
        return results
    out = Path(config.out)
    if config.several:
        page = sets_page(results, title="Methods compared", baselines=config.baselines)
        write_atomically(output_file(str(out / "comparison.html"), PAGE), page.html())
        write_atomically(out / "comparison.md", page.markdown())
    for name, of_set in results.items():
        for result in of_set:
            measures = {row["method"]: row for row in result.record["methods"]}
            log_run(
                "evaluate", config.logger, out, f"{name}-{result.budget}", settings_of(config), measures, group=out.stem
            )
    return results
