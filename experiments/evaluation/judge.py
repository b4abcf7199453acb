"""A language model as the judge of answers and contexts.

`mention` has the three steps of Adaptive-k (section 4.4: LLM-as-a-judge). Those without references are the measures of
evaluation frameworks that CAR reports (table 3): shares that follow from a structured reply, not from a number in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import corag
from corag.errors import InputError
from corag.models.chat import Chat, ChatError
from corag.models.prompts import Messages, prompt
from corag.readers.chat import ChatReader, without_thoughts
from corag.text.chunking import sentence_spans
from corag.text.documents import SEPARATOR
from experiments.data.config import comma_separated

GRADE, ALL = "grade", "all"
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to a question, read from a context; `references` are right answers."""

    question: str
    references: tuple[str, ...]
    context: str
    answer: str

    @property
    def texts(self) -> list[str]:
        """Texts of the context, which empty lines divide."""
        return [part.strip() for part in self.context.split(SEPARATOR) if part.strip()]

    @property
    def sentences(self) -> list[str]:
        """Sentences of the context."""
        spans = ((part, start, end) for part in self.texts for start, end in sentence_spans(part))
        return [text for part, start, end in spans if (text := part[start:end].strip())]


class Judgement(NamedTuple):
    """One figure that a judge is asked for.

    Attributes:
        key: Its name in rows, which is that of the prompt with dashes.
        fields: What the prompt shows of a `JudgedAnswer` beside the question.
        parse: The value, in [0, 1], that follows from a reply's JSON; None if it has none.
        needs: Fields that a value requires.
        zero: A field without which the value is 0.
    """

    key: str
    fields: tuple[str, ...]
    parse: Callable[[Mapping[str, Any], JudgedAnswer], float | None]
    needs: tuple[str, ...] = ()
    zero: str = ""

    def request(self, answer: JudgedAnswer) -> Messages | float | None:
        """Return what is asked about an answer; a value that is known without asking; or None, if there is none."""
        if not all(getattr(answer, name) for name in self.needs):
            return None
        if self.zero and not getattr(answer, self.zero):
            return 0.0
        fields = {name: _shown(getattr(answer, name), numbered=name != "references") for name in self.fields}
        fields["question"] = answer.question
        name = self.key.replace("_", "-")
        return prompt(name, "experiments/prompts", needs=sorted(fields)).messages(**fields)

    def read(self, reply: str, answer: JudgedAnswer) -> float | None:
        """Return the value in a reply: one JSON object, whatever is around it."""
        content = json_object(reply)
        return None if content is None else self.parse(content, answer)


def _shown(value: str | Sequence[str], *, numbered: bool) -> str:
    if isinstance(value, str):
        return value
    if not numbered:
        return "\n".join(value)
    return "\n".join(f"[{number}] {' '.join(text.split())}" for number, text in enumerate(value, start=1))


def json_object(reply: str) -> dict[str, Any] | None:
    """Return the one JSON object in a reply, whatever is around it; None if there is none, or more."""
    text = _OBJECT.search(without_thoughts(reply))
    try:
        content = json.loads(text[0]) if text else None
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _grade(content: Mapping[str, Any], _: JudgedAnswer) -> float | None:
    grade: Any = content.get("grade")
    return float(grade) if type(grade) in (int, float) and 0 <= grade <= 1 else None


def _mention(content: Mapping[str, Any], _: JudgedAnswer) -> float | None:
    return {"correct": 1.0, "partial": 0.5, "none": 0.0}.get(str(content.get("mention")))


def _share_of_items(items: str, flag: str, content: Mapping[str, Any], _: JudgedAnswer) -> float | None:
    listed = content.get(items)
    flags = [one.get(flag) if isinstance(one, dict) else None for one in listed] if isinstance(listed, list) else []
    return sum(map(bool, flags)) / len(flags) if flags and all(isinstance(one, bool) for one in flags) else None


def _share_of_numbers(field: str, of: str, content: Mapping[str, Any], answer: JudgedAnswer) -> float | None:
    listed, total = content.get(field), len(getattr(answer, of))
    if not isinstance(listed, list) or not all(type(one) is int and 1 <= one <= total for one in listed):
        return None
    return len(set(listed)) / total


_LIST = [
    Judgement("judge", ("answer", "references"), _grade, needs=("references",)),
    Judgement("mention", ("answer", "references"), _mention, needs=("references",)),
    Judgement("answer_relevancy", ("answer",), partial(_share_of_items, "statements", "relevant"), zero="answer"),
    Judgement(
        "contextual_relevancy", ("sentences",), partial(_share_of_numbers, "relevant", "sentences"), zero="sentences"
    ),
    Judgement(
        "faithfulness", ("context", "answer"), partial(_share_of_items, "claims", "supported"),
        needs=("answer",), zero="texts",
    ),
    Judgement(
        "hallucination", ("texts", "answer"), partial(_share_of_numbers, "contradicted", "texts"),
        needs=("answer", "texts"),
    ),
]  # fmt: skip
JUDGEMENTS = {GRADE if one.key == "judge" else one.key: one for one in _LIST}
"""What a judge can be asked, by name; docs/experiments.md says of what each is a share."""


def judgements(text: str) -> tuple[str, ...]:
    """Return names of `JUDGEMENTS`, separated by commas, or `all`; `InputError` for others."""
    names = tuple(dict.fromkeys(comma_separated(text))) if text != ALL else tuple(JUDGEMENTS)
    if not names or not set(names) <= set(JUDGEMENTS):
        raise InputError(f"judge_figures is {text!r}; name some of {', '.join(JUDGEMENTS)}, or {ALL}")
    return names


class Judge:
    """Judges with a model, greedy by default for repeatable values; names are those of `JUDGEMENTS`."""

    def __init__(self, chat: Chat, names: Sequence[str] = (GRADE,)) -> None:
        self._chat = chat
        self._asked = [JUDGEMENTS[name] for name in names]

    def rows(self, answers: Sequence[JudgedAnswer]) -> list[dict[str, Any]]:
        """Return what rows have of each answer; equal requests are made once.

        `judged` has all names; `judge_unusable` counts replies without a value, and `judge_error` quotes the first. A
        server that keeps failing is a `ChatError`.
        """
        asked = [[one.request(answer) for one in self._asked] for answer in answers]
        requests = {json.dumps(one): one for of_answer in asked for one in of_answer if isinstance(one, list)}
        with ThreadPoolExecutor(self._chat.max_concurrent) as pool:
            replies = dict(zip(requests, pool.map(self._reply, requests.values()), strict=True))
        rows: list[dict[str, Any]] = []
        for answer, of_answer in zip(answers, asked, strict=True):
            rows.append({"judged": [one.key for one in self._asked]})
            for one, value in zip(self._asked, of_answer, strict=True):
                if value is None:
                    continue
                rows[-1].setdefault("judge_unusable", 0)
                reply = replies[json.dumps(value)] if isinstance(value, list) else ""
                figure = one.read(reply, answer) if isinstance(value, list) else value
                if figure is None:
                    rows[-1]["judge_unusable"] += 1
                    rows[-1].setdefault("judge_error", f"the reply has no usable {one.key}: {reply!r:.200}")
                else:
                    rows[-1][one.key] = figure
        return rows

    def _reply(self, messages: Messages) -> str:
        try:
            return self._chat.ask(messages).text
        except ChatError as error:
            if error.can_retry:
                raise  # a later run may bring it
            return str(error)


def chat_of(role: str, name: str) -> Chat:
    """Return the language model of a reader by name; `role` names the setting in errors.

    Raises:
        InputError: There is no such reader, or it asks no language model.
        ChatError: Its server, or the model, is missing.
    """
    reader = corag.reader(name)
    if not isinstance(reader, ChatReader):
        raise InputError(
            f"{role}: expected a reader that asks a language model, got {name!r}; use openai(model=...) "
            "or ollama(model=...)"
        )
    reader.check()
    return reader
