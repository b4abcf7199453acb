"""Fits how likely a passage answers a question, the constants of `corag.readers.passages`: `train reader --calibrate`.

Beside them it writes how often the likeliest passages are right, by their probability, on each set with constants that
were fitted on the others. Nothing sealed is read.

The weights rank the passages of a question. The lines turn their log-odds into those that the likeliest one is right,
as it is shown; they are fitted on `judged.jsonl`: questions about manual pages, licences and READMEs, whose shown
answers were judged by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

import corag
from corag.models.cached import CachedEmbedder
from corag.models.runtime import in_runtime
from corag.readers.passages import signals, sources
from corag.text.chunking import chunk_document
from corag.text.data import DataFolder, Query, is_evidence
from corag.text.questions import asks_to_explain, stems
from corag.text.units import assemble
from corag.types import Chunk, FloatArray, Selection
from corag.writing import write_atomically
from experiments.adapters.config import ReaderTraining
from experiments.adapters.pools import nearest_by_words
from experiments.demo import write_data_folder
from experiments.protocol.held_out import not_to_learn

SETS = {"demo": (100, 0.0), "clapnq": (60, 0.6), "mtrag": (50, 0.4), "squad": (40, 1.0)}
"""Questions of each set, and the share of an answer's words that a passage with evidence must have to be right."""
NUM_PASSAGES = 8
JUDGED = Path(__file__).with_name("judged.jsonl")
CALIBRATION_FILE = "calibration.json"
BINS = ((0.85, 1.0), (0.6, 0.85), (0.35, 0.6), (0.15, 0.35), (0.0, 0.15))


class Seen(NamedTuple):
    """A question: what was observed of P passages, `[P, 5]`, and which of them are right, `[P]`."""

    data: str
    question: str
    values: FloatArray
    right: FloatArray


def seen(name: str, folder: DataFolder, number: int, share: float) -> Iterator[Seen]:
    """Yield what is observed of a set's questions, with candidates by BM25."""
    sealed = not_to_learn(folder)
    usable = [query for query in folder.queries if query.gold and query.answers and query.id not in sealed]
    usable = [query for query in usable if name != "squad" or query.split == "dev"]
    drawn = [usable[index] for index in np.random.default_rng(0).permutation(len(usable))[:number].tolist()]
    # The evidence of the first quarter is left out, so that nothing answers these.
    without = drawn[: len(drawn) // 4]
    left_out, kept = (
        {gold.partition("#")[0] for query in some for gold in query.gold} for some in (without, drawn[len(without) :])
    )
    left_out -= kept
    documents = [document for document in folder.documents.values() if document.id not in left_out][:1500]
    chunks = [chunk for document in documents for chunk in chunk_document(document, corag.tokens())]
    hits = nearest_by_words([chunk.text for chunk in chunks], [query.question for query in drawn], NUM_PASSAGES)
    reader, embedder = corag.reader("minilm-reader"), CachedEmbedder("minilm")
    for query, rows in zip(drawn, hits, strict=True):
        chosen = tuple(chunks[row] for row in rows)
        text, spans = assemble(chosen)
        selection = Selection(chosen, text, 0, 1024, 0.0, "bm25", spans=tuple(spans))
        observed = signals(query.question, reader.answer(query.question, text), selection, embedder)
        right = [is_right(query, passage, share) for passage in sources(selection)]
        yield Seen(name, query.question, observed.values, np.array(right, dtype=np.float64))


def is_right(query: Query, passage: Chunk, share: float) -> bool:
    """Return whether a passage has evidence and enough words of an answer."""
    held = set(stems(passage.text))
    words = [set(stems(answer)) for answer in query.answers]
    says = any(len(held & wanted) >= share * len(wanted) for wanted in words if wanted)
    return says and any(is_evidence(passage, gold) for gold in query.gold)


def fit(cases: Sequence[Seen]) -> tuple[FloatArray, float]:
    """Return the weights, `[5]`, and the offset of a logistic regression over all passages."""
    values, right = np.concatenate([case.values for case in cases]), np.concatenate([case.right for case in cases])
    spread = values.std(axis=0)
    model = LogisticRegression(C=0.3).fit(values / spread, right)
    return model.coef_[0] / spread, float(model.intercept_[0])


def judged() -> list[Seen]:
    """Return the questions whose likeliest passage was judged by hand."""
    rows = [json.loads(line) for line in JUDGED.read_text(encoding="utf-8").splitlines()]
    return [Seen(row["data"], row["question"], np.array([row["values"]]), np.array([row["right"]])) for row in rows]


def likeliest(cases: Sequence[Seen], weights: FloatArray, offset: float) -> FloatArray:
    """Return the log-odds of each question's likeliest passage, whether it wants explaining, and is right, `[n, 3]`."""
    rows = []
    for case in cases:
        log_odds = case.values @ weights + offset
        best = int(log_odds.argmax())
        rows.append((log_odds[best], asks_to_explain(case.question), case.right[best]))
    return np.array(rows, dtype=np.float64)


def lines(best: FloatArray) -> FloatArray:
    """Return slope and offset to the log-odds that the likeliest passage is right: `[2, 2]`, explanations second."""
    log_odds, explains, right = best.T
    model = LogisticRegression(C=10).fit(np.stack([log_odds, explains, log_odds * explains], axis=1), right)
    (slope, more_offset, more_slope), offset = model.coef_[0], model.intercept_[0]
    return np.array([[slope, offset], [slope + more_slope, offset + more_offset]])


@in_runtime
def calibrate(config: ReaderTraining) -> Path:
    """Write the constants of the reader that ships and their reliability; return the file.

    Raises:
        DataError: A data folder is missing or damaged.
    """
    cases: list[Seen] = []
    with TemporaryDirectory() as scratch:
        write_data_folder(Path(scratch))
        for name, (number, share) in SETS.items():
            folder = DataFolder.open(scratch if name == "demo" else Path(config.data) / name)
            cases += seen(name, folder, number, share)
    by_hand = judged()
    checked: dict[str, list[FloatArray]] = {}
    for name in dict.fromkeys(case.data for case in [*cases, *by_hand]):
        weights, offset = fit([case for case in cases if case.data != name])
        line = lines(likeliest([case for case in by_hand if case.data != name], weights, offset))
        best = likeliest([case for case in [*cases, *by_hand] if case.data == name], weights, offset)
        slope, offset_of_line = line[best[:, 1].astype(int)].T
        probability = 1 / (1 + np.exp(-(slope * best[:, 0] + offset_of_line)))
        checked.setdefault("sets" if name in SETS else "by hand", []).append(
            np.stack([probability, best[:, 2]], axis=1)
        )
    weights, offset = fit(cases)
    reliability: dict[str, dict[str, Any]] = {}
    for kind, arrays in checked.items():
        probability, right = np.concatenate(arrays).T
        for low, high in BINS:
            inside = right[(probability >= low) & (probability < high)]
            shares = {"questions": len(inside), "right": round(float(inside.mean()), 3) if len(inside) else None}
            reliability.setdefault(kind, {})[f"{low} to {high}"] = shares
    result = {
        "weights": weights.round(3).tolist(),
        "offset": round(offset, 3),
        "lines": lines(likeliest(by_hand, weights, offset)).round(2).tolist(),
        "reliability on the set left out": reliability,
    }
    path = Path(config.out) / CALIBRATION_FILE
    write_atomically(path, json.dumps(result, indent=2) + "\n")
    return path
