"""Benchmarks of long contexts (Adaptive-k, section 4.1): the RAG part of HELMET, and HoloBench."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from corag.text.documents import Document
from experiments.data.sources.source import Inputs, Question, Row, distinct, passage_id

HOLOBENCH_DATABASES = ("wine_1", "college_2", "flight_4", "store_1", "soccer_1")
HOLOBENCH_AMOUNTS = {"info-5k": 5_000, "info-10k": 10_000, "info-25k": 25_000, "info-50k": 50_000}
"""Splits: tokens of the rows that matter, of `HOLOBENCH_TOKENS` in all; as in Adaptive-k."""
HOLOBENCH_TOKENS = 100_000
_CHARACTERS_PER_TOKEN = 3.66


def helmet(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert a task of HELMET's RAG part: up to 1,000 passages of Wikipedia a question.

    The source repeats a question with its evidence at other depths; passages have no depth here, so it comes once.
    """
    seen: set[str] = set()
    for row in inputs.rows(split):
        if row["question"] in seen:
            continue
        seen.add(row["question"])
        passages = {one.id: one for one in map(_helmet_passage, row["ctxs"])}
        gold = dict.fromkeys(_helmet_passage(one).id for one in row["positive_ctxs"])
        yield Question(
            f"{split}-{len(seen) - 1}",
            row["question"],
            distinct(*row["answers"]),
            tuple(name for name in gold if name in passages),
            tuple(passages.values()),
            pool=True,
        )


def _helmet_passage(context: Row) -> Document:
    return Document(passage_id("helmet", context["title"], context["text"]), context["text"], context["title"])


def holobench(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert HoloBench: a question over rows of a database, each told as a sentence.

    As in the source, rows are taken in turn from all tables, those that the query names up to the amount of the split,
    the others up to the rest, and the answer is that of the SQL query over the rows taken. Sizes are estimated from
    characters. Evidence is every row of a table that the query names.
    """
    for database in HOLOBENCH_DATABASES:
        tables: dict[str, list[Row]] = {}
        for row in inputs.rows(database):
            tables.setdefault(row["file"], []).append(row)
        for number, row in enumerate(inputs.rows(f"queries-{database}")):
            main = _tables_in(row["query"], tables)
            taken = _taken(tables, main, HOLOBENCH_AMOUNTS[split])
            passages = {
                (table, place): Document(f"{database}-{table}-{place}", tables[table][place]["verbalized_text"], table)
                for table, place in taken
            }
            rows = {table: [json.loads(tables[table][place]["table_row"]) for name, place in taken if name == table]
                    for table in main}  # fmt: skip
            yield Question(
                f"{database}-{number}-{split}",
                row["question"],
                distinct(_answer(row["query"], rows)),
                tuple(passage.id for (table, _), passage in passages.items() if table in main),
                tuple(passages.values()),
                pool=True,
                extra={"sql": row["query"], "database": database, "difficulty": row.get("difficulty")},
            )


def _tables_in(query: str, tables: Mapping[str, Any]) -> list[str]:
    """Return the tables that a query names."""
    named = {name.lower() for name in re.findall(r"\b(?:from|join)\s+[\"`\[]?(\w+)", query, re.IGNORECASE)}
    return [table for table in tables if table.lower() in named]


def _taken(tables: Mapping[str, Sequence[Row]], main: Sequence[str], amount: int) -> list[tuple[str, int]]:
    """Return table and place of the rows that make the context, in the order in which they are taken."""
    room = {True: float(amount), False: float(HOLOBENCH_TOKENS - amount)}
    taken = []
    for place in range(max(map(len, tables.values()), default=0)):
        for table, rows in tables.items():
            kind = table in main
            if place < len(rows) and room[kind] > 0:
                room[kind] -= len(rows[place]["verbalized_text"]) // _CHARACTERS_PER_TOKEN + 1
                if room[kind] > 0:
                    taken.append((table, place))
    return taken


def _answer(query: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the result of a query: a line a row, cells divided by commas; empty where SQLite cannot run it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, rows in tables.items():
            columns = list(dict.fromkeys(name for row in rows for name in row))
            listed = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns) or '"empty"'
            connection.execute(f'CREATE TABLE "{table}" ({listed})')
            marks = ", ".join("?" * len(columns))
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})', ([row.get(name) for name in columns] for row in rows)
            )
        try:
            found = connection.execute(query).fetchall()
        except sqlite3.Error:
            return ""
    return "\n".join(", ".join("" if cell is None else str(cell) for cell in row) for row in found)
