"""The model card of the reader: the README of its adapter."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch
import transformers

from corag.models.trained import load_adapter
from corag.models.trained.folder import CARD_FILE
from corag.readers.span_reader import ReaderSettings
from experiments.adapters.reader.config import ReaderTraining
from experiments.adapters.reader.state import Progress
from experiments.agents.train import commit
from experiments.run.tables import markdown_table

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

The gold passages are the context{by_sentence}; the weights
have the precision that is shipped. F1 and exact match as in SQuAD 1.1, in percent. Held out: a share of the training
questions, split between documents.

{figures}

{calibration}

The reader copies; it does not reason. It was trained on English Wikipedia and a few medical abstracts. Most of its
questions have one hop. If the context holds no answer, it still gives its best span, with low confidence, unless
`min_confidence` is set.

## Training progress

{curve}

F1 / exact match on at most {validation} held-out questions of each source.

## How it was made

{facts}
{earlier}
## Licence

The weights derive from all-MiniLM-L6-v2 (Apache-2.0) and are Apache-2.0. Training data: SQuAD 1.1 (CC BY-SA 4.0),
Natural Questions as annotated by QED (CC BY-SA 3.0), HotpotQA (CC BY-SA 4.0), 2WikiMultihopQA (Apache-2.0), MuSiQue
(CC BY 4.0), PubMedQA (MIT); none of their text is in the adapter.
"""
_CALIBRATION = """\
Confidence was calibrated on {questions} held-out questions, {without_answer} of them with a context that holds no
answer; {right:.0%} were answered correctly. Its cross-fitted expected calibration error is {calibration_error:.3f}. A
question with an answer in its context has a larger margin than one without in {separation:.1%} of all pairs."""
_BY_SENTENCE = (
    ", or, by sentence, what a selector of sentences might leave of them: some sentences\nof the gold passages and of "
    "similar ones"
)
_OWN_TABLES = {"data", "out", "sources", "tests", "quiet", "logger", "save_every_s", "threads"}


def reader_card(
    config: ReaderTraining,
    progress: Progress,
    settings: ReaderSettings,
    figures: Mapping[str, Mapping[str, float]],
    num_examples: int,
) -> str:
    """Return the card as Markdown; `figures` hold F1 and exact match by set of questions, and `calibration`."""
    names = [name.removesuffix("_f1") for name in (progress.curve or [{}])[-1] if name.endswith("_f1")]
    facts = {
        "questions learned from": num_examples,
        "sources": ", ".join(f"{source.data}/{source.split}" for source in config.sources),
        "settings": ", ".join(
            f"{entry.name}={getattr(config, entry.name)}" for entry in fields(config) if entry.name not in _OWN_TABLES
        ),
        "batches": progress.step,
        "tokens read": f"{progress.tokens:,}",
        "hours": f"{progress.seconds / 3600:.2f}, on a CPU shared with other work",
        "seed": config.seed,
        "window": f"{settings.window_tokens} tokens, half over the next",
        "confidence": f"logistic function of {settings.slope} * margin + {settings.offset}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        "commit": commit(),
    }
    answers = [(name, row["n"], f"{row['f1']:.1f}", f"{row['em']:.1f}") for name, row in figures.items() if "f1" in row]
    calibration = {name.replace(" ", "_"): value for name, value in figures.get("calibration", {}).items()}
    curve = [
        (
            point["step"],
            f"{point['tokens']:,}",
            *(f"{point[f'{name}_f1']:.1f} / {point[f'{name}_em']:.1f}" for name in names),
        )
        for point in progress.curve
    ]
    return _TEMPLATE.format(
        by_sentence=_BY_SENTENCE if config.rows.sentences else "",
        figures=markdown_table(("Questions", "Number", "F1", "Exact match"), answers),
        calibration=_CALIBRATION.format(**calibration) if calibration else "The confidence was not fitted.",
        curve=markdown_table(("Batches", "Tokens", *names), curve),
        validation=config.validation,
        facts=markdown_table(("Fact", "Value"), facts.items()),
        earlier=_earlier(config.init_from) if config.init_from else "",
    )


def _earlier(folder: str) -> str:
    """Return how the adapter that a training went on with was made, from its card."""
    adapter = load_adapter(folder)
    card = Path(folder) / CARD_FILE
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    made = re.search(r"^## How it was made\n\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    facts = made[1] if made else "No card tells how it was made.\n"
    return f"\nIt went on with an adapter (weights {adapter.weights_sha256[:12]}) that was made so:\n\n{facts}"
