"""`unit=auto`: passages or sentences, decided for each question by what it asks, its passages and the budget."""

from __future__ import annotations

import re

from corag.selectors.problem import SelectionProblem
from corag.text.units import PASSAGE, SENTENCE, Unit, units

BEST = 5
"""So many of the best-ranked passages are looked at."""
ENOUGH = 3
"""Where fewer of these fit the budget together, an explanation is put together from sentences, too."""

_AMOUNT = (
    r"many|much|long|old|far|deep|high|tall|big|large|wide|fast|often|heavy|hot|cold|small|young|late|early|close|near"
    r"|likely|common|frequently"
)
_HAS_TO_DO = "causes?|symptoms?|treatments?|effects?|differences?|steps?|signs?|reasons?|ways?|complications?|benefits?"
_EXPLANATION = re.compile(
    rf"""\b(?:why|explain|describe|discuss|summari[sz]e|outline|compare|define|definition|meaning\ of|tell\ me\ about)\b
    |\bhow\ (?!(?:{_AMOUNT})\b)\w
    |\bwhat\ (?:causes|happens|research|to)\b
    |\bwhat\ (?:is|are)\ (?:the\ )?(?:\w+\ ){{0,2}}(?:{_HAS_TO_DO})\b
    |^what\ (?:is|are|is\ \(are\))\ (?!the\b)(?:[\w'()-]+\ ?){{1,5}}\W*$""",
    re.IGNORECASE | re.VERBOSE,
)


def asks_to_explain(question: str) -> bool:
    """Return whether a question in English wants more than a few words: a reason, a way, a definition."""
    return _EXPLANATION.search(" ".join(question.split())) is not None


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
