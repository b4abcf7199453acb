"""The demo corpus: Python's own language reference, with questions written for this project.

`pydoc_data.topics` ships with every Python, so the corpus needs no download; its text differs a little from
version to version. A question whose evidence this Python's text does not hold is left out, with a notice.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.data.folder import write_data

logger = logging.getLogger(__name__)

SPLITS = {"statements": "train", "datamodel": "train", "expressions": "dev", "builtins": "test"}
"""Topic group -> split: no topic is asked about in two splits."""

# What versions write differently, besides white space: quotation marks and markup around code.
_IGNORED = "\"'`*\u201c\u201d\u2018\u2019"


@dataclass(frozen=True)
class Demo:
    """The demo's rows of corpus.jsonl and queries.jsonl.

    `left_out` are questions whose evidence this Python's text does not hold, `contained` topics that larger ones hold.
    """

    documents: list[dict[str, Any]]
    queries: list[dict[str, Any]]
    left_out: list[str]
    contained: list[str]


def write_data_folder(path: Path) -> Demo:
    """Write the demo's corpus and questions as a data folder."""
    demo = load()
    write_data(path, corpus=demo.documents, queries=demo.queries)
    return demo


def load() -> Demo:
    """Read topics and questions, and find the evidence in the text of this Python."""
    from pydoc_data.topics import topics

    # Topics whose words a larger topic repeats: the index of pydoc lists sections twice.
    words = {name: " ".join(re.findall(r"\w+", text)) for name, text in topics.items()}
    contained = sorted(name for name, own in words.items() if any(own in other != own for other in words.values()))
    documents = []
    for name, text in sorted(topics.items()):
        if name not in contained:
            first = text.strip().split("\n", 1)[0].strip()
            title = first.strip('"') if 0 < len(first) <= 80 else name
            documents.append({"id": name, "title": title, "text": text})
    texts = {document["id"]: _squeezed(document["text"]) for document in documents}
    queries, left_out = [], []
    files = [Path(__file__).with_name(f"questions_{group}.jsonl") for group in SPLITS]
    for row in (json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        gold = [_locate(evidence, texts) for evidence in row["evidence"]]
        if None in gold:
            left_out.append(row["id"])
            continue
        asked = {name: row[name] for name in ("id", "question", "kind")}
        topics_asked = sorted({evidence["topic"] for evidence in row["evidence"]})
        queries.append(
            {**asked, "answers": [row["answer"]], "gold": gold, "split": SPLITS[row["group"]], "topics": topics_asked}
        )
    if left_out:
        logger.warning(
            "%d of %d questions are left out, because this Python's reference words their evidence otherwise: %s",
            len(left_out), len(left_out) + len(queries), ", ".join(left_out),
        )  # fmt: skip
    return Demo(documents, queries, left_out, contained)


def _squeezed(text: str) -> tuple[str, list[int]]:
    """Return the letters of a text that no version of Python writes differently, in lower case, and their offsets."""
    offsets = [offset for offset, letter in enumerate(text) if not letter.isspace() and letter not in _IGNORED]
    return "".join(text[offset].lower()[0] for offset in offsets), offsets


def _locate(evidence: Mapping[str, str], texts: Mapping[str, tuple[str, list[int]]]) -> str | None:
    """Return a gold entry `topic#start-end` for a quote: in its own topic, or in the first one that holds it."""
    quote, _ = _squeezed(evidence["quote"])
    for name in (evidence["topic"], *texts):
        if name in texts and quote in (letters := texts[name][0]):
            begin, offsets = letters.find(quote), texts[name][1]
            return f"{name}#{offsets[begin]}-{offsets[begin + len(quote) - 1] + 1}"
    return None
