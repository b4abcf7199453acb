"""`RECORDS.md`, number, picture and table of `README.md`, from committed figures.

    corag evaluate --config experiments/configs/record.yaml --look "why"
    python -m experiments.report.records --results runs/record --changed "what is new"

measures today's default on sealed questions, adds its line to `experiments/records.jsonl`, keeps each question's
figures in `experiments/results/held-out.parquet`, and writes page, figures and table anew; without `--results` they are
written from what is kept. Each data set counts alike.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from common.storage import write_atomically
from corag.cli.page import markdown_table
from corag.errors import InputError
from corag.optional import require
from corag.text.visible import to_json
from corag.types import FloatArray
from experiments.evaluation.methods import FILLING
from experiments.report.drawing import COLORS, Points, against_tokens
from experiments.report.equal import FIGURES, Curves, curves, means, needs, needs_table, points_of
from experiments.report.results import Result
from experiments.run.journal import commit

ROOT = Path(__file__).parents[2]
LINES, PAGE = ROOT / "experiments" / "records.jsonl", ROOT / "RECORDS.md"
README = ROOT / "README.md"
ROWS = ROOT / "experiments" / "results" / "held-out.parquet"
"""Each sealed question's figures under the present default and beside it."""
PICTURE = ROOT / "experiments" / "figures" / "kept.svg"
BUDGETS = (256, 1024)
FILLED = {FILLING: "filling by late interaction", "top-k(k=20)": "filling in the retriever's order"}
METHODS = ("corag(keep=0.9)", "corag", "corag(keep=1)", *FILLED)
TITLES = {
    "hotpotqa": "HotpotQA", "2wikimultihopqa": "2WikiMultihopQA", "multihoprag": "MultiHop-RAG", "squad": "SQuAD",
    "nq": "Natural Questions", "pubmedqa": "PubMedQA", "medquad": "MedQuAD", "contract_nli": "ContractNLI",
    "policyqa": "PolicyQA", "tatqa": "TAT-QA", "api_docs": "API documentation", "codebase": "source code",
    "mtrag": "MTRAG (conversations)", "friendsqa": "FriendsQA (dialogues)", "lihua": "a year of chat",
    "qmsum": "QMSum (meetings)", "fetaqa": "FeTaQA (tables)", "fairytale": "FairytaleQA (stories)",
}  # fmt: skip
"""Data sets as readers know them, by the names in `experiments/configs/record.yaml`."""
HOW_TO_READ = """Share of the reference answer's words in the context / share of gold passages touched @ tokens spent,
by default and by filling the budget with the best-ranked passages (`naive(reranker=minilm-softsim)`)."""
ALT = "Answer and evidence held against tokens: the default, and filling, for kinds of texts known and left out."
SLACK = 0.03
"""How far the default may be below filling on a set and still count as keeping what filling keeps."""
TABLE = ("<!-- held-out: python -m experiments.report.records -->", "<!-- end -->")
"""Between these lines of `README.md` is the table."""
KNOWN, LEFT_OUT = "known", "left out"
"""Kinds of texts that the value has learned from, and that it has not."""
COLUMNS = {
    "answer_recall": ".3f", "evidence_recall": ".3f", "cost_tokens": ".0f", "latency_ms_median": ".0f",
}  # fmt: skip
HEAD = """# Records

What each default gave when it shipped. Protocol: held-out questions by document, each data set counted alike; budgets
of 256 and 1,024 tokens; answer recall (share of the reference answer's words in the context), evidence recall, tokens
spent, and the median milliseconds of a cold selection. Lines from before the protocol have what was measured then, on
the questions named: compare methods within a line, not lines. The [lab notebook](experiments/LOG.md) has intervals.

`python -m experiments.report.records --results runs/record --changed "what is new"` adds a line from what
`corag evaluate --config experiments/configs/record.yaml --look "why"` wrote; without `--results` it writes this page
and the table of the README from [the lines](experiments/records.jsonl) and each question's figures.
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
            known = {name: [row[name] for row in rows if row.get(name) is not None] for name in COLUMNS}
            means = {name: round(fmean(values), 4) for name, values in known.items() if values}
            figures[f"{method}, {budget}"] = means
    sets = sorted({f"{Path(str(record['data'])).name} {record['queries']}" for record in results})
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    settings = results[0]["config"]
    command = f"`corag evaluate --methods {','.join(METHODS)} --reader {settings['reader']}`"
    about = {"date": today, "commit": commit(), "changed": changed, "questions": ", ".join(sets), "command": command}
    return {**about, "figures": figures}


def question_rows(files: Sequence[Path], kinds: str) -> list[dict[str, Any]]:
    """Return the figures of each question from the lines that `corag evaluate` wrote beside its results."""
    rows = []
    for file in files:
        name, _, budget = file.stem.rpartition("-")
        for line in file.with_suffix(".rows.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row["method"] in METHODS:
                about = {"kinds": kinds, "data": name, "budget": int(budget)}
                rows.append({**about, **{of: row.get(of) for of in ("method", "query", "group", *FIGURES)}})
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the default beside filling as Markdown: a line a data set, with mean and verdict of all."""
    by_cell: dict[tuple[str, int, str], list[list[Any]]] = {}
    for row in rows:
        by_cell.setdefault((row["data"], row["budget"], row["method"]), []).append([row[name] for name in FIGURES])
    columns = [(budget, method) for budget in BUDGETS for method in ("corag", FILLING)]
    names = list(dict.fromkeys(row["data"] for row in rows))
    of_sets = {
        name: np.stack([means(np.array(by_cell[name, *column], dtype=np.float64)) for column in columns])
        for name in names
    }
    headings = [
        "",
        "questions",
        *(f"{'`corag`' if of == 'corag' else 'filling'}, {budget:,}" for budget, of in columns),
    ]
    lines = [
        [TITLES.get(name, name), str(len(by_cell[name, *columns[0]])), *map(_cell, of_sets[name])] for name in names
    ]
    overall = means(np.stack(list(of_sets.values())))
    lines.append([f"**mean of {len(of_sets)} sets**", "", *map(_cell, overall)])
    said = []
    for number, budget in zip((0, 2), BUDGETS, strict=True):
        held = sum(not (of_set[number] < of_set[number + 1] - SLACK)[:2].any() for of_set in of_sets.values())
        spent = overall[number, -1] / max(overall[number + 1, -1], 1.0)
        said.append(f"at {budget:,} tokens on {held} of {len(of_sets)} sets, with {spent:.0%} of its tokens")
    about = f"The default keeps filling's answer words and evidence, less {SLACK:g} at most, {'; '.join(said)}."
    return f"{markdown_table(headings, lines)}\n\n{about}"


def _cell(figures: FloatArray) -> str:
    shares = ["-" if np.isnan(share) else f"{share:.2f}".removeprefix("0") for share in figures[:2]]
    return f"{' / '.join(shares)} @{figures[2]:.0f}"


def page(lines: Sequence[Mapping[str, Any]], by_set: str = "") -> str:
    """Return the records as Markdown, newest first, behind the present default by data set."""
    parts = [HEAD, f"## The present default by data set\n\n{HOW_TO_READ}\n\n{by_set}"] if by_set else [HEAD]
    for line in reversed(lines):
        headings = ["method, budget", "answer recall", "evidence recall", "tokens", "ms"]
        rows = [
            [name, *(format(of[one], spec) if one in of else "-" for one, spec in COLUMNS.items())]
            for name, of in line["figures"].items()
        ]
        about = f"{line['questions']}; by {line['command']}, commit {line['commit']}."
        parts.append("\n\n".join([f"## {line['date']}: {line['changed']}", about, markdown_table(headings, rows)]))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def front(kinds: Mapping[str, Curves]) -> str:
    """Return what README and records begin with, as Markdown: a number for each sort of kinds, a picture, a table."""
    of_sorts = {sort: {need.budget: need for need in needs(found, "corag", FILLING)} for sort, found in kinds.items()}
    said = [
        f"in {next(iter(of_sorts.values()))[budget].tokens:.0f}: "
        + ", ".join(f"{of[budget].needed} on kinds {sort}" for sort, of in of_sorts.items())
        for budget in BUDGETS
    ]
    figure = f'<img src="{PICTURE.relative_to(ROOT)}" width="480" alt="{ALT}">'
    needed = needs_table(kinds, "corag", FILLED)
    numbers = f"**Tokens in which the default holds what filling holds {'; '.join(said)}.**"
    return "\n\n".join([numbers, figure, markdown_table(needed.headings, needed.rows), needed.note])


def picture(kinds: Mapping[str, Curves]) -> str:
    """Return what the default and what fills hold against their tokens, as SVG."""
    lines: list[tuple[str, Points, Mapping[str, Any]]] = []
    style: dict[str, Any] = {"marker": "o", "linewidth": 1.6}
    for (sort, found), line in zip(kinds.items(), ("-", ":"), strict=False):
        own = {**style, "color": COLORS[0], "linestyle": line}
        lines.append((f"the default, kinds {sort}", points_of(found, "corag"), own))
    # A fill learns nothing, so it is the same for both.
    found = next(iter(kinds.values()))
    lines += [
        (title, points_of(found, method), {**style, "color": color})
        for color, (method, title) in zip(COLORS[1:], FILLED.items(), strict=False)
    ]
    return against_tokens(lines, "answer and evidence held")


def main(results: str = "", left_out: str = "", changed: str = "") -> None:
    """Add a line of `results`, a pattern of files, and write page, figures and table.

    Args:
        results: Folder that `corag evaluate` wrote, with sets and budgets; empty for none.
        left_out: The same by values that have not learned from the kind of the set.
        changed: What is new in this default, in a few words.
    """
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    lines = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    if results:
        if not changed.strip():
            raise InputError("changed is empty; say in a few words what is new in this default")
        known, others = (_files(folder) if folder else [] for folder in (results, left_out))
        lines.append(new_line(known, changed.strip()))
        write_atomically(LINES, "".join(to_json(line) + "\n" for line in lines))
        sink, rows = io.BytesIO(), [*question_rows(known, KNOWN), *question_rows(others, LEFT_OUT)]
        parquet.write_table(pyarrow.Table.from_pylist(rows), sink, compression="zstd")
        write_atomically(ROWS, sink.getvalue())
    rows = parquet.read_table(ROWS).to_pylist()
    sorts = [sort for sort in (KNOWN, LEFT_OUT) if any(row["kinds"] == sort for row in rows)]
    asked = [{(row["data"], row["query"]) for row in rows if row["kinds"] == sort} for sort in sorts]
    common = [row for row in rows if (row["data"], row["query"]) in set[Any].intersection(*asked)]
    kinds = {sort: curves([row for row in common if row["kinds"] == sort]) for sort in sorts}
    by_needs = front(kinds)
    rows = [row for row in rows if row["kinds"] == KNOWN]
    write_atomically(PICTURE, picture(kinds))
    write_atomically(PAGE, page(lines, f"{by_needs}\n\n{table(rows)}"))
    before, _, rest = README.read_text(encoding="utf-8").partition(TABLE[0])
    _, _, after = rest.partition(TABLE[1])
    write_atomically(README, f"{before}{TABLE[0]}\n{by_needs}\n{TABLE[1]}{after}")


def _files(folder: str) -> list[Path]:
    """Return the results in a folder, in the order of `TITLES`; `InputError` if there are none."""
    order = {name: number for number, name in enumerate(TITLES)}
    files = sorted(file for file in Path(folder).glob("*.json") if file.name != "comparison.json")
    if not files:
        raise InputError(f"{folder} has no results; give the folder that `corag evaluate` wrote")
    return sorted(files, key=lambda file: order.get(file.stem.rpartition("-")[0], len(order)))


if __name__ == "__main__":
    from jsonargparse import auto_cli

    auto_cli(main)
