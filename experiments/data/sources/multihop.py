"""Questions whose evidence is spread over several paragraphs, each question with its own: HotpotQA, 2Wiki, MuSiQue."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from corag.text.documents import Document
from experiments.data.sources.source import Inputs, Question, Row, distinct, passage_id


def hotpotqa(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert HotpotQA, distractor setting: the original JSON, or the rows of the hub."""
    return (_from_paragraphs("hotpotqa", row) for row in inputs.rows(split))


def two_wiki(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert 2WikiMultihopQA, which has the fields of HotpotQA, on the hub as JSON texts."""
    return (_from_paragraphs("2wikimultihopqa", row) for row in inputs.rows(split))


def musique(inputs: Inputs, split: str) -> Iterator[Question]:
    """Convert MuSiQue-Ans."""
    for row in inputs.rows(split):
        passages, gold = [], []
        for paragraph in row["paragraphs"]:
            passage = _passage("musique", paragraph["title"], paragraph["paragraph_text"])
            passages.append(passage)
            gold += [passage.id] if paragraph["is_supporting"] else []
        yield Question(
            row["id"],
            row["question"],
            distinct(row["answer"], *row["answer_aliases"]),
            tuple(dict.fromkeys(gold)),
            _each_once(passages),
            pool=True,
            extra={
                "hops": row["id"].partition("hop")[0],
                "decomposition": [[step["question"], step["answer"]] for step in row["question_decomposition"]],
            },
        )


def _from_paragraphs(prefix: str, row: Row) -> Question:
    passages: list[Document] = []
    sentences_of: dict[str, tuple[Document, list[tuple[int, int]]]] = {}
    for title, sentences in _pairs(row["context"], "title", "sentences"):
        text, spans = _joined(sentences)
        passage = _passage(prefix, title, text)
        passages.append(passage)
        # Of two paragraphs with one title the first is meant, as in the official evaluation.
        sentences_of.setdefault(title, (passage, spans))
    facts: dict[str, list[int]] = {}
    spans_of_facts = []
    for title, sentence in _pairs(row["supporting_facts"], "title", "sent_id"):
        if title not in sentences_of:
            continue
        passage, spans = sentences_of[title]
        facts.setdefault(passage.id, []).append(sentence)
        # A few annotations name a sentence that the paragraph does not have.
        if 0 <= sentence < len(spans):
            spans_of_facts.append(f"{passage.id}#{spans[sentence][0]}-{spans[sentence][1]}")
    known = {name: row[name] for name in ("type", "level") if row.get(name) is not None}
    return Question(
        row.get("_id") or row["id"],
        row["question"],
        distinct(row["answer"]),
        tuple(facts),
        _each_once(passages),
        pool=True,
        extra={**known, "supporting_facts": [list(fact) for fact in facts.items()], "supporting_spans": spans_of_facts},
    )


def _pairs(value: Any, first: str, second: str) -> Iterator[tuple[Any, Any]]:
    """Yield pairs from a list of pairs, from two parallel lists by name, or from either as JSON text."""
    value = json.loads(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        return zip(value[first], value[second], strict=True)
    return ((pair[0], pair[1]) for pair in value)


def _joined(sentences: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Return a text and the span of each sentence in it; some sets begin sentences with the space between them."""
    gap = "" if any(sentence[:1].isspace() for sentence in sentences[1:]) else " "
    text, spans = "", []
    for sentence in sentences:
        text += gap if text else ""
        words = sentence if text else sentence.lstrip()
        spans.append((len(text) + len(words) - len(words.lstrip()), len(text) + len(words.rstrip())))
        text += words
    return text.rstrip(), spans


def _passage(prefix: str, title: str, text: str) -> Document:
    return Document(passage_id(prefix, title, text), text, title)


def _each_once(passages: Sequence[Document]) -> tuple[Document, ...]:
    return tuple({passage.id: passage for passage in passages}.values())
