"""Figures of one answer and one selection.

ROUGE comes from the rouge-score package (with stemming, as is usual for it); exact match and F1 follow the
SQuAD evaluation script (Rajpurkar et al., 2016): lower case, no punctuation, no articles, multiset overlap.
With several reference answers the best one counts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from corag.data import is_evidence
from corag.optional import require
from corag.types import Chunk

ROUGE = ("rouge1", "rouge2", "rougeL")

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> str:
    """Return the text in lower case without punctuation, articles and extra white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, references: Sequence[str]) -> float:
    """Return 1.0 when the answer equals a reference after normalisation, else 0.0."""
    return float(any(normalize_answer(answer) == normalize_answer(reference) for reference in references))


def f1(answer: str, references: Sequence[str]) -> float:
    """Return the best harmonic mean of word precision and recall over the references, in [0, 1]."""
    return max((_f1(normalize_answer(answer).split(), normalize_answer(r).split()) for r in references), default=0.0)


def _f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    if not answer or not reference:
        return float(answer == reference)
    shared = (Counter(answer) & Counter(reference)).total()
    return 2 * shared / (len(answer) + len(reference))


def rouge(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Return the F-measures of ROUGE-1, ROUGE-2 and ROUGE-L, each the best over the references, in [0, 1]."""
    scores = [_rouge_scorer().score(reference, answer) for reference in references]
    return {name: max((float(score[name].fmeasure) for score in scores), default=0.0) for name in ROUGE}


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    return require("rouge_score.rouge_scorer", "experiments").RougeScorer(list(ROUGE), use_stemmer=True)


def answer_figures(answer: str, references: Sequence[str]) -> dict[str, float]:
    """Return ROUGE, F1 and exact match of an answer."""
    return {**rouge(answer, references), "f1": f1(answer, references), "em": exact_match(answer, references)}


def evidence_figures(chunks: Sequence[Chunk], gold: Sequence[str]) -> dict[str, float] | None:
    """Return recall, precision and completeness of the evidence in a selection; None for a question without gold.

    Recall: share of gold entries that a chosen chunk is evidence for. Precision: share of chosen chunks that are
    evidence for some gold entry, 0 for an empty selection. `full_evidence`: 1 when recall is 1.
    """
    if not gold:
        return None
    found = sum(any(is_evidence(chunk, entry) for chunk in chunks) for entry in gold)
    useful = sum(any(is_evidence(chunk, entry) for entry in gold) for chunk in chunks)
    return {
        "evidence_recall": found / len(gold),
        "evidence_precision": useful / len(chunks) if chunks else 0.0,
        "full_evidence": float(found == len(gold)),
    }
