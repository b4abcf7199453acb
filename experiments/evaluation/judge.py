"""A language model as the judge of answers and contexts.

`grade` is a share, `mention` the three steps of Adaptive-k (section 4.4: LLM-as-a-judge). The others are the measures
of evaluation frameworks that CAR reports (table 3), each a share that follows from a structured reply, not a number
that the model makes up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import corag
from corag.errors import InputError
from corag.models.chat.base import Chat, ChatError, Messages
from corag.models.chat.prompts import prompt
from corag.naming import Spelling
from corag.readers.chat import ChatReader
from corag.text.chunking import sentence_spans
from corag.text.documents import SEPARATOR

GRADE, ALL = "grade", "all"
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """What is judged: an answer to a question, read from a context.

    Attributes:
        question: The question.
        references: Right answers; may be empty.
        context: What the reader got.
        answer: The answer; empty if it found none.
    """

    question: str
    references: tuple[str, ...]
    context: str
    answer: str

    @property
    def parts(self) -> list[str]:
        """Texts of the context, which empty lines divide."""
        return [part.strip() for part in self.context.split(SEPARATOR) if part.strip()]

    @property
    def sentences(self) -> list[str]:
        """Sentences of the context."""
        return [text for part in self.parts for start, end in sentence_spans(part) if (text := part[start:end].strip())]


@dataclass(frozen=True)
class Judgement:
    """One figure that a judge is asked for.

    Attributes:
        name: Its name, which is that of the prompt with dashes.
        request: What the prompt is filled with for an answer; a value that is known without asking; or None, if this
            answer has no value.
        parse: The value, in [0, 1], that follows from a reply's JSON; None if it has none.
    """

    name: str
    request: Callable[[JudgedAnswer], dict[str, str] | float | None]
    parse: Callable[[dict[str, Any], JudgedAnswer], float | None]

    @property
    def key(self) -> str:
        """Its name in rows."""
        return "judge" if self.name == GRADE else self.name

    def messages(self, fields: Mapping[str, str]) -> Messages:
        """Return the prompt for an answer."""
        name = self.key.replace("_", "-")
        return prompt(name, "experiments/prompts", needs=sorted(fields)).messages(**fields)

    def read(self, reply: str, answer: JudgedAnswer) -> float | None:
        """Return the value in a reply: one JSON object, whatever is around it."""
        content = json_object(reply)
        return None if content is None else self.parse(content, answer)


def json_object(reply: str) -> dict[str, Any] | None:
    """Return the one JSON object in a reply, whatever is around it; None if there is none, or more."""
    text = _OBJECT.search(_THOUGHT.sub("", reply))
    try:
        content = json.loads(text[0]) if text else None
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"[{number}] {' '.join(text.split())}" for number, text in enumerate(texts, start=1))


def _grade(content: Mapping[str, Any], _: JudgedAnswer) -> float | None:
    grade = content.get("grade")
    is_number = isinstance(grade, int | float) and not isinstance(grade, bool)
    return float(grade) if is_number and 0 <= grade <= 1 else None  # type: ignore[arg-type, operator]


def _mention(content: Mapping[str, Any], _: JudgedAnswer) -> float | None:
    return {"correct": 1.0, "partial": 0.5, "none": 0.0}.get(str(content.get("mention")))


def _references(one: JudgedAnswer) -> dict[str, str] | None:
    listed = "\n".join(one.references)
    return {"question": one.question, "answer": one.answer, "references": listed} if one.references else None


def _share_of_items(items: str, flag: str) -> Callable[[dict[str, Any], JudgedAnswer], float | None]:
    def parse(content: Mapping[str, Any], _: JudgedAnswer) -> float | None:
        listed = content.get(items)
        flags = (
            [item.get(flag) if isinstance(item, dict) else None for item in listed] if isinstance(listed, list) else []
        )
        return sum(map(bool, flags)) / len(flags) if flags and all(isinstance(one, bool) for one in flags) else None

    return parse


def _share_of_numbers(field: str, texts: Callable[[JudgedAnswer], Sequence[str]]) -> Any:
    def parse(content: Mapping[str, Any], answer: JudgedAnswer) -> float | None:
        listed, total = content.get(field), len(texts(answer))
        if not isinstance(listed, list) or not all(type(one) is int and 1 <= one <= total for one in listed):
            return None
        return len(set(listed)) / total

    return parse


_LIST = (
    Judgement(GRADE, _references, _grade),
    Judgement("mention", _references, _mention),
    Judgement(
        "answer_relevancy",
        lambda one: {"question": one.question, "answer": one.answer} if one.answer else 0.0,
        _share_of_items("statements", "relevant"),
    ),
    Judgement(
        "contextual_relevancy",
        lambda one: {"question": one.question, "sentences": _numbered(one.sentences)} if one.sentences else 0.0,
        _share_of_numbers("relevant", lambda one: one.sentences),
    ),
    Judgement(
        "faithfulness",
        lambda one: (
            {"question": one.question, "context": one.context, "answer": one.answer}
            if one.answer and one.parts
            else 0.0
            if one.answer
            else None
        ),
        _share_of_items("claims", "supported"),
    ),
    Judgement(
        "hallucination",
        lambda one: (
            {"question": one.question, "texts": _numbered(one.parts), "answer": one.answer}
            if one.answer and one.parts
            else None
        ),
        _share_of_numbers("contradicted", lambda one: one.parts),
    ),
)
JUDGEMENTS = {one.name: one for one in _LIST}
"""What a judge can be asked, by name. With A the statements of the answer and C the sentences of the context:

- `grade`: how much of the reference answers is right; none without references.
- `mention`: 1, 0.5 or 0 for an answer that mentions the reference answers correctly, partly or not, as for HoloBench in
  Adaptive-k (section 4.4); none without references.
- `answer_relevancy`: share of A that is relevant to the question; 0 for an empty answer.
- `contextual_relevancy`: share of C that the answer needs; 0 for an empty context.
- `faithfulness`: share of A that the context supports; none for an empty answer, 0 for one out of an empty context.
- `hallucination`: share of the context's texts that the answer contradicts; none if one of both is empty.
"""


def judgements(text: str) -> tuple[str, ...]:
    """Return names of `JUDGEMENTS`, separated by commas, or `all`; `InputError` for others."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == (ALL,):
        return tuple(JUDGEMENTS)
    if not names or not set(names) <= set(JUDGEMENTS):
        raise InputError(f"judge_figures is {text!r}; name some of {', '.join(JUDGEMENTS)}, or {ALL}")
    return names


class Judge:
    """Judges with a model, greedy by default for repeatable values.

    Args:
        chat: The model.
        names: Names of `JUDGEMENTS`.
    """

    def __init__(self, chat: Chat, names: Sequence[str] = (GRADE,)) -> None:
        self._chat = chat
        self._asked = [JUDGEMENTS[name] for name in names]

    def rows(self, answers: Sequence[JudgedAnswer]) -> list[dict[str, Any]]:
        """Return what rows have of each answer; equal requests are made once.

        `judged` has all names; `judge_unusable` counts replies without a value, and `judge_error` quotes the first.

        Raises:
            ChatError: The server keeps failing.
        """
        requests: dict[str, Messages] = {}
        for one in self._asked:
            for answer in answers:
                if isinstance(fields := one.request(answer), dict):
                    requests[_key(one, fields)] = one.messages(fields)
        with ThreadPoolExecutor(self._chat.max_concurrent) as pool:
            replies = dict(zip(requests, pool.map(self._reply, requests.values()), strict=True))
        return [self._row(answer, replies) for answer in answers]

    def _row(self, answer: JudgedAnswer, replies: Mapping[str, str]) -> dict[str, Any]:
        row: dict[str, Any] = {"judged": [one.key for one in self._asked]}
        unusable: list[str] = []
        for one in self._asked:
            if (value := one.request(answer)) is None:
                continue
            row["judge_unusable"] = 0
            if isinstance(value, dict):
                reply = replies[_key(one, value)]
                value = one.read(reply, answer)
                unusable += [f"the reply has no usable {one.name}: {reply[:200]!r}"] if value is None else []
            if value is not None:
                row[one.key] = value
        return row | ({"judge_unusable": len(unusable), "judge_error": unusable[0]} if unusable else {})

    def _reply(self, messages: Messages) -> str:
        try:
            return self._chat.ask(messages).text
        except ChatError as error:
            if error.can_retry:
                raise  # a later run may bring it
            return str(error)


def _key(judgement: Judgement, fields: Mapping[str, str]) -> str:
    return json.dumps([judgement.name, fields])


def chat_of(role: str, name: Spelling) -> Chat:
    """Return the language model of a reader by name, such as `ollama(model=...)` or `openai(model=...)`.

    Raises:
        InputError: There is no such reader, or it asks no language model; `role` names the setting.
        ChatError: Its server, or the model, is missing.
    """
    reader = corag.reader(name)
    if not isinstance(reader, ChatReader):
        raise InputError(
            f"{role}: expected a reader that asks a language model, got {name!r}; use openai(model=...), "
            "ollama(model=...) or transformers(model=...)"
        )
    reader.check()
    return reader
