"""The model card of an adapter that ships: the README of its folder."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import fields

from corag.errors import InputError
from experiments.adapters.config import CrossTraining, ReaderTraining, ValueTraining
from experiments.data.catalogue import find_data_set
from experiments.report.page import Block, Page, Section, Table
from experiments.run.journal import commit

SPLIT = """\
Questions that share a gold passage or its title are on the same side of the split (`experiments/data/splits.py`).
A distractor may be on both sides."""
LICENCE = """\
The weights derive from all-MiniLM-L6-v2 (Apache-2.0) and are Apache-2.0. They contain no text of the data, whose
licences are above."""


def adapter_card(
    config: ValueTraining | CrossTraining | ReaderTraining,
    name: str,
    about: str,
    use: str,
    results: Sequence[Block],
    facts: Mapping[str, object],
) -> str:
    """Return the card of an adapter as Markdown.

    Args:
        config: Settings of its training.
        name: Its name.
        about: What it is.
        use: Python that uses it.
        results: What was measured.
        facts: How it was made; versions and commit are added.
    """
    import torch
    import transformers

    versions = f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    made = {**facts, "versions": versions, "commit": commit()}
    headings = [one.name for one in fields(config.sources[0])]
    rows = [
        [*(str(getattr(source, heading)) for heading in headings), _licence(source.data)] for source in config.sources
    ]
    commands = {ValueTraining: "value", CrossTraining: "cross", ReaderTraining: "reader"}
    command = f"Made by `corag train {commands[type(config)]}`."
    sections = [
        Section("Use", [f"```python\nimport corag\n\n{use}\n```"]),
        Section("Results", results),
        Section("Training", [Table([*headings, "licence"], rows), SPLIT, facts_table(made), command]),
        Section("Licence", [LICENCE]),
    ]
    return Page(name, about, sections).markdown()


def facts_table(facts: Mapping[str, object]) -> Table:
    """Return facts as a table of two columns."""
    return Table(("fact", "value"), [(name, str(value)) for name, value in facts.items()])


def _licence(name: str) -> str:
    try:
        return find_data_set(name).licence
    except InputError:
        return "see the data"
