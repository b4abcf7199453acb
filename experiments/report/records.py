"""Number, picture and tables of `README.md` and `RECORDS.md`, from committed figures.

    corag evaluate --config experiments/configs/record.yaml --look "why"
    python -m experiments.report.records --results runs/record --changed "what is new"

measures today's default on sealed questions, keeps each question's figures in `experiments/results/held-out.parquet`,
adds a section to `RECORDS.md`, and writes figures and tables anew; `--left_out` is what `record-left-out.yaml` gave.
Without `--results` they are written from what is kept. Each data set counts alike.
"""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from common.storage import write_atomically
from corag.cli.page import markdown_table
from corag.errors import InputError
from corag.optional import require
from corag.types import FloatArray
from experiments.evaluation.methods import FILLING
from experiments.report.drawing import COLORS, Line, against_tokens
from experiments.report.equal import FIGURES, HELD, Curves, curves, means, needs, needs_table, points_of
from experiments.run.journal import commit

ROOT = Path(__file__).parents[2]
README, PAGE = ROOT / "README.md", ROOT / "RECORDS.md"
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
ALT = "Answer and evidence held against tokens: the default, and filling, for kinds of texts known and left out."
SLACK = 0.03
"""How far the default may be below filling on a set and still count as keeping what filling keeps."""
BEGIN, END = "<!-- held-out: python -m experiments.report.records -->", "<!-- end -->"
"""Between these lines of a page is what this module writes; behind them, in `RECORDS.md`, older records."""
KNOWN, LEFT_OUT = "known", "left out"
"""Kinds of texts that the value has learned from, and that it has not."""

Rows = Sequence[Mapping[str, Any]]


def question_rows(folder: str, kinds: str) -> list[dict[str, Any]]:
    """Return the figures of each question from the lines that `corag evaluate` wrote; `InputError` if some are missing.

    The data sets are in the order of `TITLES`.
    """
    order = {name: number for number, name in enumerate(TITLES)}
    files = sorted(
        Path(folder).glob("*.rows.jsonl"), key=lambda file: order.get(file.stem.rpartition("-")[0], len(order))
    )
    rows = []
    for file in files:
        name, _, budget = file.name.removesuffix(".rows.jsonl").rpartition("-")
        about = {"kinds": kinds, "data": name, "budget": int(budget)}
        for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if row["method"] in METHODS:
                rows.append({**about, **{of: row.get(of) for of in ("method", "query", "group", *FIGURES)}})
    wanted = set(product(dict.fromkeys(row["data"] for row in rows), BUDGETS, METHODS))
    if not rows or (lacking := wanted - {(row["data"], row["budget"], row["method"]) for row in rows}):
        what = min(lacking) if rows else "results"
        raise InputError(f"{folder} lacks {what}; evaluate {', '.join(METHODS)} at {BUDGETS} tokens")
    return rows


def by_set(rows: Rows, columns: Sequence[tuple[int, str]]) -> dict[str, FloatArray]:
    """Return for each data set the means of `FIGURES` of some budgets and methods, `[columns, figures]`."""
    cells: dict[tuple[str, int, str], list[list[Any]]] = {}
    for row in rows:
        cells.setdefault((row["data"], row["budget"], row["method"]), []).append([row[name] for name in FIGURES])
    return {
        name: np.stack([means(np.array(cells[name, *column], dtype=np.float64)) for column in columns])
        for name in dict.fromkeys(row["data"] for row in rows)
    }


def table(rows: Rows) -> str:
    """Return the default beside filling as Markdown: a line a data set, with mean and verdict of all."""
    columns = [(budget, method) for budget in BUDGETS for method in ("corag", FILLING)]
    of_sets, sizes = by_set(rows, columns), {(row["data"], row["query"]) for row in rows}
    headings = ["", "questions"]
    headings += [f"{'`corag`' if of == 'corag' else 'filling'}, {budget:,}" for budget, of in columns]
    lines = [
        [TITLES.get(name, name), str(sum(of == name for of, _ in sizes)), *map(_cell, figures)]
        for name, figures in of_sets.items()
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


def record(rows: Rows, changed: str) -> str:
    """Return the section of a new default, as Markdown: the means over data sets of each method at each budget."""
    columns = [(budget, method) for method in METHODS for budget in BUDGETS]
    cells = iter(map(_cell, means(np.stack(list(by_set(rows, columns).values())))))
    lines = [[method, *(next(cells) for _ in BUDGETS)] for method in METHODS]
    questions = len({(row["data"], row["query"]) for row in rows})
    about = f"{questions} questions of {len({row['data'] for row in rows})} sets, commit {commit()}."
    shown = markdown_table(["answer / evidence @tokens", *(f"{budget:,}" for budget in BUDGETS)], lines)
    return f"## {datetime.datetime.now(datetime.UTC).date().isoformat()}: {changed}\n\n{about}\n\n{shown}"


def front(kinds: Mapping[str, Curves]) -> str:
    """Return what README and records begin with, as Markdown: a number for each sort of kinds, a picture, a table."""
    of_sorts = {sort: {need.budget: need for need in needs(found, "corag", FILLING)} for sort, found in kinds.items()}
    said = [
        f"in {next(iter(of_sorts.values()))[budget].tokens:.0f}: "
        + ", ".join(f"{of[budget].needed} on kinds {sort}" for sort, of in of_sorts.items())
        for budget in BUDGETS
    ]
    figure = f'<img src="experiments/figures/{PICTURE.name}" width="480" alt="{ALT}">'
    needed = needs_table(kinds, "corag", FILLED)
    numbers = f"**Tokens in which the default holds what filling holds {'; '.join(said)}.**"
    return "\n\n".join([numbers, figure, markdown_table(needed.headings, needed.rows), needed.note])


def picture(kinds: Mapping[str, Curves]) -> str:
    """Return what the default and what fills hold against their tokens, as SVG."""
    lines: list[Line] = []
    style: dict[str, Any] = {"marker": "o", "linewidth": 1.6}
    for (sort, found), line in zip(kinds.items(), ("-", ":"), strict=False):
        own = {**style, "color": COLORS[0], "linestyle": line}
        lines.append((f"the default, kinds {sort}", points_of(found, "corag")[:, :2], own))
    # A fill learns nothing, so it is the same for both.
    found = next(iter(kinds.values()))
    lines += [
        (title, points_of(found, method)[:, :2], {**style, "color": color})
        for color, (method, title) in zip(COLORS[1:], FILLED.items(), strict=False)
    ]
    return against_tokens({HELD: lines})


def main(results: str = "", left_out: str = "", changed: str = "") -> None:
    """Add a record of `results`, and write figures and tables.

    Args:
        results: Folder that `corag evaluate` wrote, with sets and budgets; empty for none.
        left_out: The same by values that have not learned from the kind of the set.
        changed: What is new in this default, in a few words.
    """
    pyarrow, parquet = require("pyarrow", "experiments"), require("pyarrow.parquet", "experiments")
    new = ""
    if results:
        if not changed.strip():
            raise InputError("changed is empty; say in a few words what is new in this default")
        known = question_rows(results, KNOWN)
        new = "\n\n" + record(known, changed.strip())
        sink, others = io.BytesIO(), question_rows(left_out, LEFT_OUT) if left_out else []
        parquet.write_table(pyarrow.Table.from_pylist([*known, *others]), sink, compression="zstd")
        write_atomically(ROWS, sink.getvalue())
    rows = parquet.read_table(ROWS).to_pylist()
    sorts = [sort for sort in (KNOWN, LEFT_OUT) if any(row["kinds"] == sort for row in rows)]
    asked = [{(row["data"], row["query"]) for row in rows if row["kinds"] == sort} for sort in sorts]
    common = [row for row in rows if (row["data"], row["query"]) in set[Any].intersection(*asked)]
    kinds = {sort: curves([row for row in common if row["kinds"] == sort]) for sort in sorts}
    by_needs = front(kinds)
    write_atomically(PICTURE, picture(kinds))
    _replace(README, by_needs)
    _replace(PAGE, f"{by_needs}\n\n{table([row for row in rows if row['kinds'] == KNOWN])}", new)


def _replace(page: Path, content: str, behind: str = "") -> None:
    """Write content between the marked lines of a page, and further content behind them."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    write_atomically(page, f"{before}{BEGIN}\n{content}\n{END}{behind}{after}")


if __name__ == "__main__":
    from jsonargparse import auto_cli

    auto_cli(main)
