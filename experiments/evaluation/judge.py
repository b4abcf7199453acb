"""A language model as the judge of answers, contexts and claims.

`mention` has the three steps of Adaptive-k (section 4.4: LLM-as-a-judge). `verdict` is on what EDC2-RAG verifies (5.2
and appendix B.1): a choice between a right and a hallucinated answer, or whether a statement is true. Those without
references are the measures of evaluation frameworks that CAR reports (table 3): shares that follow from a structured
reply, not from a number in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple
from zlib import crc32

import corag
from corag.errors import DataError, InputError
from corag.models.chat import Chat, ChatError, without_thoughts
from corag.models.prompts import Messages, prompt
from corag.readers.chat import ChatReader
from corag.readers.wrappers import SelfConsistentReader
from corag.text.chunking import sentence_spans
from corag.text.data import Query
from corag.text.documents import SEPARATOR
from experiments.data.config import comma_separated

GRADE, VERDICT, ALL = "grade", "verdict", "all"
TRUE, FALSE = "true", "false"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a model decides on: of two answers, or for a statement of true and false, the first or the second is right.

    `source` is the text that contains a statement, or the prompt that led to it; may be empty.
    """

    first: str
    second: str
    first_is_right: bool
    source: str = ""


def claim_of(query: Query) -> Claim | None:
    """Return what is to be decided of a question; None where nothing is known to be right and wrong.

    Whether the right answer stands first follows from the question's id, so that a model which always takes the first
    is right in half of the cases.
    """
    wrong, answers = query.extra.get("hallucinated_answer"), query.answers
    if isinstance(wrong, str) and wrong.strip() and answers:
        first_is_right = crc32(query.id.encode()) % 2 == 0
        return Claim(*((answers[0], wrong) if first_is_right else (wrong, answers[0])), first_is_right)
    if len(answers) == 1 and answers[0].lower() in (TRUE, FALSE):
        source = str(query.extra.get("response") or query.extra.get("prompt") or "")
        return Claim(TRUE, FALSE, answers[0].lower() == TRUE, source)
    return None


def with_claims(queries: Iterable[Query], name: str) -> list[Query]:
    """Return the questions that have something to verify; without any, a `DataError` that names the source."""
    found = [query for query in queries if claim_of(query) is not None]
    if not found:
        raise DataError(
            f"{name} has nothing to verify: no question has a hallucinated_answer, or true or false as its answer; use "
            "halueval, felm or wikibio, or leave out judge_figures verdict"
        )
    return found


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer to a question, read from a context, or None; `references` are right answers."""

    question: str
    references: tuple[str, ...]
    context: str
    answer: str | None
    claim: Claim | None = None

    @property
    def shown(self) -> Mapping[str, Any]:
        """What a prompt may show, by name; None for what there is not.

        `texts` are those of the context, which empty lines divide; a claim is a `pair` of answers or a `statement`.
        """
        texts = [part.strip() for part in self.context.split(SEPARATOR) if part.strip()]
        spans = ((part, start, end) for part in texts for start, end in sentence_spans(part))
        sentences = [text for part, start, end in spans if (text := part[start:end].strip())]
        known: dict[str, Any] = {"references": self.references, "context": self.context, "answer": self.answer}
        known |= {"texts": texts, "sentences": sentences}
        if (claim := self.claim) is None:
            return known
        is_statement = (claim.first, claim.second) == (TRUE, FALSE)
        return {**known, **asdict(claim), "pair": not is_statement, "statement": is_statement}


class Judgement(NamedTuple):
    """One figure that a judge is asked for.

    Attributes:
        name: What asks for it; with dashes the name of its prompt, by default.
        fields: What the prompt shows of a `JudgedAnswer`, beside the question.
        parse: The value, in [0, 1], that follows from a reply's JSON; None if it has none.
        needs: Fields that a value requires.
        zero: A field without which the value is 0.
        key: Its name in rows; by default `name`.
    """

    name: str
    fields: tuple[str, ...]
    parse: Callable[[Mapping[str, Any], JudgedAnswer], float | None]
    needs: tuple[str, ...] = ()
    zero: str = ""
    key: str = ""
    prompt: str = ""

    def request(self, answer: JudgedAnswer) -> Messages | float | None:
        """Return what is asked about an answer; a value that is known without asking; or None, if there is none."""
        known = answer.shown
        if any(known.get(name) is None for name in self.fields) or not all(known.get(name) for name in self.needs):
            return None
        if self.zero and not known[self.zero]:
            return 0.0
        fields = {name: _listed(known[name], numbered=name != "references") for name in self.fields}
        fields["question"] = answer.question
        name = self.prompt or self.name.replace("_", "-")
        return prompt(name, "experiments/prompts", needs=sorted(fields)).messages(**fields)

    def read(self, reply: str, answer: JudgedAnswer) -> float | None:
        """Return the value in a reply: one JSON object, whatever is around it; None if there is none, or more."""
        text = without_thoughts(reply)
        try:
            content = json.loads(text[text.find("{") : text.rfind("}") + 1])
        except (ValueError, RecursionError):
            return None
        return self.parse(content, answer) if isinstance(content, dict) else None


def _listed(value: str | Sequence[str], *, numbered: bool) -> str:
    if isinstance(value, str):
        return value
    if not numbered:
        return "\n".join(value)
    return "\n".join(f"[{number}] {' '.join(text.split())}" for number, text in enumerate(value, start=1))


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
    listed, total = content.get(field), len(answer.shown[of])
    if not isinstance(listed, list) or not all(type(one) is int and 1 <= one <= total for one in listed):
        return None
    return len(set(listed)) / total


def _verdict(content: Mapping[str, Any], answer: JudgedAnswer) -> float | None:
    shown = answer.shown
    field, options = ("verdict", (TRUE, FALSE)) if shown["statement"] else ("choice", ("1", "2"))
    said = str(content.get(field, "")).strip().lower()
    return float((said == options[0]) == shown["first_is_right"]) if said in options else None


JUDGEMENTS = [
    Judgement(GRADE, ("answer", "references"), _grade, needs=("references",), key="judge", prompt="judge"),
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
    Judgement(
        VERDICT, ("context", "first", "second"), _verdict, needs=("pair",), key="accuracy", prompt="choose-answer"
    ),
    Judgement(
        VERDICT, ("context", "source"), _verdict, needs=("statement",), key="accuracy", prompt="verify-statement"
    ),
]  # fmt: skip
"""What a judge can be asked; docs/experiments.md says of what each is a share."""
NAMES = tuple(dict.fromkeys(one.name for one in JUDGEMENTS))


def judgements(text: str) -> tuple[str, ...]:
    """Return some of `NAMES`, separated by commas, or `all`; `InputError` for others."""
    names = tuple(dict.fromkeys(comma_separated(text))) if text != ALL else NAMES
    if not names or not set(names) <= set(NAMES):
        raise InputError(f"judge_figures is {text!r}; name some of {', '.join(NAMES)}, or {ALL}")
    return names


class Judge:
    """Judges with models, greedy by default for repeatable values; names are some of `NAMES`.

    Of several models, those of a `self-consistency` reader, the most frequent value counts, ties to the first.
    """

    def __init__(self, chats: Sequence[Chat], names: Sequence[str] = (GRADE,)) -> None:
        self._chats = list(chats)
        self._asked = [one._replace(key=one.key or one.name) for one in JUDGEMENTS if one.name in names]

    def rows(self, answers: Sequence[JudgedAnswer]) -> list[dict[str, Any]]:
        """Return what rows have of each answer; equal requests are made once.

        `judged` has all names; `judge_unusable` counts what no reply has a value of, and `judge_error` quotes the first
        reply. A server that keeps failing is a `ChatError`.
        """
        asked = [[one.request(answer) for one in self._asked] for answer in answers]
        requests = {json.dumps(one): one for of_answer in asked for one in of_answer if isinstance(one, list)}
        every = list(product(requests, self._chats))
        with ThreadPoolExecutor(self._chats[0].max_concurrent) as pool:
            replies = dict(zip(every, pool.map(lambda one: _reply(requests[one[0]], one[1]), every), strict=True))
        rows: list[dict[str, Any]] = []
        for answer, of_answer in zip(answers, asked, strict=True):
            rows.append({"judged": list(dict.fromkeys(one.key for one in self._asked))})
            for one, value in zip(self._asked, of_answer, strict=True):
                if value is None:
                    continue
                rows[-1].setdefault("judge_unusable", 0)
                if isinstance(value, list):
                    own = [replies[json.dumps(value), chat] for chat in self._chats]
                    votes = Counter(figure for reply in own if (figure := one.read(reply, answer)) is not None)
                    if not votes:
                        rows[-1]["judge_unusable"] += 1
                        rows[-1].setdefault("judge_error", f"the reply has no usable {one.key}: {own[0]!r:.200}")
                        continue
                    value = votes.most_common(1)[0][0]
                rows[-1][one.key] = value
                if answer.claim is not None and one.name == VERDICT:
                    # What balanced accuracy is made of, as means over any sample of questions.
                    first = float(answer.claim.first_is_right)
                    rows[-1] |= {"right_is_first": first, "accuracy_on_first": first * value}
        return rows


def _reply(messages: Messages, chat: Chat) -> str:
    try:
        return chat.ask(messages).text
    except ChatError as error:
        if error.can_retry:
            raise  # a later run may bring it
        return str(error)


def chats_of(role: str, name: str) -> list[Chat]:
    """Return the language models of a reader by name, several if it is `self-consistency`; `role` names the setting.

    Raises:
        InputError: There is no such reader, or it asks no language model.
        ChatError: Its server, or the model, is missing.
    """
    reader = corag.reader(name)
    readers = reader.readers if isinstance(reader, SelfConsistentReader) else [reader]
    chats = [one for one in readers if isinstance(one, ChatReader)]
    if not chats:
        raise InputError(
            f"{role}: expected a reader that asks a language model, got {name!r}; use openai(model=...) "
            "or ollama(model=...)"
        )
    chats[0].check()
    return list(chats)
