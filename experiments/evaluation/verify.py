"""Statements and answers verified against what a selector chose (EDC2-RAG, section 5.2 and appendix B.1).

A question that comes with a right and a hallucinated answer is a choice between the two, as in the paper's HaluEval; a
statement is judged true or false. A language model decides, or, without one, the words that a context holds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol
from zlib import crc32

from corag.errors import DataError, InputError
from corag.models.chat.base import Chat, Messages
from corag.models.chat.prompts import prompt
from corag.readers.chat import ChatReader
from corag.readers.wrappers import SelfConsistentReader
from corag.rerankers.evidence.passages import STOP_WORDS
from corag.text.data import Query
from corag.types import Answer, Reader, TokenCounter
from experiments.evaluation.judge import json_object

TRUE, FALSE = "true", "false"
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Claim:
    """What is to be decided.

    Attributes:
        question: The question, or the statement.
        options: The two answers to choose from; of a statement, `true` and `false`.
        right: Which option is right, 0 or 1.
        source: The text that a statement stands in, or the prompt that led to it; may be empty.
    """

    question: str
    options: tuple[str, str]
    right: int
    source: str = ""

    @property
    def is_statement(self) -> bool:
        """Whether it is a statement, true or false."""
        return self.options == (TRUE, FALSE)


class Verdict(NamedTuple):
    """The option that was chosen; None, with what went wrong, where a reply tells none."""

    choice: int | None
    reason: str = ""


class Verifier(Protocol):
    """Decides claims."""

    name: str

    def verify(self, claims: Sequence[Claim], contexts: Sequence[str]) -> list[Verdict]:
        """Return the verdict on each claim, given the context at its place."""


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
    """Return the questions that have something to verify.

    Raises:
        DataError: There is none; `name` says where they were looked for.
    """
    found = [query for query in queries if claim_of(query) is not None]
    if not found:
        raise DataError(
            f"{name} has nothing to verify: no question has a hallucinated_answer beside its answers, or true or false "
            "as its answer; use halueval, felm or wikibio, or leave out --task verify"
        )
    return found


def verdict_figures(claim: Claim, verdict: Verdict) -> dict[str, object]:
    """Return the figures of a verdict. A reply that tells none is counted, and is not right."""
    right, first = float(verdict.choice == claim.right), float(claim.right == 0)
    return {
        "accuracy": right,
        # What balanced accuracy is made of, as means over any sample of questions.
        "right_is_first": first,
        "accuracy_on_first": right * first,
        "verdict": None if verdict.choice is None else claim.options[verdict.choice],
        "verdict_unusable": int(verdict.choice is None),
        **({"verdict_reason": verdict.reason} if verdict.reason else {}),
    }


class ChatVerifier:
    """Asks language models, and takes what most of them say; it has a prompt as a reader has one, for budgets.

    Args:
        chats: Models that vote on each claim; of several choices with equal votes the first that was made.
        claims: All that it will be asked for: the prompts of one question are as long as the longest.
    """

    def __init__(self, chats: Sequence[Chat], claims: Iterable[Claim]) -> None:
        self._chats = list(chats)
        self.name = self._chats[0].name
        self._choose = prompt("choose-answer", "experiments/prompts", needs=["question", "context", "first", "second"])
        self._judge = prompt("verify-statement", "experiments/prompts", needs=["question", "context", "source"])
        self._claims: dict[str, list[Claim]] = {}
        for claim in claims:
            self._claims.setdefault(claim.question, []).append(claim)

    @property
    def identity(self) -> str:
        """What verdicts depend on besides claim and context."""
        return repr([*(chat.identity for chat in self._chats), self._choose.text, self._judge.text])

    @cached_property
    def tokens(self) -> TokenCounter:
        """Counts as the model does; see `ChatReader.tokens`."""
        return self._chats[0].tokens

    @property
    def window_tokens(self) -> int | None:
        """The most tokens of prompt and reply together; None where that is not known."""
        return self._chats[0].window_tokens

    @property
    def max_answer_tokens(self) -> int:
        """The most tokens of a reply."""
        return self._chats[0].max_answer_tokens

    @property
    def max_concurrent(self) -> int:
        """Claims that it may be asked together."""
        return max(1, self._chats[0].max_concurrent)

    def prompt_tokens(self, query: str, context: str = "") -> int:
        """Return the tokens of the longest prompt for a question; `InputError` for one without a claim."""
        if query not in self._claims:
            raise InputError(f"{query!r:.80} has nothing to verify; leave such questions out of the split")
        return max(self._chats[0].count(self._messages(claim, context)) for claim in self._claims[query])

    def answer(self, query: str, context: str) -> Answer:
        """Return the option that is chosen for a question's first claim."""
        claim = self._claims[query][0]
        [verdict] = self.verify([claim], [context])
        return Answer("" if verdict.choice is None else claim.options[verdict.choice])

    def verify(self, claims: Sequence[Claim], contexts: Sequence[str]) -> list[Verdict]:
        """Return the verdict on each claim; a request that fails is a `ChatError`, as for a reader."""
        asked = [self._messages(*pair) for pair in zip(claims, contexts, strict=True)]
        votes = [
            [parse_verdict(claim, written.text) for claim, written in zip(claims, chat.ask_many(asked), strict=True)]
            for chat in self._chats
        ]
        return [majority(of_claim) for of_claim in zip(*votes, strict=True)]

    def _messages(self, claim: Claim, context: str) -> Messages:
        if claim.is_statement:
            return self._judge.messages(question=claim.question, context=context, source=claim.source)
        first, second = claim.options
        return self._choose.messages(question=claim.question, context=context, first=first, second=second)


def parse_verdict(claim: Claim, reply: str) -> Verdict:
    """Return the choice in a reply: one JSON object with `verdict` for a statement, else `choice`."""
    content = json_object(reply) or {}
    said = str(content.get("verdict" if claim.is_statement else "choice", "")).strip().lower()
    options = (TRUE, FALSE) if claim.is_statement else ("1", "2")
    if said not in options:
        return Verdict(None, f"the reply has no verdict: {reply[:200]!r}")
    return Verdict(options.index(said), str(content.get("reason", "")))


def majority(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict with the most votes, of equal ones the first; without a vote, why the first has none."""
    votes = Counter(verdict.choice for verdict in verdicts if verdict.choice is not None)
    if not votes:
        return verdicts[0]
    most = max(votes.values())
    return next(one for one in verdicts if one.choice is not None and votes[one.choice] == most)


class WordVerifier:
    """Decides by the words that a context holds: a stand-in where there is no language model.

    The support of a text is the share of its words, without those that say little, that the context holds. Of two
    answers the one with more support is chosen, of equal ones the first; a statement is true from `threshold` on. It
    sees no negation and no relation, and helps only where what is right stands in the context word for word.

    Args:
        threshold: The least support of a true statement. On 400 answers to 200 questions of HaluEval, beside their
            evidence, 0.9 has a balanced accuracy of .89 (.90 on 1,600 others) and 1 one of .905; but a long statement
            always has words of its own.
    """

    name = "words"

    def __init__(self, threshold: float = 0.9) -> None:
        self._threshold = threshold

    def verify(self, claims: Sequence[Claim], contexts: Sequence[str]) -> list[Verdict]:
        """Return the verdict on each claim."""
        return [self._verdict(*pair) for pair in zip(claims, contexts, strict=True)]

    def _verdict(self, claim: Claim, context: str) -> Verdict:
        if claim.is_statement:
            share = support(claim.question, context)
            return Verdict(int(share < self._threshold), f"the context holds {share:.0%} of its words")
        first, second = (support(option, context) for option in claim.options)
        return Verdict(int(second > first), f"the context holds {first:.0%} and {second:.0%} of their words")


def support(text: str, context: str) -> float:
    """Return the share of a text's words that the context holds, in [0, 1]; 0 for a text without any."""
    words = {word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}
    return len(words.intersection(_WORD.findall(context.lower()))) / len(words) if words else 0.0


def verifier_of(reader: Reader, queries: Iterable[Query]) -> ChatVerifier | WordVerifier:
    """Return a verifier that asks the language model of a reader, or, where it has none, `WordVerifier`.

    Args:
        reader: Whose model is asked.
        queries: All questions that it will be asked for.
    """
    claims = [claim for query in queries if (claim := claim_of(query)) is not None]
    if isinstance(reader, SelfConsistentReader):
        return ChatVerifier([one.chat for one in reader.readers], claims)
    if isinstance(reader, ChatReader):
        return ChatVerifier([reader.chat], claims)
    return WordVerifier()
