"""`RECORDS.md` and its figure: what each default gave when it shipped, a line each, from `experiments/records.jsonl`.

    python -m experiments.report.records --results runs/held-out --changed "what is new"

adds the line of today's default and draws both anew; without `--results` it draws them from the lines that there are.
The results are those of `corag evaluate` with the methods `corag`, `sentence-threshold` and `naive` at the budgets of
`BUDGETS`, on held-out questions of several data sets, each of which counts alike.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from corag.errors import InputError
from corag.text.visible import to_json
from corag.writing import write_atomically
from experiments.report.drawing import COLORS, MARKERS, finish, new_figure, plain, to_svg
from experiments.report.results import Result
from experiments.run.journal import commit

ROOT = Path(__file__).parents[2]
LINES, PAGE = ROOT / "experiments" / "records.jsonl", ROOT / "RECORDS.md"
FIGURE = ROOT / "experiments" / "figures" / "records.svg"
BUDGETS, METHODS = (256, 1024), ("corag", "sentence-threshold", "naive")
MEASURES = {
    "answer_recall": ".3f", "evidence_recall": ".3f", "cost_tokens": ".0f", "latency_ms_median": ".0f",
}  # fmt: skip
HEAD = """# Records

What each default gave when it shipped. Protocol: held-out questions by document, each data set counted alike; budgets
of 256 and 1,024 tokens; answer recall (share of the reference answer's words in the context), evidence recall, tokens
spent, and the median milliseconds of a cold selection. Lines from before the protocol have what was measured then, on
the questions named: compare methods within a line, not lines. The [lab notebook](experiments/LOG.md) has intervals.

`python -m experiments.report.records --results runs/held-out --changed "what is new"` adds a line from a folder of
`corag evaluate`; without `--results` it writes this page and its figure from [the lines](experiments/records.jsonl).

![Evidence recall against tokens of each default and of filling](experiments/figures/records.svg)
"""


def new_line(files: Sequence[Path], changed: str) -> dict[str, Any]:
    """Return the line of some results; `InputError` if a budget or a method is missing."""
    results = [Result.read(file).record for file in files]
    figures: dict[str, Any] = {}
    for budget in BUDGETS:
        of_budget = [
            {row["method"]: row for row in record["methods"]} for record in results if record["budget_tokens"] == budget
        ]
        for method in METHODS:
            rows = [rows[method] for rows in of_budget if method in rows]
            if not rows or len(rows) < len(of_budget):
                raise InputError(f"not all results at {budget} tokens have {method}; evaluate {', '.join(METHODS)}")
            known = {name: [row[name] for row in rows if row.get(name) is not None] for name in MEASURES}
            means = {name: round(fmean(values), 4) for name, values in known.items() if values}
            figures[f"{method}, {budget}"] = means
    sets = sorted({f"{Path(str(record['data'])).name} {record['queries']}" for record in results})
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    settings = results[0]["config"]
    command = f"`corag evaluate --methods {','.join(METHODS)} --reader {settings['reader']}`"
    about = {"date": today, "commit": commit(), "changed": changed, "questions": ", ".join(sets), "command": command}
    return {**about, "figures": figures}


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the records as Markdown, newest first."""
    parts = [HEAD]
    for line in reversed(lines):
        headings = ["method, budget", "answer recall", "evidence recall", "tokens", "ms"]
        rows = [
            [name, *(format(of[one], spec) if one in of else "-" for one, spec in MEASURES.items())]
            for name, of in line["figures"].items()
        ]
        table = [f"| {' | '.join(cells)} |" for cells in (headings, ["---"] * len(headings), *rows)]
        about = f"{line['questions']}; by {line['command']}, commit {line['commit']}."
        parts.append("\n\n".join([f"## {line['date']}: {line['changed']}", about, "\n".join(table)]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def figure(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the figure as SVG: evidence recall at the tokens spent, hollow for filling."""
    drawn = new_figure(6.4, 4.2, layout="constrained")
    panel = drawn.subplots()
    for number, line in enumerate(lines):
        style = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)], "markersize": 8}
        for name, of in line["figures"].items():
            method, _, budget = name.rpartition(", ")
            if method not in ("corag", "naive") or "evidence_recall" not in of:
                continue
            hollow = {} if method == "corag" else {"markerfacecolor": "white"}
            label = f"{line['date']}, {budget} tokens" if method == "corag" else None
            panel.plot(
                of["cost_tokens"], of["evidence_recall"], linestyle="", label=plain(label or ""), **style, **hollow
            )
    finish(panel)
    panel.set_xlabel("tokens spent (hollow: filling)")
    panel.set_ylabel("evidence recall")
    panel.legend(frameon=False, fontsize=9)
    return to_svg(drawn)


def main(results: str = "", changed: str = "") -> None:
    """Add a line of `results`, a pattern of files, and write the page and the figure.

    Args:
        results: Folder that `corag evaluate` wrote, with sets and budgets; empty for none.
        changed: What is new in this default, in a few words.
    """
    lines = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    if results:
        if not changed.strip():
            raise InputError("changed is empty; say in a few words what is new in this default")
        lines.append(new_line(sorted(Path(results).glob("*.json")), changed.strip()))
        write_atomically(LINES, "".join(to_json(line) + "\n" for line in lines))
    write_atomically(FIGURE, figure(lines))
    write_atomically(PAGE, page(lines))


if __name__ == "__main__":
    from jsonargparse import auto_cli

    auto_cli(main)
