"""Questions whose candidates are sentences: which sets of them may be the evidence.

Where the data names the supporting sentences, these are the evidence. Where it names passages alone, one sentence of
each is, and nobody knows which: every such set that holds the answer may be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from corag.registry import tokens as make_tokens
from corag.selectors.problem import selection_problem
from corag.text.data import DataFolder, Query
from corag.text.support import supporting_spans
from corag.text.units import Unit, UnitChunk
from corag.types import Candidate, Chunk
from experiments.adapters.evidence.pools import Pooled

MAX_SETS = 300
"""Sets that may be the evidence of one question; of more, those of the most promising sentences."""


def cut(pooled: Pooled, query: Query, folder: DataFolder, unit: Unit) -> Pooled | None:
    """Return the question with the units of its candidates; None where its evidence is not among these."""
    candidates = list(map(Candidate, pooled.chunks, pooled.similarities))
    problem = selection_problem(pooled.question, candidates, make_tokens(), 1, unit)
    chunks = tuple(problem.chunks)
    golds = _golds(query, folder, chunks) if pooled.gold else ()
    if pooled.gold and not golds:
        return None
    similarities = tuple(float(value) for value in problem.relevance)
    gold = golds[0] if golds else ()
    return Pooled(pooled.id, pooled.question, chunks, gold, similarities, (), golds, pooled)


def _golds(query: Query, folder: DataFolder, chunks: Sequence[Chunk]) -> tuple[tuple[int, ...], ...]:
    """Return the sets of chunks each of which may be the evidence, the indices of each ascending."""
    known = supporting_spans(query, folder.documents)
    holding = [frozenset(row for row, chunk in enumerate(chunks) if span.is_held_by(chunk)) for span in known]
    if known and known[0].known == "fact":
        return (tuple(sorted(frozenset().union(*holding))),) if all(holding) else ()
    telling = frozenset().union(*holding)
    # Units stand best first; those that hold an answer are kept, whatever their place.
    most = int(MAX_SETS ** (1 / len(query.gold)))
    by_passage = []
    for name in query.gold:
        rows = [row for row, chunk in enumerate(chunks) if _document(chunk) == name]
        if len(query.gold) == 1 and telling:
            rows = [row for row in rows if row in telling]
        by_passage.append(sorted(rows, key=lambda row: row not in telling)[:most])
    sets = {tuple(sorted(rows)) for rows in product(*by_passage) if not telling or telling.intersection(rows)}
    return tuple(sorted(sets))


def _document(chunk: Chunk) -> str:
    return chunk.document if isinstance(chunk, UnitChunk) else chunk.id
