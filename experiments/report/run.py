"""`corag report`: one page, or one picture, of results that `corag evaluate` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.storage import write_atomically
from corag.cli.console import say, stderr
from corag.errors import InputError
from experiments.data.config import comma_separated
from experiments.report.comparison import held_by, results_page
from experiments.report.equal import plot
from experiments.report.results import Result

ENDINGS = (".html", ".md", ".svg")


@dataclass(frozen=True)
class ReportConfig:
    """Show results of `corag evaluate` together: several budgets, or several data folders, of one set of methods.

    Attributes:
        results: Result files, separated by commas; `--results` may be left out.
        out: File to write: a page (`.html`, `.md`), or quality against tokens alone (`.svg`), of several data folders
            their means.
        title: Heading of the page.
    """

    results: str
    out: str = "report.html"
    title: str = "Methods compared"

    def __post_init__(self) -> None:
        if Path(self.out).suffix not in ENDINGS:
            raise InputError(f"out is {self.out!r}; give it one of the endings {', '.join(ENDINGS)}")


def report(config: ReportConfig) -> None:
    """Write the page or the picture."""
    write_atomically(Path(config.out), _content(config))
    say(f"written to {config.out}", stderr())


def _content(config: ReportConfig) -> str:
    sets: dict[str, list[Result]] = {}
    for file in comma_separated(config.results):
        result = Result.read(Path(file))
        sets.setdefault(f"{Path(str(result.record['data'])).name}, {result.record['split']}", []).append(result)
    if not sets:
        raise InputError(f"--results is {config.results!r}; name files that corag evaluate --out wrote")
    ending = Path(config.out).suffix
    if ending == ".svg":
        if not (found := held_by(sets)):
            raise InputError(f"--results {config.results} share no method and budget with gold or answers; give others")
        return plot(found)
    page = results_page(sets, title=config.title)
    return page.html() if ending == ".html" else page.markdown()
