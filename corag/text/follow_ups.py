"""Questions that go on from earlier ones of a conversation, made understandable alone without a language model."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Words that stand for something said before, and beginnings that go on from there.
_REFERS = re.compile(
    r"\b(?:it|its|itself|they|them|their|theirs|he|him|his|she|her|hers|this|these|those|one|ones|former|latter|same"
    r"|else|others?|another)\b|^\W*(?:and|but|or|so|then|also|what about|how about|what if|why not)\b",
    re.IGNORECASE,
)
_FEW = 2
_WORD = re.compile(r"\w{3,}")
_ASKING = frozenset(
    {"and", "are", "can", "did", "does", "for", "from", "has", "have", "how", "many", "much", "not", "the",
     "was", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would",
     "you"}
)  # fmt: skip


def understood(question: str, earlier: Sequence[str]) -> str:
    """Return a question behind the last earlier one that can be understood alone, if it refers back; else as it is."""
    if not refers_back(question):
        return question
    alone = next((one for one in reversed(earlier) if not refers_back(one)), None)
    return question if alone is None else f"{alone.strip()} {question.strip()}"


def refers_back(question: str) -> bool:
    """Return whether a question in English cannot be understood without what was said before it.

    It has a word such as "it" or "those", goes on with "and" or "what about", or names too little by itself.
    """
    named = {word for word in _WORD.findall(question.casefold()) if word not in _ASKING}
    return len(named) < _FEW - (len(question.split()) > _FEW) or _REFERS.search(question) is not None
