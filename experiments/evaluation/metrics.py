"""Figures of one answer and one selection.

ROUGE comes from the rouge-score package (with stemming, as is usual for it); exact match and F1 follow the
SQuAD evaluation script (Rajpurkar et al., 2016): lower case, no punctuation, no articles, multiset overlap.
With several reference answers the best one counts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from corag.optional import require
from corag.text.data import holds_evidence, is_evidence
from corag.text.units import Range
from corag.text.words import spaced_characters
from corag.types import Chunk, Embedder, FloatArray

LONG_ANSWER_WORDS = 20
"""From this length of the shortest reference answer on, ROUGE-L is the measure of an answer, not F1."""
ROUGE = ("rouge1", "rouge2", "rougeL")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORDS = re.compile(r"[^\W_]+")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return the text in lower case without punctuation, articles and extra white space.

    Of scripts without spaces between words each character is a word.
    """
    return " ".join(_ARTICLES.sub(" ", spaced_characters(text).lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """Return 1.0 when the answer equals a reference after normalisation, else 0.0."""
    return float(any(normalize_answer(answer) == normalize_answer(reference) for reference in references))


def f1(answer: str, references: Sequence[str]) -> float:
    """Return the best harmonic mean of word precision and recall over the references, in [0, 1]."""
    words, scores = Counter(normalize_answer(answer).split()), [0.0]
    for reference in references:
        others = Counter(normalize_answer(reference).split())
        # Two texts without words are equal.
        scores.append(2 * (words & others).total() / (words + others).total() if words or others else 1.0)
    return max(scores)


def rouge(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Return the F-measures of ROUGE-1, ROUGE-2 and ROUGE-L, each the best over the references, in [0, 1]."""
    scores = [_rouge_scorer().score(reference, answer) for reference in references]
    return {name: max((float(score[name].fmeasure) for score in scores), default=0.0) for name in ROUGE}


def answer_words(references: Sequence[str]) -> int:
    """Return the words of the shortest reference answer; 0 without any."""
    return min((len(spaced_characters(reference).split()) for reference in references), default=0)


def answer_recall(context: str, references: Sequence[str]) -> float:
    """Return the share of a reference's words that are in a context, the best over the references: ROUGE-1 recall."""
    scores = [_rouge_scorer().score(reference, context)["rouge1"].recall for reference in references]
    return max(map(float, scores), default=0.0)


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    return require("rouge_score.rouge_scorer", "experiments").RougeScorer(list(ROUGE), tokenizer=_RougeWords())


class _RougeWords:
    """Words for ROUGE: those of rouge-score with its stemmer, and letters beyond a to z, which it leaves out."""

    def __init__(self) -> None:
        self._plain = require("rouge_score.tokenizers", "experiments").DefaultTokenizer(use_stemmer=True)

    def tokenize(self, text: str) -> list[str]:
        words: list[str] = self._plain.tokenize(text) if text.isascii() else []
        for word in () if text.isascii() else _WORDS.findall(spaced_characters(text.lower())):
            words += self._plain.tokenize(word) if word.isascii() else [word]
        return words


def evidence_figures(chunks: Sequence[Chunk], gold: Sequence[str]) -> dict[str, float]:
    """Return recall, precision and completeness of the evidence in a selection; empty for a question without gold.

    Precision is the share of chosen chunks that are evidence for some gold entry, 0 for an empty selection.
    """
    if not gold:
        return {}
    found = sum(holds_evidence(chunks, entry) for entry in gold)
    useful = sum(any(is_evidence(chunk, entry) for entry in gold) for chunk in chunks)
    return {
        "evidence_recall": found / len(gold),
        "evidence_precision": useful / len(chunks) if chunks else 0.0,
        "full_evidence": float(found == len(gold)),
    }


def context_recall(figures: Mapping[str, ArrayLike]) -> FloatArray:
    """Return what a context holds of what a question needs, in [0, 1], element by element; NaN where nothing is known.

    The mean of those that there are: the recall of the answer's words, that of the gold passages, and that of the
    gold's characters or else of the supporting sentences. It needs no reader. `figures` are floats or arrays of one
    shape, NaN where a measure is missing.
    """
    missing = np.array(np.nan)
    characters = np.asarray(figures.get("character_recall", missing), dtype=np.float64)
    finest = np.where(np.isnan(characters), figures.get("sentence_recall", missing), characters)
    known = [figures.get(name, missing) for name in ("answer_recall", "evidence_recall")]
    table = np.stack(np.broadcast_arrays(*known, finest))
    return np.asarray(np.ma.filled(np.ma.masked_invalid(table).mean(axis=0), np.nan))


def character_figures(shown: Sequence[Range], gold: Sequence[Range]) -> dict[str, float]:
    """Return recall, precision and intersection over union of characters, each in [0, 1]; the gold is not empty.

    As in Chroma's "Evaluating Chunking Strategies for Retrieval" (Smith and Troynikov, 2024): recall is the share of
    the gold that is shown, precision the share of what is shown that is gold, 0 if nothing is. Ranges may overlap; each
    character counts once, whereas Chroma counts what overlapping chunks repeat again.
    """
    num_shown, num_gold, num_either = map(_num_characters, (shown, gold, [*shown, *gold]))
    shared = num_shown + num_gold - num_either
    return {
        "character_recall": shared / num_gold,
        "character_precision": shared / num_shown if num_shown else 0.0,
        "character_iou": shared / num_either,
    }


def _num_characters(ranges: Sequence[Range]) -> int:
    total, reached = 0, ("", 0)
    for document, start, end in sorted(ranges):
        begin = max(start, reached[1]) if document == reached[0] else start
        if end > begin:
            total, reached = total + end - begin, (document, end)
    return total


def substring_match(answer: str, references: Sequence[str]) -> float:
    """Return 1.0 if a reference occurs in the answer after normalisation, between word boundaries, else 0.0.

    SubEM of Adaptive-k (section 4.4), after HELMET (Yen et al., 2025). A reference without words matches nothing.
    """
    padded = f" {normalize_answer(answer)} "
    normalized = [normalize_answer(reference) for reference in references]
    return float(any(f" {reference} " in padded for reference in normalized if reference))


def true_k(ranking: Sequence[Chunk], gold: Sequence[str]) -> int | None:
    """Return the smallest k whose first k chunks hold every piece of evidence; None if some is in none.

    It is the true k of Adaptive-k (section 5.5); the public code takes the index of the last of these chunks for it.
    """
    found = [next((row for row, chunk in enumerate(ranking) if is_evidence(chunk, entry)), None) for entry in gold]
    return None if not found or None in found else 1 + max(row for row in found if row is not None)


def answer_similarity(answer: str, other: str, embedder: Embedder) -> float:
    """Return the cosine of two answers' embeddings, in [-1, 1]: CosSim of CRAG (section 3.1.3)."""
    one, two = embedder.embed([answer, other]).astype(float)
    return float(one @ two)


def redundancy(texts: Sequence[str], embedder: Embedder) -> float:
    """Return how much a selection repeats itself: the mean, over its texts, of the largest cosine to another, or 0."""
    if len(texts) < 2:
        return 0.0
    vectors = embedder.embed(texts).astype(float)
    cosines = np.clip(vectors @ vectors.T, 0.0, 1.0)
    np.fill_diagonal(cosines, 0.0)
    return float(cosines.max(axis=1).mean())
