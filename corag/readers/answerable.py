"""Does a context answer a question at all? A logistic model over what a span network and the words of both say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from corag.errors import ModelError

FILE = "answerable.json"
"""Its place in the folder of an adapter."""
SMALL = 1e-4
"""What is added to probabilities before their odds are taken."""
LEAST_MARGIN = -30.0
_STEM = 5
_WORD = re.compile(r"\w+")
_NAME = re.compile(r"(?<!^)\b[A-Z0-9][\w'-]+")
_COMMON = frozenset(
    {"a", "about", "after", "an", "and", "are", "as", "at", "be", "been", "before", "between", "by", "can",
     "could", "did", "do", "does", "during", "for", "from", "had", "has", "have", "he", "how", "if", "in",
     "into", "is", "it", "its", "may", "might", "not", "of", "on", "or", "over", "s", "she", "should", "so",
     "such", "than", "that", "the", "their", "then", "there", "these", "they", "this", "those", "to", "under",
     "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will",
     "with", "would", "you"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Signals:
    """What is known of a question and a context.

    Attributes:
        margin: Logits of the best span less those of "no answer".
        none: Log-odds of "no answer" in the window that most likely answers.
        missing: Share of the question's words that the context lacks; common words and endings do not count.
        missing_names: The same of words with a capital letter, and of numbers, behind the first word.
    """

    margin: float
    none: float
    missing: float
    missing_names: float


def signals(query: str, context: str, margin: float, none: float) -> Signals:
    """Return what is known, given the network's margin and probability of "no answer"."""
    there = {_stem(word) for word in _WORD.findall(context.casefold())}
    asked = {_stem(word) for word in _WORD.findall(query.casefold()) if word not in _COMMON}
    names = [_stem(name.casefold()) for name in _NAME.findall(query)]
    return Signals(
        max(margin, LEAST_MARGIN),
        math.log((none + SMALL) / (1 - none + SMALL)),
        _share_missing(sorted(asked), there),
        _share_missing(names, there),
    )


@dataclass(frozen=True, slots=True)
class Answerable:
    """Weights of the signals, and from which probability on a context is held to answer a question.

    Attributes:
        margin: Weight of the signal of this name, as for the next three.
        none: See `Signals`.
        missing: See `Signals`.
        missing_names: See `Signals`.
        offset: Log-odds where all signals are 0.
        threshold: Least probability.
    """

    margin: float
    none: float
    missing: float
    missing_names: float
    offset: float
    threshold: float

    @classmethod
    def beside(cls, adapter: Path) -> Self | None:
        """Read the model in the folder of an adapter; None where there is none.

        Raises:
            ModelError: The file is damaged.
        """
        path = adapter / FILE
        if not path.is_file():
            return None
        names = {one.name for one in fields(cls)}
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            read = cls(**{name: float(values[name]) for name in names})
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path} holds no {sorted(names)} ({error!r}); copy the folder again") from error
        if not all(math.isfinite(getattr(read, name)) for name in names):
            raise ModelError(f"{path} holds a number that is not finite; copy the folder again")
        return read

    def probability(self, found: Signals) -> float:
        """Return the probability that the context answers the question."""
        weighted = math.fsum(getattr(self, one.name) * getattr(found, one.name) for one in fields(Signals))
        return 0.5 + 0.5 * math.tanh(0.5 * (weighted + self.offset))


def _stem(word: str) -> str:
    return word[:_STEM]


def _share_missing(words: list[str], there: set[str]) -> float:
    return sum(word not in there for word in words) / len(words) if words else 0.0
