"""The messages of a chat, made shorter: long tool results and retrieved texts are selected by the last question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from corag.candidates import select, with_missing_cosines
from corag.checks import check_budget
from corag.errors import InputError
from corag.models.chat import MESSAGE_TOKENS
from corag.naming import Spelling
from corag.registry import tokens as make_tokens
from corag.selectors.problem import shared_words
from corag.text.chunking import chunk_document
from corag.text.documents import Document
from corag.text.questions import understood
from corag.text.tokens import token_counts
from corag.text.units import Span, assemble
from corag.text.visible import to_json
from corag.types import Candidate, Chunk, Selection, Selector, TokenCounter

LONG = 128
"""Texts of more tokens than this are selected from."""
MOST_CANDIDATES = 50
LEFT_OUT = "[left out]"
"""What stays of a text of which nothing is chosen: servers refuse empty tool results."""

_MEDIA = ("image_url", "input_audio", "file")
_NAMES = r"(?:context|documents?|sources?|passages?|search[ _]results?|excerpts?)"
_TAGGED = re.compile(rf"<({_NAMES})\b[^>]*>\s*(?P<text>.*?)\s*</\1>", re.DOTALL | re.IGNORECASE)
# "Context:", or, if the question follows, "Use the following pieces of context to answer the question at the end.".
_HEAD = re.compile(
    rf"^[#* \t]*(?:(?:here are|the|given|relevant|retrieved|following) )*{_NAMES}(?: information)?[* \t]*:\**\s*",
    re.MULTILINE | re.IGNORECASE,
)
_LOOSE_HEAD = re.compile(rf"^[^\n]*\b{_NAMES}\b[^\n]*\n\s*(?:-{{3,}}\n)?", re.MULTILINE | re.IGNORECASE)
_ASKED = re.compile(r"^[#* \t]*(?:user )?(?:question|query)[* \t]*:\**[ \t]*", re.MULTILINE | re.IGNORECASE)
_END = re.compile(r"\s*(?:^-{3,}[ \t]*$|\Z)", re.MULTILINE)
_ANSWER = re.compile(r"\n\s*(?:helpful )?answer[ \t]*:?\s*\Z", re.IGNORECASE)


class _Text(NamedTuple):
    """A part of the text of a message that was looked up: in its content, or in the `part` of its content."""

    message: int
    part: int | None
    span: Span


def compress(
    messages: Sequence[Any],
    budget_tokens: int,
    *,
    method: Spelling | Selector = "corag",
    tokenizer: Spelling | TokenCounter = "minilm",
    **settings: Any,
) -> list[Any]:
    """Return the messages of a chat with at most `budget_tokens` tokens.

    What the last question needs is selected from all long texts that were looked up, together: results of tools; and of
    other messages what is between tags such as `<context>`, or between a line such as `Context:` and the line
    `Question:`. All else stays as it is: roles, ids, calls of tools, instructions, what people and the assistant wrote.

    Args:
        messages: As for OpenAI's chat completions: mappings, or objects of its client, with a `role` and a `content`
            that is a text or a list of parts.
        budget_tokens: The most tokens of all messages: their texts and calls of tools, and 8 for each message. Images,
            audio and files are not counted.
        method: The selector: name or object.
        tokenizer: Counts tokens as the answering model does: name or object.
        settings: Settings of a selector given by name; see `corag.select`.

    Raises:
        InputError: These are no messages, none of a user asks, or what stays as it is exceeds the budget.
    """
    check_budget(budget_tokens)
    counter = make_tokens(tokenizer)
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InputError(
            f"messages is of type {type(messages).__name__}; give a list of messages with role and content"
        )
    given = [_as_mapping(message, f"messages[{number}]") for number, message in enumerate(messages)]
    found = list(_looked_up(given))
    counts = token_counts(counter, [_content(given, text) for text in found]) if found else ()
    texts = [text for text, count in zip(found, counts, strict=True) if count > LONG]
    shortest = _replaced(given, dict.fromkeys(texts, LEFT_OUT))
    least = _tokens(shortest, counter)
    if least > budget_tokens:
        raise InputError(
            f"budget_tokens is {budget_tokens}, but the messages have {least} tokens without the long texts that were "
            "looked up; give more, or drop old messages"
        )
    if not texts:
        return list(messages)
    query = _question(given, found)
    documents = [Document(f"text {number}", _content(given, text)) for number, text in enumerate(texts)]
    chunks = [chunk for document in documents for chunk in chunk_document(document, counter)]
    candidates, made, capacity = _ranked(query, chunks), shortest, budget_tokens - least
    if isinstance(method, str):
        settings = {"tokenizer": tokenizer, **settings}
    while capacity > 0:
        selection = select(query, candidates, capacity, method=method, **settings)
        chosen = [_chosen(selection, document.id) or LEFT_OUT for document in documents]
        shorter = _replaced(given, dict(zip(texts, chosen, strict=True)))
        excess = _tokens(shorter, counter) - budget_tokens
        if excess <= 0:
            made = shorter
            break
        capacity = min(capacity, selection.cost_tokens) - excess
    return [old if new == before else new for old, before, new in zip(messages, given, made, strict=True)]


def _as_mapping(message: Any, name: str) -> dict[str, Any]:
    fields = message.model_dump(exclude_none=True) if hasattr(message, "model_dump") else message
    content = fields.get("content") if isinstance(fields, Mapping) else None
    if not isinstance(fields, Mapping) or "role" not in fields or not isinstance(content, str | list | tuple | None):
        raise InputError(f"{name} is {message!r:.80}; give a mapping with a role, and a content of text or parts")
    return dict(fields)


def _looked_up(messages: Sequence[Mapping[str, Any]]) -> Iterator[_Text]:
    """Yield the tool results and retrieved texts of messages."""
    for number, message in enumerate(messages):
        for part, text in _texts(message):
            if message["role"] in ("tool", "function"):
                yield _Text(number, part, (0, len(text)))
            elif message["role"] != "assistant":
                yield from (_Text(number, part, span) for span in _retrieved(text))


def _retrieved(text: str) -> list[Span]:
    """Return the spans of a text that say they were retrieved."""
    if spans := [match.span("text") for match in _TAGGED.finditer(text)]:
        return spans
    asked = max((match.start() for match in _ASKED.finditer(text)), default=None)
    head = _HEAD.search(text, 0, len(text) if asked is None else asked)
    if head is None and asked is not None:
        head = _LOOSE_HEAD.search(text, 0, asked)
    if head is None:
        return []
    end = _END.search(text, head.end(), len(text) if asked is None else asked)
    return [] if end is None else [(head.end(), end.start())]


def _question(messages: Sequence[Mapping[str, Any]], found: Sequence[_Text]) -> str:
    """Return the last question, which may refer back to those before it."""
    empty = _replaced(messages, dict.fromkeys(found, ""))
    said = ["\n".join(text for _, text in _texts(message)) for message in empty if message["role"] == "user"]
    asked = [_ANSWER.sub("", _ASKED.split(text)[-1]).strip() for text in said]
    asked = [question for question in asked if question]
    if not asked:
        raise InputError("no message of role user has a question; add one")
    return understood(asked[-1], asked[:-1])


def _ranked(query: str, chunks: Sequence[Chunk]) -> list[Candidate]:
    """Return the chunks that are most similar to a question by meaning and words, best first."""
    compared = with_missing_cosines(query, [Candidate(chunk) for chunk in chunks], 0)
    scores = shared_words(query, [one.chunk.text for one in compared])
    scores = scores + np.array([one.similarity or 0.0 for one in compared])
    best = np.argsort(-scores, kind="stable")[:MOST_CANDIDATES].tolist()
    return [replace(compared[row], rank=rank) for rank, row in enumerate(best)]


def _chosen(selection: Selection, document: str) -> str:
    """Return what is chosen of a document, in its order."""
    chunks = [chunk for chunk in selection.chunks if chunk.metadata["document"] == document]
    return assemble(sorted(chunks, key=lambda chunk: int(chunk.metadata["start"])))[0]


def _texts(message: Mapping[str, Any]) -> list[tuple[int | None, str]]:
    """Return the texts of a message, with the number of the part of its content."""
    content = message.get("content")
    if isinstance(content, str):
        return [(None, content)]
    parts = ((number, part.get("text")) for number, part in enumerate(content or ()) if isinstance(part, Mapping))
    return [(number, text) for number, text in parts if isinstance(text, str)]


def _content(messages: Sequence[Mapping[str, Any]], text: _Text) -> str:
    return dict(_texts(messages[text.message]))[text.part][slice(*text.span)]


def _replaced(messages: Sequence[Mapping[str, Any]], new: Mapping[_Text, str]) -> list[dict[str, Any]]:
    """Return messages with other texts in place of some."""
    made = [dict(message) for message in messages]
    for text, other in sorted(new.items(), key=lambda item: item[0].span, reverse=True):  # offsets before stay valid
        message = made[text.message]
        whole = dict(_texts(message))[text.part]
        whole = whole[: text.span[0]] + other + whole[text.span[1] :]
        if text.part is None:
            message["content"] = whole
        else:
            parts = list(message["content"])
            parts[text.part] = {**parts[text.part], "text": whole}
            message["content"] = parts
    return made


def _tokens(messages: Sequence[Mapping[str, Any]], counter: TokenCounter) -> int:
    counted = [text for message in messages for _, text in _texts(message)]
    others: list[Any] = [{key: one[key] for key in one if key not in ("role", "content")} for one in messages]
    parts = (part for one in messages for part in one.get("content") or () if isinstance(part, Mapping))
    others += [part for part in parts if "text" not in part and part.get("type") not in _MEDIA]
    counted += [to_json(other, default=str) for other in others if other]
    return int(token_counts(counter, counted).sum()) + MESSAGE_TOKENS * len(messages) if counted else 0
