"""Fits how likely a passage answers a question, the constants of `corag.readers.passages`: `train reader --calibrate`.

Run it again when what is chosen, the reader or the embedder changes, and copy the constants. Questions of several sets
are asked as `corag.ask` does, some of them of documents that do not answer them; to these come the questions of
`judged.jsonl`, about manual pages, licences and READMEs, whose shown answers were judged by hand. Beside the constants
it writes how often each headline is right on each set, with constants fitted on the others. Nothing sealed is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

import corag
from corag.cli.console import say
from corag.models.cached import CachedEncoder
from corag.models.minilm import minilm_encoder
from corag.readers.passages import signals, sources
from corag.shown import LEAST, label
from corag.text.chunking import chunk_document
from corag.text.data import DataFolder, Query, is_evidence
from corag.text.questions import stems
from corag.types import Chunk, FloatArray
from corag.writing import write_atomically
from experiments.adapters.config import ReaderTraining
from experiments.adapters.pools import nearest_by_words
from experiments.demo import write_data_folder
from experiments.protocol.held_out import not_to_learn

SETS = {
    "demo": 0.0, "lihua": 0.5, "mtrag": 0.4, "clapnq": 0.6, "api_docs": 0.3, "contract_nli": 0.0, "squad": 1.0
}  # fmt: skip
"""The share of an answer's words that a passage with evidence must have to be right, by set."""
NUM_ANSWERED, NUM_UNANSWERED, NUM_FOREIGN = 14, 7, 1
"""Questions of each set that it answers and does not answer, and of each other set that are asked of it."""
NUM_DOCUMENTS, NUM_CANDIDATES = 100, 10
JUDGED = Path(__file__).with_name("judged.jsonl")
CALIBRATION_FILE = "calibration.json"


class Seen(NamedTuple):
    """A question: what was observed of P passages, `[P, 5]`; which are right, `[P]`; whether any document answers."""

    data: str
    values: FloatArray
    right: FloatArray
    answerable: bool


def drawn(folder: DataFolder) -> tuple[list[Query], list[Query]]:
    """Return questions that a folder's documents answer, and questions that they do not."""
    sealed = not_to_learn(folder)
    usable = [query for query in folder.queries if query.id not in sealed]
    usable = [query for query in usable if folder.path.name != "squad" or query.split == "dev"]  # not the reader's own
    usable = [usable[index] for index in np.random.default_rng(0).permutation(len(usable)).tolist()]
    answered = [query for query in usable if query.gold and query.answers and query.extra.get("answerable", True)]
    unanswered = [query for query in usable if not query.gold or not query.extra.get("answerable", True)]
    return answered[:NUM_ANSWERED], unanswered[:NUM_UNANSWERED]


def seen(name: str, folder: DataFolder, foreign: Sequence[Query]) -> Iterator[Seen]:
    """Yield what is observed of a set's questions, and of those of others, with candidates by BM25."""
    answered, unanswered = drawn(folder)
    needed = {gold.partition("#")[0] for query in answered for gold in query.gold}
    needed |= {name for query in (*answered, *unanswered) for name in query.candidates or ()}
    documents = sorted(folder.documents.values(), key=lambda document: document.id not in needed)
    chunks = [
        chunk for one in documents[: len(needed) + NUM_DOCUMENTS] for chunk in chunk_document(one, corag.tokens())
    ]
    reader, encoder = corag.reader("minilm-reader"), CachedEncoder(minilm_encoder())
    selector = corag.selector("corag", tokenizer=corag.tokens())
    for query in (*answered, *unanswered, *foreign):
        own = set(query.candidates or ()).intersection(folder.documents)
        pool = [chunk for chunk in chunks if not own or chunk.metadata.get("document", chunk.id) in own]
        [rows] = nearest_by_words([chunk.text for chunk in pool], [query.question], NUM_CANDIDATES)
        candidates = [pool[row] for row in rows]
        reply = corag.ask(query.question, lambda *_, found=candidates: found, method=selector, reader=reader)
        if len(reply.read) != 1:
            continue  # nothing was chosen, or the question consists of several
        observed = signals(query.question, reply.read[0].answer, reply.selection, encoder)
        has_answer = query in answered
        right = [has_answer and is_right(query, chunk, SETS[name]) for chunk in sources(reply.selection)]
        yield Seen(name, observed.values, np.array(right, dtype=np.float64), has_answer)


def is_right(query: Query, passage: Chunk, share: float) -> bool:
    """Return whether a passage has evidence and enough words of an answer."""
    held = set(stems(passage.text))
    words = [set(stems(answer)) for answer in query.answers]
    says = share == 0 or any(len(held & wanted) >= share * len(wanted) for wanted in words if wanted)
    return says and any(is_evidence(passage, gold) for gold in query.gold)


def judged() -> list[Seen]:
    """Return the questions whose likeliest passage was judged by hand.

    Where it is `estimated`, what the best sentence covers is from its cosine: the document is no longer at hand.
    """
    rows = [json.loads(line) for line in JUDGED.read_text(encoding="utf-8").splitlines()]
    return [Seen(row["data"], np.array([row["values"]]), np.array([row["right"]]), row["answerable"]) for row in rows]


def fit(cases: Sequence[Seen]) -> tuple[FloatArray, float]:
    """Return the weights, `[5]`, and the offset of a logistic regression over all passages."""
    values, right = np.concatenate([case.values for case in cases]), np.concatenate([case.right for case in cases])
    spread = values.std(axis=0)
    model = LogisticRegression().fit(values / spread, right)
    return model.coef_[0] / spread, float(model.intercept_[0])


def headlines(cases: Sequence[Seen], weights: FloatArray, offset: float) -> Mapping[str, dict[str, int]]:
    """Return, by headline, how many questions have it, of how many the likeliest passage is right, and none answers."""
    counts = dict.fromkeys(("questions", "right", "without an answer"), 0)
    found = {name: dict(counts) for name in ("very likely", "likely", "closest", "not found")}
    for case in cases:
        log_odds = case.values @ weights + offset
        best = int(log_odds.argmax())
        probability = 1 / (1 + np.exp(-log_odds[best]))
        name = label(probability) or ("closest" if probability >= LEAST else "not found")
        for figure, one in zip(counts, (1, int(case.right[best]), int(not case.answerable)), strict=True):
            found[name][figure] += one
    return found


def calibrate(config: ReaderTraining) -> Path:
    """Write the constants of the reader that ships and their reliability; return the file.

    Raises:
        DataError: A data folder is missing or damaged.
    """
    cases = judged()
    with TemporaryDirectory() as scratch:
        write_data_folder(Path(scratch))
        folders = {name: DataFolder.open(scratch if name == "demo" else Path(config.data) / name) for name in SETS}
        for name, folder in folders.items():
            others = [query for other in SETS if other != name for query in drawn(folders[other])[0][:NUM_FOREIGN]]
            cases += seen(name, folder, others)
    reliability = {}
    for name in dict.fromkeys(case.data for case in cases):
        constants = fit([case for case in cases if case.data != name])
        reliability[name] = headlines([case for case in cases if case.data == name], *constants)
    weights, offset = fit(cases)
    result = {
        "weights": weights.round(3).tolist(),
        "offset": round(offset, 3),
        "headlines on the set left out": reliability,
    }
    path, text = Path(config.out) / CALIBRATION_FILE, json.dumps(result, indent=2) + "\n"
    write_atomically(path, text)
    say(f"{text}constants of corag.readers.passages in {path}")
    return path
