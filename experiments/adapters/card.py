"""The model cards of values and of the reader: the READMEs of their adapters."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from corag.readers.span_reader import ReaderSettings
from corag.rerankers.evidence.reranker import EvidenceParts
from experiments.adapters.config import ReaderTraining, ValueTraining
from experiments.data.catalogue import DATA_SETS
from experiments.report.page import Page, Section, Table
from experiments.run.journal import commit

_VALUE = """\
Values ordered combinations of chunks for a question by the probability that they hold all evidence, the expected share
of it, and their order. Small networks on the frozen encoder all-MiniLM-L6-v2 (Apache-2.0), in the format
`evidence-sets` of `corag/rerankers/evidence/`. They run in NumPy; an order costs microseconds.
"""
_READER = """\
Answers a question from a context: with a span of it, or with yes or no. An adapter on all-MiniLM-L6-v2: low-rank
updates of all its linear layers, its biases, layer norms and token types, and a linear head.
"""
_READS = """\
The reader copies; it does not reason. It was trained on English Wikipedia and a few medical abstracts. Most of its
questions have one hop. If the context holds no answer, it still gives its best span, with low confidence, unless
`min_confidence` is set."""
_GOLD = """\
The gold passages are the context; the weights have the precision that is shipped. F1 and exact match as in SQuAD 1.1,
in percent. Held out: a share of the training questions, split between documents."""
_SPLIT = """\
Questions that share a gold passage or its title are on the same side of the split (`experiments/data/splits.py`).
A distractor may be on both sides."""
_CALIBRATED = """\
On questions that the networks in question have not learned from. A value is calibrated to the probability that an order
holds all evidence, over the orders that the tree search scores."""
_MEASURED = """\
What it selects under a budget beside other methods: `corag evaluate --config experiments/configs/comparison.yaml`."""


def value_card(
    config: ValueTraining,
    parts: EvidenceParts,
    facts: Mapping[str, Any],
    figures: Mapping[str, float],
) -> str:
    """Return the card of a value as Markdown."""
    sources = [
        (
            source.data,
            source.unit,
            source.kind,
            source.split,
            str(source.limit or "all"),
            f"{source.held_out:.0%}",
            "its own" if source.within == "candidates" else f"{source.num_candidates}, from the {source.within}",
            _licence(source.data),
        )
        for source in config.sources
    ]
    made = {**facts, "seed": config.seed, "commit": commit(), "fit": asdict(config.fit), "value": asdict(parts.weights)}
    headings = ("data", "unit", "kind", "split", "questions, at most", "held out", "candidates", "licence")
    sections = [
        Section("Use", [_code(f'import corag\n\nreranker = corag.reranker("{config.name}")')]),
        Section("Results", [_CALIBRATED, _facts(figures), _MEASURED]),
        Section("Training", [Table(headings, sources), _SPLIT, _facts(made), "Made by `corag train value`."]),
        Section("Licence", ["The weights are Apache-2.0. They contain no text of the data, whose licences are above."]),
    ]
    return Page(config.name, _VALUE, sections).markdown()


def reader_card(
    config: ReaderTraining,
    settings: ReaderSettings,
    facts: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, float]],
) -> str:
    """Return the card of the reader as Markdown; `figures` are those of each set of questions, and `calibration`."""
    import torch
    import transformers

    own = ("out", "data", "quiet", "logger", "wandb", "sources", *config.runtime_settings)
    made = {
        **facts,
        "sources": ", ".join(f"{source.data}/{source.split}" for source in config.sources),
        "settings": {name: value for name, value in asdict(config).items() if name not in own},
        "window": f"{settings.window_tokens} tokens, half over the next",
        "confidence": f"logistic function of {settings.slope} * margin + {settings.offset}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        "commit": commit(),
    }
    answers = {name: row for name, row in figures.items() if name != "calibration"}
    code = (
        'import corag\n\nanswer = corag.reader("minilm-reader").answer("Who wrote it?", context)\n'
        "answer.text, answer.confidence, answer.spans, answer.chunk"
    )
    licences = "; ".join(
        f"{name}: {_licence(name)}" for name in dict.fromkeys(source.data for source in config.sources)
    )
    sections = [
        Section("Use", [_code(code)]),
        Section("Results", [_GOLD, _by("questions", answers), _facts(figures["calibration"]), _READS]),
        Section("Training", [_facts(made), "Made by `corag train reader`."]),
        Section(
            "Licence",
            [
                "The weights derive from all-MiniLM-L6-v2 (Apache-2.0) and are Apache-2.0. None of the text of the "
                f"training data is in the adapter. Its licences: {licences}."
            ],
        ),
    ]
    return Page("minilm-reader", _READER, sections).markdown()


def _licence(name: str) -> str:
    return DATA_SETS[name].licence if name in DATA_SETS else "see the data"


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _facts(facts: Mapping[str, Any]) -> Table:
    return Table(("fact", "value"), [(name, str(value)) for name, value in facts.items()])


def _by(corner: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = [(name, *(_number(row.get(column, "")) for column in columns)) for name, row in rows.items()]
    return Table((corner, *columns), lines)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return str(value)
