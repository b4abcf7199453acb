"""`unit=auto`: passages or sentences, decided for each question by what it asks, its passages and the budget."""

from __future__ import annotations

from corag.readers.minilm_reader import asks_to_explain
from corag.selectors.problem import SelectionProblem
from corag.text.units import PASSAGE, SENTENCE, Unit, units

BEST = 5
"""So many of the best-ranked passages are looked at."""
ENOUGH = 3
"""Where fewer of these fit the budget together, an explanation is put together from sentences, too."""


def decided(problem: SelectionProblem) -> tuple[Unit, str]:
    """Return the unit for a question over passages, and why.

    Sentences, which buy the same facts for fewer tokens, but for two cases: the passages are single sentences; or the
    question wants an explanation, which runs over several sentences, and the budget has room for passages. Chosen on
    training questions; see experiments/LOG.md.
    """
    best = problem.ranking[:BEST]
    if not best:
        return PASSAGE, "there are no candidates"
    if all(len(units(problem.chunks[index], SENTENCE)) == 1 for index in best):
        return PASSAGE, "the best-ranked passages are single sentences"
    if not asks_to_explain(problem.query):
        return SENTENCE, "the question asks for a fact"
    room, fitting = problem.capacity, 0
    for index in best:
        if problem.costs[index] <= room:
            room, fitting = room - int(problem.costs[index]), fitting + 1
    if fitting < min(ENOUGH, len(best)):
        return SENTENCE, f"of the best-ranked passages {fitting} fit the budget"
    return PASSAGE, "the question asks for an explanation"
