"""Calibrates when `minilm-reader` says "not found": questions with their evidence, without it, and of other documents.

    CORAG_DATA=FOLDER python -m experiments.adapters.answerable runs/answerable.jsonl [QUESTIONS]

Measures up to QUESTIONS (20) of each part of each kind, none of them sealed, and prints what is refused. The model is
fitted on the questions for training; the other figures are of those for choosing. To ship it, copy what is printed to
`checkpoints/minilm-reader/answerable.json`. The file of measurements may be there already; what it holds is not
measured again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from corag.cli.console import progress, say
from corag.readers.minilm_reader import NAME, Answerable, Signals, settings_of, signals, span_reader
from corag.registry import tokens
from corag.text.chunking import ChunkConfig, chunk_document
from corag.text.data import Query, passage_of
from corag.text.documents import SEPARATOR, passage
from corag.text.support import findable, places
from corag.types import Chunk
from experiments.data.pools import with_documents
from experiments.protocol.kinds import Kind, divide_kind, in_lots, is_sealed, lot, open_folder, read_kinds, sealed_ids

KINDS = (
    "squad", "manual", "multihoprag_facts", "hotpotqa", "2wikimultihopqa", "clapnq", "policyqa", "pubmedqa", "musique",
)  # fmt: skip
PARTS = ("training", "choosing")
BUDGETS = (256, 512)
OFFERED = 25
LEAST_LEFT = 40
"""Tokens below which a context counts as full."""
LOST = 0.1
"""Share of the answerable questions for training below the threshold; fewer are lost in contexts chosen by `corag`."""
_WORD = re.compile(r"\w+")


class Ranked:
    """Chunks ranked by BM25 (k1 = 1.2, b = 0.75)."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = list(chunks)
        self._words = [_WORD.findall(chunk.text.casefold()) for chunk in chunks]
        self._lengths = np.array([len(words) for words in self._words], dtype=np.float64)
        self._places: dict[str, dict[int, int]] = {}
        for place, words in enumerate(self._words):
            for word in words:
                counts = self._places.setdefault(word, {})
                counts[place] = counts.get(place, 0) + 1

    def best(self, question: str) -> list[Chunk]:
        """Return the best chunks, best first."""
        scores = np.zeros(len(self._chunks))
        norm = 1.2 * (0.25 + 0.75 * self._lengths / max(self._lengths.mean(), 1))
        for word in _WORD.findall(question.casefold()):
            if counts := self._places.get(word):
                where, often = np.fromiter(counts, int), np.fromiter(counts.values(), float)
                weight = np.log(1 + (len(self._chunks) - len(counts) + 0.5) / (len(counts) + 0.5))
                scores[where] += weight * often * 2.2 / (often + norm[where])
        return [self._chunks[place] for place in np.argsort(-scores, kind="stable")[:OFFERED]]


class Corpus:
    """A kind of questions and what they are asked of."""

    def __init__(self, kind: Kind, number: int) -> None:
        kinds, sealed = read_kinds(), sealed_ids()
        self.name, self._folder, self._pool = kind.name, open_folder(kind.data), kind.pool
        parts = divide_kind(self._folder, kind, sealed.get(kind.name, frozenset()), kinds.choosing)
        self.questions = {part: parts[part][:number] for part in PARTS}  # type: ignore[index]
        free = [q for q in self._folder.queries if not q.gold and not is_sealed(q, kinds.kinds, sealed, self._folder)]
        of = {part: [q for q in in_lots(free) if (lot(q.id, "null") < 0.5) == (part == "training")] for part in PARTS}
        self.unsupported = {part: queries[: 2 * number] for part, queries in of.items()}
        self.whole: Ranked | None = None
        if kind.pool == "corpus":
            documents = self._folder.documents.values()
            self.whole = Ranked([one for text in documents for one in chunk_document(text, tokens(), ChunkConfig(128))])

    def offered(self, query: Query) -> list[Chunk]:
        """Return the chunks for a question, best first."""
        if self.whole is not None:
            return self.whole.best(query.question)
        [own] = with_documents(self._folder, [query]) if self._pool == "document" else [query]
        return Ranked([passage(self._folder.documents[name]) for name in own.candidates or ()]).best(query.question)

    def gold(self, query: Query) -> set[str | None]:
        """Return the passages with the evidence of a question."""
        return {passage_of(name, self._folder.documents) for name in query.gold}


def tasks(number: int) -> Iterator[dict[str, Any]]:
    """Yield questions with contexts that answer them and that do not; those of which that is not sure are left out."""
    by_name = {kind.name: kind for kind in read_kinds().kinds}
    corpora = [Corpus(by_name[name], number) for name in KINDS]
    for corpus in corpora:
        others = [one for one in corpora if one.whole is not None and one is not corpus]
        for part in PARTS:
            for place, query in enumerate(corpus.questions[part]):
                budget, gold, offered = BUDGETS[lot(query.id, "b3") < 1 / 3], corpus.gold(query), corpus.offered(query)
                held = [chunk for chunk in offered if _document(chunk) not in gold]
                chosen = _fill(offered, budget)
                known = bool(gold.intersection(map(_document, chosen))) or _holds(query, chosen) is not False
                contexts = {"answerable": chosen if known else [], "removed": _fill(held, budget)}
                if place % 2 == 0:
                    other = others[int(lot(query.id, "x") * len(others))]
                    contexts["crossed"] = _fill(other.offered(query), budget)
                for variant, chunks in contexts.items():
                    if chunks and (variant == "answerable" or not _holds(query, chunks)):
                        yield _task(corpus.name, part, query, variant, chunks)
            for query in corpus.unsupported[part]:
                yield _task(corpus.name, part, query, "null", _fill(corpus.offered(query), BUDGETS[0]))


def _task(kind: str, part: str, query: Query, variant: str, chunks: Sequence[Chunk]) -> dict[str, Any]:
    text = SEPARATOR.join(chunk.text for chunk in chunks)
    return {"kind": kind, "part": part, "id": query.id, "question": query.question, "variant": variant, "text": text}


def _document(chunk: Chunk) -> str:
    return str(chunk.metadata.get("document", chunk.id))


def _fill(chunks: Sequence[Chunk], budget: int) -> list[Chunk]:
    costs, chosen, left = tokens().count([chunk.text for chunk in chunks]).tolist(), [], budget
    for chunk, cost in zip(chunks, costs, strict=True):
        if cost <= left:
            chosen.append(chunk)
            left -= cost
        if left < LEAST_LEFT:
            break
    return chosen


def _holds(query: Query, chunks: Sequence[Chunk]) -> bool | None:
    """Return whether an answer stands in the chunks; None where none could."""
    answers = findable(query.answers)
    return any(places(one, chunk.text) for one in answers for chunk in chunks) if answers else None


def measure(path: Path, number: int) -> list[dict[str, Any]]:
    """Return the rows of a file, after those that it lacks were measured."""
    from corag.models.runtime import place
    from corag.models.trained import load_adapter, shipped_adapter

    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    done = {(row["kind"], row["id"], row["variant"]) for row in rows}
    missing = [row for row in tasks(number) if (row["kind"], row["id"], row["variant"]) not in done]
    adapter = load_adapter(shipped_adapter(NAME))
    settings_of(adapter)  # refuses what is no reader
    reader = span_reader(adapter, place("reader"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with progress("read") as report, path.open("a", encoding="utf-8") as file:
        for start in range(0, len(missing), 16):
            some = missing[start : start + 16]
            for row, reading in zip(some, reader.read(*_columns(some)), strict=True):
                row |= {"margin": reading.margin, "none": reading.kinds[1]}
                file.write(json.dumps(row) + "\n")
            file.flush()
            report(start + len(some), len(missing))
    return rows + missing


def _columns(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    return [row["question"] for row in rows], [row["text"] for row in rows]


def fit(rows: Sequence[dict[str, Any]]) -> Answerable:
    """Return the model of the rows for training, in which both kinds of questions weigh the same."""
    from sklearn.linear_model import LogisticRegression

    learned = [row for row in rows if row["part"] == "training"]
    names = [one.name for one in fields(Signals)]
    x = np.array([[getattr(_signals(row), name) for name in names] for row in learned])
    y = np.array([row["variant"] == "answerable" for row in learned])
    mean, spread = x.mean(axis=0), x.std(axis=0)
    # A signal that is the same everywhere tells nothing.
    spread[spread == 0] = 1
    found = LogisticRegression(C=10, class_weight="balanced").fit((x - mean) / spread, y)
    weights = found.coef_[0] / spread
    rounded = dict(zip(names, np.round(weights, 4).tolist(), strict=True))
    offset = round(float(found.intercept_[0] - weights @ mean), 4)
    loose = Answerable(**rounded, offset=offset, threshold=0.0)
    kept = [loose.probability(_signals(row)) for row, answerable in zip(learned, y, strict=True) if answerable]
    return Answerable(**rounded, offset=offset, threshold=round(float(np.quantile(kept, LOST)), 3))


def _signals(row: dict[str, Any]) -> Signals:
    return signals(row["question"], row["text"], row["margin"], row["none"])


def main(path: str, number: str = "20") -> None:
    """Measure, fit, and print the model and what it refuses."""
    rows = measure(Path(path), int(number))
    model = fit(rows)
    say(json.dumps(asdict(model), indent=2))
    for part in PARTS:
        for variant in ("answerable", "null", "crossed", "removed"):
            some = [row for row in rows if (row["part"], row["variant"]) == (part, variant)]
            refused = sum(model.probability(_signals(row)) < model.threshold for row in some)
            say(f"{part}, {variant}: {refused} of {len(some)} refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
