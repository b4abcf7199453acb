"""What a selector chooses from: one query, its candidates, and what sets of them cost."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag.ambient import check_cancelled
from corag.errors import InputError
from corag.optional import warn_once
from corag.ranking import shared_words
from corag.rerankers.bm25 import Bm25
from corag.rerankers.scorers import CachedScorer
from corag.rerankers.window import DEFAULT_POLICY, WindowedScorer, WindowPolicy
from corag.text.documents import SEPARATOR, body, content
from corag.text.tokens import token_counts
from corag.text.units import MAX_CHARACTERS, Span, UnitChunk, assemble, disjoint, ranges_of, text_alone, units
from corag.types import Candidate, Chunk, FloatArray, Order, Reranker, SimilarityKind, TokenCounter

Int64 = NDArray[np.int64]

DEFAULT_MAX_UNITS = 200
"""Of 20 chunks of 128 tokens all sentences, about 100."""
CHOICE, LEAST_CHOICE = 4, 2048
"""Units are cut from the best passages until these fill the budget so many times, and have so many tokens."""
MOST_READ = 100
"""Candidates that models read; of more, the most promising. MiniLM reads as many in two seconds of CPU time."""
LED_SHARE = 2
"""Characters of a list that is chosen as a whole with what leads into it, per token of the budget: about half of it."""
NEIGHBOUR = 0.8
"""What a unit's score counts for its neighbours: "He was born ..." follows the sentence that says who."""


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """One query with its candidates, without duplicates, and a budget.

    A search adds up `costs` and stays within `capacity`. What a set really costs is another number: units of one
    document share its title, overlapping chunks what they have in common, and under some tokenizers a joined text has
    more tokens than its parts. `BudgetedSelector` settles the difference by `slack` and `extra_separator_tokens`.

    Args:
        query: The question.
        candidates: Best first; repeated ids and texts and empty ones, which add nothing, are left out; see `_distinct`.
        tokens: Counts as the answering model does.
        budget_tokens: The most tokens that the prompt's text may cost.
        whole: The problem before its passages were cut into units; None if these are passages.
        slack: Tokens by which summed costs may exceed the budget, because the set costs less.
        extra_separator_tokens: What each join of two chunks costs beyond a separator.
        num_duplicates: Candidates left out because their id or text had occurred before, or they have no text.
        memory: Token counts, scorers and units, shared by copies with the same candidates.

    Raises:
        InputError: Two different texts share an id, or a similarity is of another kind than the others.
    """

    query: str
    candidates: Sequence[Candidate]
    tokens: TokenCounter
    budget_tokens: int
    whole: SelectionProblem | None = None
    slack: int = 0
    extra_separator_tokens: int = 0
    num_duplicates: int = 0
    memory: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        kept = _distinct(self.candidates)
        object.__setattr__(self, "num_duplicates", self.num_duplicates + len(self.candidates) - len(kept))
        object.__setattr__(self, "candidates", kept)
        object.__setattr__(self, "budget_tokens", int(self.budget_tokens))
        self.kind  # noqa: B018  (refuses candidates that cannot be compared)

    def prefiltered(self) -> SelectionProblem:
        """Return the problem with its most promising candidates, where models read them; see `promising`."""
        kept = promising(self.query, self.candidates, self.budget_tokens)
        return self if kept is self.candidates else replace(self, candidates=kept, memory={})

    @cached_property
    def chunks(self) -> list[Chunk]:
        """Distinct chunks, best first."""
        return [candidate.chunk for candidate in self.candidates]

    def units(self, size: int | None) -> list[list[Chunk]]:
        """Return the units of each chunk, `[n]`; see `corag.text.units.unit_size`."""
        most_led = min(LED_SHARE * self.budget_tokens, MAX_CHARACTERS)
        key = ("units", size, most_led)
        if key not in self.memory:
            cut = self.memory[key] = []
            for chunk in self.chunks:
                check_cancelled()
                cut.append(units(chunk, size, most_led))
        return self.memory[key]  # type: ignore[no-any-return]

    @cached_property
    def given_similarities(self) -> list[float | None]:
        """Similarity of each chunk, or of the passage that a unit is of, as it was given; None without one."""
        if self.whole is None:
            return [None if one.similarity is None else float(one.similarity) for one in self.candidates]
        known = dict(zip([chunk.id for chunk in self.whole.chunks], self.whole.given_similarities, strict=True))
        sources = [chunk.source.id if isinstance(chunk, UnitChunk) else chunk.id for chunk in self.chunks]
        return [known.get(chunk.id, known.get(source)) for chunk, source in zip(self.chunks, sources, strict=True)]

    @cached_property
    def kind(self) -> SimilarityKind:
        """What all similarities are; `rank` if there are none."""
        kinds: set[SimilarityKind] = {"rank" if c.similarity is None else c.kind for c in self.candidates} or {"rank"}
        if len(kinds) > 1:
            raise InputError(f"similarities of the kinds {', '.join(sorted(kinds))} cannot be compared; give one kind")
        return kinds.pop()

    @cached_property
    def relevance(self) -> FloatArray:
        """What compares the chunks, `[n]`, higher is better: their similarities, or, for `rank`, minus the index."""
        if self.kind == "rank":
            return -np.arange(len(self.candidates), dtype=np.float64)
        return np.array([candidate.similarity for candidate in self.candidates], dtype=np.float64)

    @cached_property
    def separator_tokens(self) -> int:
        """Tokens of one separator."""
        return int(self._counts()[0]) + self.extra_separator_tokens

    @cached_property
    def costs(self) -> Int64:
        """Tokens of each chunk by itself plus one separator, `[n]`."""
        return self._counts()[1:] + self.separator_tokens

    def _counts(self) -> Int64:
        if "tokens" not in self.memory:
            self.memory["tokens"] = token_counts(self.tokens, [SEPARATOR, *map(text_alone, self.chunks)])
        counts: Int64 = self.memory["tokens"]
        return counts

    @property
    def fitting(self) -> list[int]:
        """Candidates that fit alone, in the order given."""
        return [int(index) for index in np.flatnonzero(self.costs <= self.capacity)]

    @property
    def capacity(self) -> int:
        """The most that the summed `costs` of a combination may be.

        It is the budget plus one separator, since each cost includes a separator and k chunks are joined by k - 1, plus
        the slack.
        """
        return self.budget_tokens + self.separator_tokens + self.slack

    @cached_property
    def overlapping(self) -> list[tuple[int, int]]:
        """Pairs of passages that have text in common, as neighbours in a document or all of it; none for units."""
        places = [] if self.whole is not None else [(ranges_of(chunk), row) for row, chunk in enumerate(self.chunks)]
        rows = [row for _, row in sorted((place, row) for place, row in places if place is not None)]
        pairs = [(first, second, [self.chunks[first], self.chunks[second]]) for first, second in pairwise(rows)]
        overlapping = [(first, second) for first, second, pair in pairs if disjoint(pair) != pair]
        first_with: dict[str, int] = {}
        for row, chunk in enumerate(self.chunks if self.whole is None else ()):
            if (first := first_with.setdefault(body(chunk), row)) != row:
                overlapping.append((first, row))
        return overlapping

    @cached_property
    def most_shared_tokens(self) -> int:
        """The most tokens that two passages cost less together than one by one."""
        if not self.overlapping:
            return 0
        counts = token_counts(self.tokens, [self.assembled(pair)[0] for pair in self.overlapping])
        return int(max(self.summed_tokens(pair) - count for pair, count in zip(self.overlapping, counts, strict=True)))

    @property
    def passages(self) -> SelectionProblem:
        """The same problem before its candidates were cut into units."""
        return self.whole or self

    @property
    def ranking(self) -> list[int]:
        """Candidates best first, as the retriever ranked them: by `Candidate.rank`, else `by_relevance`."""
        ranks = [candidate.rank for candidate in self.candidates if candidate.rank is not None]
        if not ranks or len(ranks) < len(self.candidates):
            return self.by_relevance
        return [int(index) for index in np.argsort(ranks, kind="stable")]

    @property
    def by_relevance(self) -> list[int]:
        """Candidates by decreasing relevance; ties go to the one that was given first."""
        return [int(index) for index in np.argsort(-self.relevance, kind="stable")]

    def scorer(self, reranker: Reranker, window: WindowPolicy = DEFAULT_POLICY) -> CachedScorer:
        """Return the reranker bound to this query; it caches values as long as the problem lives.

        If the reranker declares a window, `window` says how longer orders are valued.
        """
        key = ("scorer", id(reranker), window)
        if key not in self.memory:
            pool: dict[str, Any] = {}
            if self.whole is not None and getattr(reranker, "reads_pool", False):
                pool["pool"] = self.whole.scorer(reranker, window).scorer
            bound = reranker.scorer(self.query, self.chunks, **pool)
            if isinstance(bound, WindowedScorer):
                bound.policy = window
            scorer = CachedScorer(bound, reranker.name, [chunk.id for chunk in self.chunks])
            # The reranker is stored beside its scorer, so that its id is not given to another object.
            self.memory[key] = (reranker, scorer)
        cached: CachedScorer = self.memory[key][1]
        return cached

    def summed_tokens(self, order: Order) -> int:
        """Return the tokens of the parts of an order and of what joins them, 0 for the empty one."""
        return int(self.costs[list(order)].sum()) - self.separator_tokens if order else 0

    def assembled(self, order: Order) -> tuple[str, list[Span]]:
        """Return the text of an order, and the span of each of its chunks in it; see `corag.text.units.assemble`."""
        return assemble([self.chunks[index] for index in order])


def cut_problem(
    passages: SelectionProblem, size: int | None, max_units: int = DEFAULT_MAX_UNITS, values: FloatArray | None = None
) -> SelectionProblem:
    """Return what a selector chooses from: the passages, or the most promising `max_units` of their units.

    With the `values` of all passages, `[n]`, those are the units of the best passages, else see `unit_candidates`.
    """
    if size is None:
        return passages
    if values is None:
        offered = unit_candidates(passages, size, max_units)
    else:
        offered = units_of_best(passages, size, max_units, values)
    offered = _each_once(offered)
    return SelectionProblem(passages.query, offered, passages.tokens, passages.budget_tokens, whole=passages)


def _each_once(offered: Sequence[Candidate]) -> list[Candidate]:
    """Return units without those that overlapping passages repeat; what leads into one may be in one passage alone."""
    rows: dict[str, int] = {}
    kept: list[Candidate] = []
    for one in offered:
        row = rows.setdefault(one.chunk.id, len(kept))
        if row == len(kept) or disjoint([kept[row].chunk, one.chunk])[1] is not None:
            kept.append(one)
        elif len(one.chunk.text) > len(kept[row].chunk.text):
            kept[row] = replace(kept[row], chunk=one.chunk)
    return kept


def units_of_best(passages: SelectionProblem, size: int, max_units: int, values: FloatArray) -> list[Candidate]:
    """Return the units of the passages of the highest values, `[n]`, with these as scores; at most `max_units`.

    Passages are cut, best first, until they fill the budget `CHOICE` times and have `LEAST_CHOICE` tokens.
    """
    offered: list[Candidate] = []
    left = max(CHOICE * passages.budget_tokens, LEAST_CHOICE)
    of_passages = passages.units(size)
    for index in np.argsort(-values, kind="stable").tolist():
        offered += [Candidate(unit, float(values[index]), "score") for unit in of_passages[index]]
        left -= int(passages.costs[index])
        if left <= 0 or len(offered) >= max_units:
            break
    return offered[:max_units]


def promising(query: str, candidates: Sequence[Candidate], budget_tokens: int) -> Sequence[Candidate]:
    """Return the candidates that models read: of more than `MOST_READ` the most promising, best first.

    Those are the best by rank or similarity, where all have one, else by BM25; the first among equals. More
    than `MOST_READ` are read where these do not fill twice the budget, a token being four bytes of UTF-8.
    """
    if len(candidates) <= MOST_READ:
        return candidates
    warn_once(
        f"more than {MOST_READ} texts were given: models read only the most promising, by their rank or similarity, "
        "else by BM25"
    )
    chunks = [candidate.chunk for candidate in candidates]
    ranks, similarities = [one.rank for one in candidates], [one.similarity for one in candidates]
    if None not in ranks:
        promise = -np.array(ranks, dtype=np.float64)
    elif None not in similarities:
        promise = np.array(similarities, dtype=np.float64)
    else:
        promise = Bm25().scorer(query, chunks)([(row,) for row in range(len(chunks))])
    best = np.argsort(-promise, kind="stable")
    sizes = np.array([len(chunk.text.encode("utf-8", "replace")) for chunk in chunks])[best]
    needed = int(np.searchsorted(sizes.cumsum(), 8 * budget_tokens)) + 1
    return [candidates[row] for row in best[: max(MOST_READ, needed)]]


def unit_candidates(passages: SelectionProblem, size: int, max_units: int) -> list[Candidate]:
    """Return the units of passages that are most promising, best first, with their scores.

    The score of a unit is the share of the question's words that it contains, by rarity among the units, plus the rank
    of its passage in the `ranking` of indices, from 1 down to 0. The `max_units` of the highest scores stay, and their
    neighbours.
    """
    of_passages, ranking = passages.units(size), passages.ranking
    cut = [of_passages[index] for index in ranking]
    parts = [part for of_passage in cut for part in of_passage]
    if not parts:
        return []
    ranks = np.repeat(np.arange(len(cut)), [len(of_passage) for of_passage in cut])
    scores = shared_words(passages.query, [part.text for part in parts]) + 1 - ranks / len(ranking)
    promise = scores.copy()
    same = ranks[1:] == ranks[:-1]
    promise[1:] = np.where(same, np.maximum(promise[1:], NEIGHBOUR * scores[:-1]), promise[1:])
    promise[:-1] = np.where(same, np.maximum(promise[:-1], NEIGHBOUR * scores[1:]), promise[:-1])
    kept = np.sort(np.argsort(-promise, kind="stable")[:max_units])
    best_first = kept[np.argsort(-scores[kept], kind="stable")]
    return [Candidate(parts[index], float(scores[index]), "score") for index in best_first]


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates without repeated ids and texts and empty ones, which add nothing; the best-ranked stay.

    The same text on another page, below the same heading, is repeated, too; see `content`.
    """
    by_id: dict[str, str] = {}
    seen: set[str | tuple[str, str]] = set()
    kept: list[Candidate] = []
    for candidate in candidates:
        chunk = candidate.chunk
        if by_id.setdefault(chunk.id, chunk.text) != chunk.text:
            raise InputError(f"two candidates with different texts share the id {chunk.id!r}; use unique ids")
        said = chunk.text if isinstance(chunk, UnitChunk) else content(chunk)
        if chunk.text.strip() and chunk.text not in seen and said not in seen:
            kept.append(candidate)
        seen |= {chunk.text, said}
    return kept
