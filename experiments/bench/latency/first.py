"""The first selection in a warm process: models are loaded, and nothing is known of the question or its candidates.

Then the same with the token states of the candidates in a file, as `corag index --states` stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from corag.index import ChunkIndex
from corag.memory import forget
from corag.models.minilm import DIMENSION, MiniLMEncoder
from corag.models.states import STATES, StoredStates
from corag.models.vectors import vectors_by
from corag.progress import counted
from corag.registry import SELECTORS, embedder
from corag.types import Candidate, Chunk

NUM_CANDIDATES = 20
NUM_TOKENS = 128
"""MiniLM's tokens of each candidate."""
ENCODER = "the encoder alone"
STORED = ", states stored"

Asked = tuple[str, list[Candidate]]


def equal_pools(index: ChunkIndex, questions: Sequence[str], encoder: MiniLMEncoder) -> list[Asked]:
    """Return questions with what an index offers, each text cut, or lengthened by those after it, to `NUM_TOKENS`."""
    asker = embedder(index.embedder_name)
    asked = []
    for question in questions:
        offered = index.retrieve(question, vectors_by(asker, [question])[0], NUM_CANDIDATES)
        texts = [candidate.chunk.text for candidate in offered]
        longer = [" ".join([*texts[place:], *texts[:place]]) for place in range(len(texts))]
        starts = encoder.tokenize(longer, offsets=True).starts
        ends = [int(of_text[NUM_TOKENS]) if len(of_text) > NUM_TOKENS else None for of_text in starts]
        chunks = [Chunk(one.chunk.id, text[:end]) for one, text, end in zip(offered, longer, ends, strict=True)]
        asked.append((question, [replace(one, chunk=chunk) for one, chunk in zip(offered, chunks, strict=True)]))
    return asked


def first_selections(
    now: Callable[[], float], asked: Sequence[Asked], methods: Sequence[str], budget: int, encoder: MiniLMEncoder
) -> dict[str, list[float]]:
    """Return the seconds of each selector, without and with stored states, and of the encoder alone, for each question.

    They take turns.
    """
    selectors = {method: SELECTORS.make(method) for method in methods}
    names = [f"{method}{states}" for method in selectors for states in ("", STORED)]
    seconds: dict[str, list[float]] = {name: [] for name in (*names, ENCODER)}
    with TemporaryDirectory() as folder:
        stored = StoredStates(Path(folder) / "states.sqlite", "encoder", DIMENSION)
        # The first question loads and compiles, and does not count.
        for number, (question, candidates) in enumerate(counted("first selections", [*asked[:1], *asked])):
            ids = encoder.tokenize([candidate.chunk.text for candidate in candidates]).ids
            begun = now()
            states = encoder.states(ids)
            seconds[ENCODER] += [now() - begun] if number else []
            stored.put(ids, states)
            for name in names:
                selector = selectors[name.removesuffix(STORED)]
                forget()
                with STATES.set(stored if name.endswith(STORED) else None):
                    begun = now()
                    selector.select(question, candidates, budget)
                    seconds[name] += [now() - begun] if number else []
    return seconds
