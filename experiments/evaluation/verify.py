"""Statements and answers verified against what a selector chose (EDC2-RAG, section 5.2 and appendix B.1).

A question that comes with a right and a hallucinated answer is a choice between the two, as in the paper's HaluEval; a
statement is judged true or false. A language model decides, or, without one, the words that a context holds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

from corag.errors import DataError, InputError
from corag.models.chat import Chat
from corag.models.prompts import Messages, prompt
from corag.readers.chat import ChatReader
from corag.readers.wrappers import SelfConsistentReader
from corag.text.data import Query
from corag.types import Answer, Reader
from experiments.evaluation.judge import json_object

TRUE, FALSE = "true", "false"
THRESHOLD = 0.9
"""The least support of a true statement. On 400 answers to 200 questions of HaluEval, beside their evidence, the
balanced accuracy is .89 (.90 on 1,600 others)."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement, or a question with two answers, of which option 0 or 1 is `right`.

    `source` is the text that contains a statement, or the prompt that led to it; may be empty.
    """

    question: str
    options: tuple[str, str]
    right: int
    source: str = ""

    @property
    def is_statement(self) -> bool:
        """Whether it is a statement, true or false."""
        return self.options == (TRUE, FALSE)


def claim_of(query: Query) -> Claim | None:
    """Return what is to be decided of a question; None where nothing is known to be right and wrong.

    Whether the right answer stands first follows from the question's id, so that a model which always takes the first
    is right in half of the cases.
    """
    wrong = query.extra.get("hallucinated_answer")
    if isinstance(wrong, str) and wrong.strip() and query.answers:
        right = crc32(query.id.encode()) % 2
        return Claim(query.question, (query.answers[0], wrong) if right == 0 else (wrong, query.answers[0]), right)
    if len(query.answers) == 1 and query.answers[0].lower() in (TRUE, FALSE):
        source = str(query.extra.get("response") or query.extra.get("prompt") or "")
        return Claim(query.question, (TRUE, FALSE), int(query.answers[0].lower() == FALSE), source)
    return None


def with_claims(queries: Iterable[Query], name: str) -> list[Query]:
    """Return the questions that have something to verify; without any, a `DataError` that names the source."""
    found = [query for query in queries if claim_of(query) is not None]
    if not found:
        raise DataError(
            f"{name} has nothing to verify: no question has a hallucinated_answer, or true or false as its answer; use "
            "halueval, felm or wikibio, or leave out --task verify"
        )
    return found


def verdict_figures(claim: Claim, choice: int | None) -> dict[str, object]:
    """Return the figures of a choice. None, for a reply without a verdict, is counted, and is not right."""
    right, first = float(choice == claim.right), float(claim.right == 0)
    return {
        "accuracy": right,
        # What balanced accuracy is made of, as means over any sample of questions.
        "right_is_first": first,
        "accuracy_on_first": right * first,
        "verdict": None if choice is None else claim.options[choice],
        "verdict_unusable": int(choice is None),
    }


class ChatVerifier:
    """Asks language models, and returns the most frequent verdict, ties to the first.

    It has a prompt as a reader has one, for budgets: that of the longest of a question's `claims`.
    """

    def __init__(self, chats: Sequence[Chat], claims: Iterable[Claim]) -> None:
        self._chats = list(chats)
        chat = self._chats[0]
        self.name, self.tokens, self.window_tokens = chat.name, chat.counter, chat.context_window
        self.max_answer_tokens, self.max_concurrent = chat.max_answer_tokens, max(1, chat.max_concurrent)
        self._choose = prompt("choose-answer", "experiments/prompts", needs=["question", "context", "first", "second"])
        self._judge = prompt("verify-statement", "experiments/prompts", needs=["question", "context", "source"])
        self.identity = repr([*(chat.identity for chat in self._chats), self._choose.text, self._judge.text])
        self._claims: dict[str, list[Claim]] = {}
        for claim in claims:
            self._claims.setdefault(claim.question, []).append(claim)

    def prompt_tokens(self, query: str, context: str = "") -> int:
        """Return the tokens of the longest prompt for a question; `InputError` for one without a claim."""
        if query not in self._claims:
            raise InputError(f"{query!r:.80} has nothing to verify; leave such questions out of the split")
        return max(self._chats[0].count(self._messages(claim, context)) for claim in self._claims[query])

    def answer(self, query: str, context: str) -> Answer:
        """Return the option that is chosen for a question's first claim."""
        claim = self._claims[query][0]
        [choice] = self.verify([claim], [context])
        return Answer("" if choice is None else claim.options[choice])

    def verify(self, claims: Sequence[Claim], contexts: Sequence[str]) -> list[int | None]:
        """Return the option chosen for each claim, None without a verdict; a request that fails is a `ChatError`."""
        messages = [self._messages(*pair) for pair in zip(claims, contexts, strict=True)]
        votes = [
            [parse_verdict(claim, written.text) for claim, written in zip(claims, chat.ask_many(messages), strict=True)]
            for chat in self._chats
        ]
        return [majority(of_claim) for of_claim in zip(*votes, strict=True)]

    def _messages(self, claim: Claim, context: str) -> Messages:
        if claim.is_statement:
            return self._judge.messages(question=claim.question, context=context, source=claim.source)
        first, second = claim.options
        return self._choose.messages(question=claim.question, context=context, first=first, second=second)


def parse_verdict(claim: Claim, reply: str) -> int | None:
    """Return the choice in a reply: one JSON object with `verdict` for a statement, else `choice`."""
    content = json_object(reply) or {}
    text = str(content.get("verdict" if claim.is_statement else "choice", "")).strip().lower()
    options = (TRUE, FALSE) if claim.is_statement else ("1", "2")
    return options.index(text) if text in options else None


def majority(choices: Iterable[int | None]) -> int | None:
    """Return the most frequent choice; ties go to the first."""
    votes = Counter(choice for choice in choices if choice is not None).most_common(1)
    return votes[0][0] if votes else None


def verify_by_words(claims: Sequence[Claim], contexts: Sequence[str]) -> list[int | None]:
    """Return the option chosen for each claim by the words that its context holds, without a language model.

    Of two answers the one with more support is chosen, ties to the first; a statement is true from `THRESHOLD` on.
    """
    choices: list[int | None] = []
    for claim, context in zip(claims, contexts, strict=True):
        if claim.is_statement:
            choices.append(int(support(claim.question, context) < THRESHOLD))
        else:
            first, second = (support(option, context) for option in claim.options)
            choices.append(int(second > first))
    return choices


def support(text: str, context: str) -> float:
    """Return the share of a text's words that the context holds, in [0, 1]; 0 without any."""
    words = set(_WORD.findall(text.lower()))
    return len(words.intersection(_WORD.findall(context.lower()))) / len(words) if words else 0.0


def verifier_of(reader: Reader, queries: Iterable[Query]) -> ChatVerifier | None:
    """Return what asks the language models of a reader about these questions; None for a reader without any."""
    claims = [claim for query in queries if (claim := claim_of(query)) is not None]
    if isinstance(reader, SelfConsistentReader):
        return ChatVerifier(reader.readers, claims)
    return ChatVerifier([reader], claims) if isinstance(reader, ChatReader) else None
