"""The model card of the reader: the README of its adapter."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import fields

import torch
import transformers

from corag.readers.span_reader import ReaderSettings
from experiments.adapters.reader.config import ReaderTraining
from experiments.adapters.state import Standing
from experiments.agents.train import commit

_TEMPLATE = """\
# minilm-reader

Answers a question from a context: with a span of it, or with yes or no. An adapter on all-MiniLM-L6-v2: low-rank
updates of all its linear layers, its biases, layer norms and token types, and a linear head.

```python
import corag

answer = corag.reader("minilm-reader").answer("Who wrote it?", context)
answer.text, answer.confidence, answer.spans, answer.chunk
```

## Results

The gold passages are the context; the weights have the precision that is shipped. F1 and exact match as in SQuAD 1.1,
in percent. Held out: a share of the training questions, split between documents.

| Questions | Number | F1 | Exact match |
| --- | --- | --- | --- |
{figures}

{calibration}

The reader copies; it does not reason. It was trained on English Wikipedia and a few medical abstracts. Most of its
questions have one hop. If the context holds no answer, it still gives its best span, with low confidence, unless
`min_confidence` is set.

## Training progress

| Batches | Tokens | {curve_names} |
| --- | --- | {curve_rule} |
{curve}

F1 / exact match on at most {validation} held-out questions of each source.

## How it was made

| Fact | Value |
| --- | --- |
{facts}

## Licence

The weights derive from all-MiniLM-L6-v2 (Apache-2.0) and are Apache-2.0. Training data: SQuAD 1.1 (CC BY-SA 4.0),
Natural Questions as annotated by QED (CC BY-SA 3.0), HotpotQA (CC BY-SA 4.0), 2WikiMultihopQA (Apache-2.0), MuSiQue
(CC BY 4.0), PubMedQA (MIT); none of their text is in the adapter.
"""
_CALIBRATION = """\
Confidence was calibrated on {questions} held-out questions, {without} of them with a context that holds no answer;
{right:.0%} were answered correctly. Its cross-fitted expected calibration error is {error:.3f}. A question with
an answer in its context has a larger margin than one without in {separation:.1%} of all pairs."""
_OWN_TABLES = {"data", "out", "sources", "tests", "quiet", "logger", "save_every_s", "threads"}


def reader_card(
    config: ReaderTraining,
    standing: Standing,
    settings: ReaderSettings,
    figures: Mapping[str, Mapping[str, float]],
    num_examples: int,
) -> str:
    """Return the card as Markdown.

    Args:
        config: The training.
        standing: How far it went, with its validations.
        settings: How the reader reads.
        figures: F1 and exact match by questions, and `calibration`.
        num_examples: Questions that were learned from.
    """
    names = [source.data for source in config.sources if f"{source.data}_f1" in (standing.curve or [{}])[-1]]
    facts = {
        "questions learned from": num_examples,
        "sources": ", ".join(f"{source.data}/{source.split}" for source in config.sources),
        "settings": ", ".join(
            f"{entry.name}={getattr(config, entry.name)}" for entry in fields(config) if entry.name not in _OWN_TABLES
        ),
        "batches": standing.step,
        "tokens read": f"{standing.tokens:,}",
        "hours": f"{standing.seconds / 3600:.2f}, on a CPU shared with other work",
        "seed": config.seed,
        "window": f"{settings.window_tokens} tokens, half over the next",
        "confidence": f"logistic function of {settings.slope} * margin + {settings.offset}",
        "versions": ", ".join(
            f"{name} {version}"
            for name, version in (
                ("Python", platform.python_version()),
                ("torch", torch.__version__),
                ("transformers", transformers.__version__),
            )
        ),
        "commit": commit(),
    }
    return _TEMPLATE.format(
        figures="\n".join(
            f"| {name} | {found['n']} | {found['f1']:.1f} | {found['em']:.1f} |"
            for name, found in figures.items()
            if "f1" in found
        ),
        calibration=_calibration(figures.get("calibration", {})),
        curve_names=" | ".join(names),
        curve_rule=" | ".join("---" for _ in names),
        curve="\n".join(
            f"| {point['step']} | {point['tokens']:,} | "
            + " | ".join(f"{point[f'{name}_f1']:.1f} / {point[f'{name}_em']:.1f}" for name in names)
            + " |"
            for point in standing.curve
        ),
        validation=config.validation,
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
    )


def _calibration(found: Mapping[str, float]) -> str:
    if not found:
        return "The confidence was not fitted."
    return _CALIBRATION.format(
        questions=found["questions"],
        without=found["without answer"],
        right=found["right"],
        error=found["calibration error"],
        separation=found["separation"],
    )
