"""Token ids of (question, text) pairs, put together from parts that are tokenised once.

The ids are those that the tokenizer itself would give for the pair, special tokens and token types included, with
the text cut at its end to fit the window.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from corag.errors import InputError, ModelError
from corag.models.engine.engine import Int64
from corag.text.tokens import encode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Pre-tokenizers that split at white space and drop it, and steps after them that look at one word at a time.
_SPLITTERS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}
_WORDWISE = _SPLITTERS | {"Digits", "Punctuation"}
# Normalizers that change characters without regard to what stands beyond white space.
_LOCAL = {
    "BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Strip", "StripAccents",
}  # fmt: skip
_SQUEEZE_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


@dataclass(frozen=True, slots=True)
class PairTemplate:
    """The part of a pair that all texts share.

    Attributes:
        head: Ids of everything before the text, `[H]`.
        tail: Ids of everything after it, `[T]`.
        types: Token types of head, text and tail: an array, one number, an array.
        room: The most tokens of a text that fit the window.
    """

    head: Int64
    tail: Int64
    types: tuple[Int64, int, Int64]
    room: int

    def pairs(self, texts: Sequence[Int64]) -> tuple[list[Int64], list[Int64]]:
        """Return ids and token types of the pair with each text, the texts cut to `room`."""
        kept = [text[: self.room] for text in texts]
        before, inside, after = self.types
        ids = [np.concatenate([self.head, text, self.tail]) for text in kept]
        types = [np.concatenate([before, np.full(len(text), inside), after]) for text in kept]
        return ids, types


class PairTokenizer:
    """A tokenizer with its template for pairs.

    Args:
        tokenizer: Truncation and padding stored in it are switched off.
        max_tokens: The window: the most tokens of a pair, special tokens included.

    Raises:
        ModelError: The tokenizer does not put a question before its text.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        probe = tokenizer.encode("a", "a")
        ids, types = np.array(probe.ids, dtype=np.int64), np.array(probe.type_ids)
        first, second = (np.flatnonzero([member == one for member in probe.sequence_ids]) for one in (0, 1))
        if not (len(first) and len(second) and first[0] < second[0]):
            raise ModelError(
                "the model's tokenizer does not make pairs of a question and a text; use a model that was "
                "trained as a reranker of pairs"
            )
        ends = [first[0], first[-1] + 1, second[0], second[-1] + 1]
        self._before, _, self._between, _, self._after = np.split(ids, ends)
        self._types = [part.astype(np.int64) for part in np.split(types, ends)]

    def tokenize(self, texts: Sequence[str]) -> list[Int64]:
        """Return the ids of each text, without special tokens and uncut.

        Raises:
            InputError: A text is not valid Unicode.
        """
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encode(self._tokenizer, texts)]

    def question(self, query: str) -> PairTemplate:
        """Return what all pairs with a question share.

        Raises:
            InputError: The question leaves no room for a text.
        """
        (ids,) = self.tokenize([query])
        head = np.concatenate([self._before, ids, self._between])
        room = self._max_tokens - len(head) - len(self._after)
        if room < 1:
            raise InputError(
                f"the question has {len(ids)} tokens, which leaves no room for a text in the reranker's window of "
                f"{self._max_tokens} tokens; shorten the question"
            )
        before, asked, between, text, after = self._types
        head_types = np.concatenate([before, np.full(len(ids), asked[0]), between])
        return PairTemplate(head, self._after, (head_types, int(text[0]), after), room)

    def joins(self, separator: str) -> bool:
        """Return whether the ids of texts, laid side by side, are those of the texts joined by `separator`.

        True only where it follows from the parts that the tokenizer is made of: it drops the separator as white
        space, and nothing in it looks across white space. So it is for WordPiece as in BERT and for Unigram as in
        XLM-RoBERTa; others (byte-level BPE, Metaspace alone) may well make a token of the separator.
        """
        parts = json.loads(self._tokenizer.to_str())
        splitting = _steps(parts["pre_tokenizer"], "pretokenizers")
        normalizing = _steps(parts["normalizer"], "normalizers")
        return (
            separator.isspace()
            and any(step["type"] in _SPLITTERS for step in splitting[:1])
            and all(step["type"] in _WORDWISE or _is_even_metaspace(step) for step in splitting)
            and all(step["type"] in _LOCAL or step == _SQUEEZE_SPACES for step in normalizing)
            and not any(letter.isspace() for token in parts["added_tokens"] for letter in token["content"])
        )


def _steps(part: dict[str, Any] | None, members: str) -> list[dict[str, Any]]:
    """Return a tokenizer's part as the list of its steps."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for member in part[members] for step in _steps(member, members)]
    return [part]


def _is_even_metaspace(step: dict[str, Any]) -> bool:
    """Return whether a step marks every word alike, wherever in the text it stands."""
    return step["type"] == "Metaspace" and step["prepend_scheme"] in ("always", "never")
