"""The feature vector of the configuration agent, made in one place for training and for use.

A recipe names the parts of the vector, in order:

- `query`: the question's embedding, `d` numbers.
- `candidates`: the mean embedding of the ten most similar candidates, `d` numbers; zeros if there is none.
- `curve`: what the candidates' similarities to the question look like, `len(CURVE)` numbers; see `curve_statistics`.
- `texts`: what question and candidates look like whatever they are about, `len(TEXTS)` numbers; see `text_statistics`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from corag.errors import InputError
from corag.models.cached import vectors_by
from corag.ranking import shared_words
from corag.selectors.problem import SelectionProblem
from corag.text.units import SENTENCE, UnitChunk
from corag.types import Embedder, FloatArray

FEATURES = ("query", "candidates", "curve", "texts")
"""The parts that a recipe may name."""
MEAN_OF = 10
"""Candidates whose mean embedding is the part `candidates`."""
RANKS = (1, 2, 3, 5, 10, 20)
"""Ranks whose similarities are part of the curve; a shorter list counts as going on with its last."""
NEAR = 0.1
"""A candidate is near the best one when its similarity is less than this below."""
CURVE = (
    *(f"similarity_{rank}" for rank in RANKS), "mean", "deviation", "largest_gap", "place_of_largest_gap", "share_near",
    "log_count",
)  # fmt: skip
"""The numbers of the part `curve`."""
TEXTS = (
    "passages_top3", "passages_top5", "passages_correlation", "passages_peak", "cosine_peak", "sentences_top3",
    "sentences_top5", "sentences_correlation", "sentences_peak", "best_sentence", "passage_tokens", "sentence_tokens",
    "sentences_per_passage", "titled", "table_rows", "list_items", "digits", "symbols", "log_budget",
    "question_tokens", "who", "when", "where", "how_many", "why", "how", "yes_no", "and",
)  # fmt: skip
"""The numbers of the part `texts`."""
LOWEST_LOG_BUDGET = -3.0
"""Below this, the budget holds a twentieth of the candidates or less."""

_LIST_ITEM = re.compile(r"\s*(?:[-*+•‣▪–]|\d{1,3}[.)])\s+\S")  # noqa: RUF001
_DIGITS, _SYMBOLS = "0123456789", "{}[]<>=;_`\\/#$@^~&*+"
_QUESTION_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\bwho(m|se)?\b",
        r"\b(when|(what|which) (year|date|day|month|century))\b",
        r"\b(where|(what|which) (country|city|town|place|state))\b",
        r"\bhow (many|much|long|old|far|often|high|tall|large|big)\b|\bwhat (percentage|number|amount)\b",
        r"\bwhy\b|\breasons?\b",
        r"\bhow (?!many|much|long|old|far|often|high|tall|large|big)",
        r"^\W*(is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|may|must)\b",
        r"\band\b",
    )
)
"""Of the last numbers of `TEXTS`, from `who` on; other languages than English have none of them."""

Float32 = NDArray[np.float32]


def check_recipe(recipe: Sequence[str]) -> tuple[str, ...]:
    """Return a recipe as a tuple; `InputError` if it is empty, or names a part twice or one that is unknown."""
    parts = tuple(recipe)
    if not parts or len(set(parts)) < len(parts) or not set(parts) <= set(FEATURES):
        raise InputError(
            f"features: expected at least one of {', '.join(FEATURES)}, each once, got {', '.join(parts) or 'none'}"
        )
    return parts


def feature_dim(recipe: Sequence[str], embedding_dim: int) -> int:
    """Return the length of a feature vector over embeddings of `embedding_dim` numbers."""
    lengths = {"query": embedding_dim, "candidates": embedding_dim, "curve": len(CURVE), "texts": len(TEXTS)}
    return sum(lengths[part] for part in check_recipe(recipe))


def curve_statistics(similarities: ArrayLike) -> Float32:
    """Return the statistics of a similarity curve that `CURVE` names, `[12]`.

    They are the similarities at a few ranks, their mean and standard deviation, the largest gap between neighbours and
    its position (0 for behind the best, towards 1 for the end), the share of candidates near the best, and the
    logarithm of one plus their number, divided by 10. All are 0 without candidates.

    Args:
        similarities: Cosine of each candidate to the question, in any order, `[n]`.
    """
    falling = np.sort(np.asarray(similarities, dtype=np.float64))[::-1]
    count = len(falling)
    if not count:
        return np.zeros(len(CURVE), dtype=np.float32)
    gaps = falling[:-1] - falling[1:]
    position = int(gaps.argmax()) if count > 1 else 0
    numbers = [
        *(falling[min(rank, count) - 1] for rank in RANKS),
        falling.mean(),
        falling.std(),
        gaps[position] if count > 1 else 0.0,
        position / count,
        np.mean(falling > falling[0] - NEAR),
        np.log1p(count) / 10,
    ]
    return np.array(numbers, dtype=np.float32)


def text_statistics(problem: SelectionProblem, similarities: ArrayLike) -> Float32:
    """Return the statistics of a question and its passages that `TEXTS` names, each within [-3, 1], `[28]`.

    How far two rankings agree says whether the values that build on them can be trusted on this kind of text: one is
    by cosine, the other by the words that are shared with the question, rare ones counting more (`shared_words`), and
    is made for passages and for sentences. Without passages all but those about the question are 0. Ties do not depend
    on the order of the passages.

    - `passages_top3`, `passages_top5`: overlap (Jaccard) of the best passages under both; `passages_correlation`:
      Spearman's rank correlation; `passages_peak`, `cosine_peak`, `sentences_peak`: how far the best is above the mean.
    - `sentences_top3`, `sentences_top5`: share of the best sentences whose passages are among as many best by cosine;
      `sentences_correlation`: rank correlation of the passages by cosine and by their best sentence; `best_sentence`:
      share of the question's words in one sentence.
    - `passage_tokens`, `sentence_tokens`, `sentences_per_passage`, `question_tokens`: the logarithm of one plus the
      mean number, divided by 10, a token being four bytes of UTF-8; `titled`: share of passages with a title;
      `table_rows` and `list_items`: share of sentences; `digits` and `symbols`: share of characters.
    - `log_budget`: logarithm of the budget over the tokens of all passages; `who` to `and`: 1 for a question of this
      form in English, else 0.

    Args:
        problem: The question with its passages, `n`.
        similarities: Cosine of each passage to the question, `[n]`.
    """
    query, chunks = problem.query, problem.chunks
    numbers = dict.fromkeys(TEXTS, 0.0)
    numbers["question_tokens"] = _log_share(_tokens(query))
    for name, form in zip(TEXTS[-len(_QUESTION_FORMS) :], _QUESTION_FORMS, strict=True):
        numbers[name] = float(form.search(query) is not None)
    if not chunks:
        return np.array(list(numbers.values()), dtype=np.float32)
    cosines = np.asarray(similarities, dtype=np.float64)
    cut = problem.units(SENTENCE)
    sentences = [sentence for of_passage in cut for sentence in of_passage]
    owner = np.repeat(np.arange(len(cut)), [len(of_passage) for of_passage in cut])
    texts = [chunk.text for chunk in chunks]
    whole = "\n".join(texts)
    tokens = _tokens(whole)
    own = [s.source.text[slice(*s.span)] if isinstance(s, UnitChunk) else s.text for s in sentences]
    by_words, by_sentence = shared_words(query, texts), shared_words(query, [s.text for s in sentences])
    best = np.zeros(len(chunks))
    np.maximum.at(best, owner, by_sentence)
    for k in (3, 5):
        top = _top(cosines, k)
        among, chosen = _top(by_words, k), _top(by_sentence, k)
        numbers[f"passages_top{k}"] = (top & among).sum() / (top | among).sum()
        numbers[f"sentences_top{k}"] = top[owner[chosen]].mean()
    log_budget = float(np.log(problem.budget_tokens / max(1.0, tokens)))
    numbers |= {
        "passages_correlation": _rank_correlation(cosines, by_words),
        "passages_peak": by_words.max() - by_words.mean(),
        "cosine_peak": cosines.max() - cosines.mean(),
        "sentences_correlation": _rank_correlation(cosines, best),
        "sentences_peak": by_sentence.max() - by_sentence.mean(),
        "best_sentence": by_sentence.max(),
        "passage_tokens": _log_share(tokens / len(chunks)),
        "sentence_tokens": _log_share(tokens / len(sentences)),
        "sentences_per_passage": _log_share(len(sentences) / len(chunks)),
        "titled": float(np.mean([bool(chunk.metadata.get("title")) for chunk in chunks])),
        "table_rows": float(np.mean([text.count("|") + text.count("\t") > 1 for text in own])),
        "list_items": float(np.mean([_LIST_ITEM.match(text) is not None for text in own])),
        "digits": sum(map(whole.count, _DIGITS)) / max(1, len(whole)),
        "symbols": sum(map(whole.count, _SYMBOLS)) / max(1, len(whole)),
        "log_budget": min(0.0, max(LOWEST_LOG_BUDGET, log_budget)),
    }
    # Cosines in half precision may be a little beyond 1.
    return np.clip(list(numbers.values()), LOWEST_LOG_BUDGET, 1.0).astype(np.float32)


def room(texts: ArrayLike, counts: ArrayLike) -> FloatArray:
    """Return how many passages each budget holds, `[n]`, inf if all, from `text_statistics`, `[n, 28]`, and numbers."""
    log_budget = np.asarray(texts, dtype=np.float64).reshape(-1, len(TEXTS))[:, TEXTS.index("log_budget")]
    return np.where(log_budget < 0, np.exp(log_budget) * np.asarray(counts, dtype=np.float64), np.inf)


def _top(values: FloatArray, k: int) -> NDArray[np.bool_]:
    """Return which values are among the `k` largest, with all that equal the last of these, `[n]`."""
    return np.asarray(values >= np.sort(values)[-min(k, len(values))])


def _rank_correlation(first: FloatArray, second: FloatArray) -> float:
    """Return Spearman's rank correlation, in [-1, 1]; 0 if either has only one value."""
    ranks = []
    for values in (first, second):
        _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
        centred = (np.cumsum(counts) - counts / 2)[index]
        ranks.append(centred - centred.mean())
    norm = np.sqrt(np.square(ranks[0]).sum() * np.square(ranks[1]).sum())
    return float(ranks[0] @ ranks[1] / norm) if norm > 0 else 0.0


def _tokens(text: str) -> float:
    return len(text.encode("utf-8", "replace")) / 4


def _log_share(number: float) -> float:
    return min(1.0, float(np.log1p(number)) / 10)


def feature_vectors(
    recipe: Sequence[str],
    queries: ArrayLike,
    candidates: ArrayLike,
    similarities: Sequence[ArrayLike],
    texts: ArrayLike | None = None,
) -> Float32:
    """Return one feature vector per question, `[n, feature_dim]`, from the `QuestionVectors` of each.

    Raises:
        InputError: The recipe is no recipe, or names `texts`, which are not given.
    """
    if texts is None and "texts" in recipe:
        raise InputError("features name texts, which these labels do not have; label again, or leave texts out")
    curves = np.array([curve_statistics(row) for row in similarities]).reshape(-1, len(CURVE))
    columns = {"query": queries, "candidates": candidates, "curve": curves, "texts": () if texts is None else texts}
    return np.concatenate([np.asarray(columns[part], dtype=np.float32) for part in check_recipe(recipe)], axis=1)


class QuestionVectors(NamedTuple):
    """The parts of a feature vector: embeddings `[d]`, similarities `[n]` and `text_statistics` `[28]`.

    `candidates` is the mean embedding of the ten best candidates, zeros without any; `similarities` are the cosines of
    all candidates to the question.
    """

    query: Float32
    candidates: Float32
    similarities: FloatArray
    texts: Float32


def question_vectors(
    problems: Sequence[SelectionProblem], embedder: Embedder, recipe: Sequence[str] = FEATURES
) -> list[QuestionVectors]:
    """Return the vectors of questions and of their best candidates, by one embedder.

    The candidates' similarities are used if they are cosines that name no other embedder. Otherwise all candidates are
    embedded and their cosines computed: a BM25 score or a rank would mislead an agent trained on cosines. Candidates
    are embedded only as far as the recipe needs it; what it does not name stays zeros, or as given (`curve`).
    """
    names = (None, embedder.name)
    compares = not {"curve", "texts"}.isdisjoint(recipe)
    own = [problem.kind == "cosine" and all(c.embedder in names for c in problem.candidates) for problem in problems]
    some = MEAN_OF if "candidates" in recipe else 0
    embedded = [
        [chunk.text for chunk in (problem.chunks[:some] if known or not compares else problem.chunks)]
        for problem, known in zip(problems, own, strict=True)
    ]
    texts = [text for problem, best in zip(problems, embedded, strict=True) for text in (problem.query, *best)]
    vectors = vectors_by(embedder, texts)
    ends = np.cumsum([1 + len(best) for best in embedded])
    found = []
    for problem, known, part in zip(problems, own, np.split(vectors, ends[:-1]), strict=True):
        query, rest, similarities = part[0], part[1:], problem.relevance
        if not known and compares:
            similarities = np.asarray(rest @ query, dtype=np.float64)
            rest = rest[np.argsort(-similarities, kind="stable")]
        mean = np.asarray(rest[:some], dtype=np.float32).mean(axis=0) if some and len(rest) else np.zeros_like(query)
        wanted = "texts" in recipe
        statistics = text_statistics(problem, similarities) if wanted else np.zeros(len(TEXTS), dtype=np.float32)
        found.append(QuestionVectors(query, mean, similarities, statistics))
    return found
