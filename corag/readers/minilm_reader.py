"""`minilm-reader`: answers with a span of the context, yes or no, by an adapter on all-MiniLM-L6-v2.

Runs offline with the shipped adapter. Its low-rank updates are merged into the encoder's weights on loading, so reading
costs as much as the plain encoder.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from corag.checks import check_range
from corag.errors import ModelError
from corag.models.cached import CachedEmbedder
from corag.models.engine import EncoderSource, Engine, load_engine
from corag.models.minilm import WEIGHTS_SHA256, load_bert, weights_sha256
from corag.models.runtime import Backend, Placement, Precision, resolve_device
from corag.models.trained import Adapter, load_adapter, merge, shipped_adapter
from corag.naming import Part
from corag.readers.context import closest_sentences, sentence_at, with_sentences
from corag.readers.span_reader import INPUTS, KINDS, MIN_ROOM, ReaderSettings, Reading, SpanReader, to_answer
from corag.text.tokens import load_tokenizer, model_folder
from corag.types import Answer

NAME = "minilm-reader"
FORM = "low-rank-spans"
"""Format of its adapters: low-rank updates and whole tensors of a `SpanNetwork`."""

EXPLAINING = 2
"""Sentences that are quoted if a question asks for an explanation, or yes or no."""

FILE = "answerable.json"
"""File of an `Answerable` in the folder of an adapter."""
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

_AMOUNT = (
    r"many|much|long|old|far|deep|high|tall|big|large|wide|fast|often|heavy|hot|cold|small|young|late|early|close|near"
    r"|likely|common|frequently"
)
_HAS_TO_DO = "causes?|symptoms?|treatments?|effects?|differences?|steps?|signs?|reasons?|ways?|complications?|benefits?"
_EXPLANATION = re.compile(
    rf"""\b(?:why|explain|describe|discuss|summari[sz]e|outline|compare|define|definition|meaning\ of|tell\ me\ about)\b
    |\bhow\ (?!(?:{_AMOUNT})\b)\w
    |\bwhat\ (?:causes|happens|research|to)\b
    |\bwhat\ (?:is|are)\ (?:the\ )?(?:\w+\ ){{0,2}}(?:{_HAS_TO_DO})\b
    |^what\ (?:is|are|is\ \(are\))\ (?!the\b)(?:[\w'()-]+\ ?){{1,5}}\W*$""",
    re.IGNORECASE | re.VERBOSE,
)


class MiniLMReader(Part):
    """Answers with a span of the context, or with yes or no, and quotes what the context says about it.

    `Answer.sentence` is the sentence that the span stands in. Where the question wants a reason, a way or a definition,
    or the answer is yes or no, it holds the two sentences that are closest to the question, as `extractive` finds them.

    Args:
        adapter: The adapter's folder; by default the shipped one.
        min_confidence: Below this confidence the answer is empty. By default the best span is always given, as in
            SQuAD 1.1.
        backend: `auto`, `openvino` or `torch`; see `corag.models.runtime`, as for the next.
        precision: `fp32`, `bf16` or `fp16`.
        device: `cpu`, `cuda`, `cuda:N` or `mps`.

    Attributes:
        identity: Everything that answers depend on besides question and context.

    Raises:
        InputError: A setting does not exist, or not on this machine.
        MissingExtraError: The encoder's package or the backend is not installed.
        ModelError: The adapter or the encoder is missing or damaged, or they do not match.
    """

    def __init__(
        self,
        *,
        adapter: str | Path | None = None,
        min_confidence: float = 0.0,
        backend: Backend = "auto",
        precision: Precision | None = None,
        device: str | None = None,
    ) -> None:
        check_range("min_confidence", min_confidence, 0, 1, "0 always answers")
        self.name = NAME
        self.min_confidence = min_confidence
        folder = shipped_adapter(NAME) if adapter is None else Path(adapter)
        loaded = load_adapter(folder, FORM)
        self._answerable = Answerable.beside(folder)
        placement = resolve_device("reader", backend=backend, precision=precision, device=device)
        self._reader = span_reader(loaded, placement)
        # Loads nothing until a question wants more than a span.
        self._embedder = CachedEmbedder({"minilm": {"backend": backend, "device": device}})
        self.identity = (
            f"{NAME} {loaded.sha256} {placement.values_depend_on} window_tokens={self._reader.settings.window_tokens} "
            f"whole chunks min_confidence={min_confidence}"
        )

    def answer(self, query: str, context: str) -> Answer:
        """Return the answer; empty, with confidence 0, for a context without text."""
        return self.answer_many([query], [context])[0]

    def answer_many(self, queries: Sequence[str], contexts: Sequence[str]) -> list[Answer]:
        """Return the answer to each question from its context, read in shared batches.

        Raises:
            InputError: A question fills the window.
        """
        readings = zip(queries, contexts, self._reader.read(queries, contexts), strict=True)
        return [self._judged(query, context, reading) for query, context, reading in readings]

    def _judged(self, query: str, context: str, reading: Reading) -> Answer:
        """Return the answer of a reading, with the probability that the context has one."""
        answer = self._quoting(query, context, to_answer(reading, context, self._reader.settings))
        if self._answerable is None or reading.span is None:
            return answer
        observed = signals(query, context, reading.margin, reading.kinds[KINDS.index("none")])
        probability = self._answerable.probability(observed)
        found = answer.found and probability >= self._answerable.threshold
        return replace(answer, answerable=probability, found=found)

    def _quoting(self, query: str, context: str, answer: Answer) -> Answer:
        """Return an answer with its sentence: that of its span, or the closest where a span cannot be the answer."""
        if not answer.text or (answer.confidence or 0.0) < self.min_confidence:
            return Answer("", confidence=answer.confidence)
        if answer.spans and not asks_to_explain(query) and (around := sentence_at(context, answer.spans[0][0])):
            return with_sentences(answer, context, [around])
        close = closest_sentences(query, context, self._embedder, EXPLAINING)
        return answer if close is None else with_sentences(answer, context, close.spans)


# Loaded networks by weights, place and folder of the encoder; at most two of them.
_NETWORKS: dict[tuple[str, Placement, Path], Engine] = {}


def span_reader(adapter: Adapter, placement: Placement) -> SpanReader:
    """Return a span reader with an adapter's weights; see `MiniLMReader`."""
    settings = settings_of(adapter)
    key = adapter.weights_sha256, placement, model_folder()
    engine = _NETWORKS.get(key)
    if engine is None:
        base = weights_sha256()
        # The published encoder goes without saying.
        parts = adapter.weights_sha256 if base == WEIGHTS_SHA256 else f"{base[:8]}-{adapter.weights_sha256}"
        source = EncoderSource(NAME, parts, INPUTS, lambda: load_network(adapter))
        engine = load_engine(source, placement)
        while len(_NETWORKS) > 1:
            _NETWORKS.pop(next(iter(_NETWORKS)), None)
        _NETWORKS[key] = engine
    return SpanReader(engine, load_tokenizer(model_folder() / "tokenizer.json"), settings)


def settings_of(adapter: Adapter) -> ReaderSettings:
    """Return an adapter's settings; `ModelError` if they are not those of a reader."""
    values = dict(adapter.config.settings)
    try:
        same_kinds = values.pop("kinds", None) == list(KINDS)
        settings = ReaderSettings(**values)
        valid = same_kinds and 2 * MIN_ROOM <= settings.window_tokens <= 512
        valid = valid and math.isfinite(settings.slope) and math.isfinite(settings.offset)
    except TypeError:
        valid = False
    if not valid:
        raise ModelError(f"the adapter {adapter.config.name!r} has no valid settings of a reader; train it again")
    return settings


def load_network(adapter: Adapter) -> Any:
    """Return the encoder with its head and the adapter merged into them, in fp32, in evaluation mode."""
    from corag.readers.span_network import SpanNetwork

    network = SpanNetwork(load_bert())
    merge(network, adapter.tensors)
    return network.eval()


# --- Does the context answer the question at all? ---


@dataclass(frozen=True, slots=True)
class AnswerSignals:
    """Observations on a question and a context.

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


def signals(query: str, context: str, margin: float, none: float) -> AnswerSignals:
    """Return the observations, given the network's margin and probability of "no answer"."""
    there = {_stem(word) for word in _WORD.findall(context.casefold())}
    asked = {_stem(word) for word in _WORD.findall(query.casefold()) if word not in _COMMON}
    names = [_stem(name.casefold()) for name in _NAME.findall(query)]
    return AnswerSignals(
        max(margin, LEAST_MARGIN),
        math.log((none + SMALL) / (1 - none + SMALL)),
        _share_missing(sorted(asked), there),
        _share_missing(names, there),
    )


@dataclass(frozen=True, slots=True)
class Answerable:
    """A logistic model of whether a context answers a question.

    Attributes:
        margin: Weight of this field of `AnswerSignals`, as for the next three.
        none: As above.
        missing: As above.
        missing_names: As above.
        offset: Log-odds if all signals are 0.
        threshold: Minimum probability of an answer.
    """

    margin: float
    none: float
    missing: float
    missing_names: float
    offset: float
    threshold: float

    @classmethod
    def beside(cls, adapter: Path) -> Self | None:
        """Read the model in the folder of an adapter; None if there is none.

        Raises:
            ModelError: The file is damaged.
        """
        path = adapter / FILE
        if not path.is_file():
            return None
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            numbers = {field.name: float(values[field.name]) for field in fields(cls)}
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path} is damaged ({error!r}); copy the folder again") from error
        if not all(map(math.isfinite, numbers.values())):
            raise ModelError(f"{path} holds a number that is not finite; copy the folder again")
        return cls(**numbers)

    def probability(self, observed: AnswerSignals) -> float:
        """Return the probability that the context answers the question."""
        weighted = math.fsum(weight * value for weight, value in zip(astuple(self), astuple(observed), strict=False))
        return 0.5 + 0.5 * math.tanh(0.5 * (weighted + self.offset))


def _stem(word: str) -> str:
    return word[:_STEM]


def _share_missing(words: list[str], there: set[str]) -> float:
    return sum(word not in there for word in words) / len(words) if words else 0.0


def asks_to_explain(question: str) -> bool:
    """Return whether a question in English wants more than a few words: a reason, a way, a definition."""
    return _EXPLANATION.search(" ".join(question.split())) is not None
