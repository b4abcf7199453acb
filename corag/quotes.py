"""What an answer quotes, ready to be shown: its sentences, with the answer marked in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from corag.types import Answer

Span = tuple[int, int]

CERTAINTIES = ((0.8, "very likely"), (0.5, "likely"), (0.25, "possibly"), (0.0, "a guess"))
"""What a confidence is called from which value on."""

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence that an answer rests on.

    Attributes:
        text: The sentence, on one line.
        marked: Where the answer stands in it; None where the sentence itself is the answer.
        place: Where it begins in the context.
    """

    text: str
    marked: Span | None
    place: int

    @property
    def pieces(self) -> tuple[str, str, str]:
        """The sentence before the answer, the answer, and the rest."""
        start, end = self.marked or (0, 0)
        return self.text[:start], self.text[start:end], self.text[end:]


def quotes(answer: Answer, context: str) -> list[Quote]:
    """Return the sentences that an answer rests on, in the order of the context.

    The answer is marked in a single sentence; several are an explanation, which is the answer itself.
    """
    found = []
    for start, end in answer.sentence_spans:
        alone = answer.spans if len(answer.sentence_spans) == 1 else ()
        inside = [span for span in alone if start <= span[0] and span[1] <= end and span != (start, end)]
        cuts = inside[0] if inside else (start, start)
        before, said, after = (
            _SPACE.sub(" ", context[slice(*cut)]) for cut in ((start, cuts[0]), cuts, (cuts[1], end))
        )
        marked = (len(before), len(before) + len(said)) if inside else None
        found.append(Quote(before + said + after, marked, start))
    return found


def certainty(confidence: float | None) -> str | None:
    """Return a confidence in words; see `CERTAINTIES`."""
    return None if confidence is None else next(name for least, name in CERTAINTIES if confidence >= least)
