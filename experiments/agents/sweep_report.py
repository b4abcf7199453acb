"""What a sweep found: a sentence, a page, and Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from corag.cli.console import say, stdout, table
from experiments.agents.figures import SIGNIFICANT, paired_t_p
from experiments.run.drawing import interval_plot
from experiments.run.page import Cell, Drawing, Table, render, with_interval
from experiments.run.tables import markdown_table

METRIC = "val_regret"
COLUMNS = {"val_regret": "regret", "val_loss": "loss", "best_epoch": "best epoch", "seconds": "s a run"}
"""Figures of the tables and their headings; `summary.json` has all."""
MOST_DRAWN = 24
"""Combinations in the figure, the best ones."""

Row = Mapping[str, Any]


class Rival(NamedTuple):
    """A combination beside the best one.

    Attributes:
        row: Its row.
        behind: How much higher its regret is, in the mean over the seeds that both have; None without any.
        p: Of a paired t-test over these seeds, two-sided; None where there is none.
        worse: Whether it is worse beyond chance, with Holm's correction for the number of combinations.
    """

    row: Row
    behind: float | None
    p: float | None
    worse: bool


def rivals(rows: Sequence[Row]) -> list[Rival]:
    """Return the combinations below the best, in their order."""
    pairs = [(row, _behind(rows[0], row)) for row in rows[1:]]
    tests = [paired_t_p(differences) for _, differences in pairs]
    by_p = sorted((p, place) for place, p in enumerate(tests) if p is not None)
    worse: set[int] = set()
    for rank, (p, place) in enumerate(by_p):
        if p >= SIGNIFICANT / (len(rows) - 1 - rank):
            break
        worse.add(place)
    return [
        Rival(row, float(differences.mean()) if len(differences) else None, p, place in worse)
        for place, ((row, differences), p) in enumerate(zip(pairs, tests, strict=True))
    ]


def _behind(best: Row, row: Row) -> Any:
    return np.array(
        [row["by_seed"][seed] - best["by_seed"][seed] for seed in row["by_seed"] if seed in best["by_seed"]]
    )


def verdict(summary: Mapping[str, Any]) -> str:
    """Return in a sentence which combination is best, and how many others may be as good."""
    rows = summary["rows"]
    if not rows[0]["figures"]:
        return "No run could be trained."
    number = len(rows[0]["by_seed"])
    regret = rows[0]["figures"][METRIC]
    first = f"{said(rows[0]['settings'])} has the lowest validation regret, {regret['mean']:.4f}"
    if number < 2:
        return f"{first}, with one seed, which tells nothing about chance."
    first += f" ± {regret['sd']:.4f} over {number} seeds"
    if len(rows) == 1:
        return f"{first}; there is no other combination."
    worse = sum(one.worse for one in rivals(rows))
    rest = len(rows) - 1 - worse
    return (
        f"{first}: of the {len(rows) - 1} other{'s' * (len(rows) > 2)}, {worse} {'is' if worse == 1 else 'are'} worse "
        f"beyond chance (paired t-test over seeds, Holm), {rest} may be as good."
    )


def page(summary: Mapping[str, Any], title: str) -> str:
    """Return a page in HTML: the verdict, a figure, a line for each combination; all else folded."""
    rows, names = summary["rows"], [*summary["vary"], "runs", *COLUMNS]
    drawn = [row for row in rows if row["figures"]][:MOST_DRAWN]
    caption = "Means over seeds with 95% intervals (t), and each seed's; left is better."
    if len(drawn) < len(rows):
        caption += f" The best {len(drawn)} of {len(rows)} combinations."
    lead = Drawing("Validation regret of each combination", _plot(drawn), caption) if drawn else None
    every = [[cell[name] for name in names] for cell in cells(rows)]
    remarks = [f"{failed_runs(row)}; the first: {row['errors'][0]}" for row in rows if row["errors"]]
    if any(name.startswith("target.") for name in summary["vary"]):
        remarks.append("A setting of the target changes what regret is measured in; compare within one value of it.")
    return render(
        title=f"Sweep {title}",
        verdict=verdict(summary),
        summary=f"{len(rows)} combinations of {', '.join(summary['vary']) or 'nothing'}, seeds "
        f"{', '.join(map(str, summary['seeds']))}. Regret is the utility that is lost to the best measured "
        "configuration of each validation question.",
        lead=lead,
        headline=Table(
            "Each combination, best first",
            ["settings", "regret", "behind", "p"],
            _headline(rows),
            "Behind: how much more regret than the best, over the same seeds. p: paired t-test, before the correction "
            "for the number of combinations.",
        ),
        remarks=remarks,
        folded=[
            Table("All figures of each combination", [*summary["vary"], "runs", *COLUMNS.values()], every),
            Table("Each value, over all the others", ["setting", "value", "runs", "regret"], list(_of_values(rows))),
        ],
    )  # fmt: skip


def _headline(rows: Sequence[Row]) -> list[tuple[Cell, str, str, str]]:
    found = [Rival(rows[0], None, None, worse=False), *rivals(rows)]
    return [
        (
            Cell(said(one.row["settings"], short=True), "text"),
            _with_spread(one.row),
            "-" if one.behind is None else f"{one.behind:+.4f}",
            "-" if one.p is None else f"{one.p:.3f}",
        )
        for one in found
    ]


def _with_spread(row: Row) -> str:
    if not row["figures"]:
        return "-"
    mean, interval = f"{row['figures'][METRIC]['mean']:.4f}", _interval(row)
    return mean if interval is None else with_interval(mean, *(f"{bound:.4f}" for bound in interval))


def _interval(row: Row) -> tuple[float, float] | None:
    """Return the 95% interval of a mean over seeds; None for a single one."""
    if (number := len(row["by_seed"])) < 2:
        return None
    from scipy import stats

    spread = row["figures"][METRIC]
    half = float(stats.t.ppf(0.975, number - 1) * spread["sd"] / number**0.5)
    return spread["mean"] - half, spread["mean"] + half


def _of_values(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield setting, value, number of runs and mean regret: what a setting does whatever the others are."""
    for name in rows[0]["settings"]:
        of_value: dict[str, list[float]] = {}
        for row in rows:
            of_value.setdefault(str(row["settings"][name]), []).extend(row["by_seed"].values())
        for value, regrets in of_value.items():
            yield [name, value, str(len(regrets)), f"{np.mean(regrets):.4f}" if regrets else "-"]


def _plot(rows: Sequence[Row]) -> str:
    return interval_plot(
        [said(row["settings"], short=True) for row in rows],
        [row["figures"][METRIC]["mean"] for row in rows],
        [_interval(row) for row in rows],
        "validation regret",
        points=[list(row["by_seed"].values()) for row in rows],
    )


def markdown(summary: Mapping[str, Any]) -> str:
    """Return the summary as a Markdown table."""
    names = [*summary["vary"], "runs", *COLUMNS]
    headings = [*(f"`{name}`" for name in summary["vary"]), "runs", *COLUMNS.values()]
    return markdown_table(headings, [[row[name] for name in names] for row in cells(summary["rows"])]) + "\n"


def show(summary: Mapping[str, Any], title: str) -> None:
    """Print a line for each combination, the verdict, and what could not be trained."""
    columns = {"settings": "settings", "runs": "runs", METRIC: "regret", "behind": "behind", "p": "p"}
    lines = [
        {"settings": str(line[0].text), "behind": line[2], "p": line[3], **cell}
        for line, cell in zip(_headline(summary["rows"]), cells(summary["rows"]), strict=True)
    ]
    stdout().print(table(lines, columns, title=title))
    say(verdict(summary))
    for row in summary["rows"]:
        if row["errors"]:
            say(f"{failed_runs(row)}; the first: {row['errors'][0]}")


def failed_runs(row: Row) -> str:
    """Return how many runs of a combination could not be trained."""
    return f"{len(row['errors'])} of {row['runs']} runs with {said(row['settings'])} could not be trained"


def cells(rows: Sequence[Row]) -> Iterator[dict[str, str]]:
    """Yield the texts of each combination's settings and figures, by name."""
    for row in rows:
        failed = len(row["errors"])
        yield {
            **{name: str(value) for name, value in row["settings"].items()},
            "runs": f"{row['runs']}, {failed} failed" if failed else str(row["runs"]),
            **{name: _figure(name, row["figures"].get(name)) for name in COLUMNS},
        }


def _figure(name: str, spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "-"
    if name == "seconds":
        return f"{spread['mean']:.1f}"
    digits = 4 if name.startswith("val_") else 1
    return f"{spread['mean']:.{digits}f} ± {spread['sd']:.{digits}f}"


def said(settings: Mapping[str, Any], *, short: bool = False) -> str:
    """Return settings as a text; in `short` each by the last part of its name."""
    names = {name: name.rpartition(".")[2] if short else name for name in settings}
    return ", ".join(f"{names[name]}={value}" for name, value in settings.items()) or "these settings"
