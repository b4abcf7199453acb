"""What selectors share that put summaries of groups of candidates into the prompt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corag.checks import check_choice, check_count
from corag.models.cached import CachedEmbedder
from corag.naming import Spelling
from corag.registry import SUMMARIZERS
from corag.selectors.base import BudgetedSelector, Choice, fill, keep_best, unscored
from corag.selectors.problem import SelectionProblem
from corag.summarizers.runs import Summary, summarize_all, summary_store
from corag.text.documents import SEPARATOR
from corag.types import Embedder, Summarizer, SummaryRequest, TokenCounter

Fallback = Literal["original", "skip"]


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of the prompt.

    Attributes:
        text: The part.
        members: Candidates that it was made from, or is.
        kind: `summary`, or `original` for the text of a candidate.
    """

    text: str
    members: tuple[int, ...]
    kind: Literal["summary", "original"]


@dataclass(kw_only=True, eq=False)
class WithSummarizer(BudgetedSelector):
    """A selector that embeds candidates and has groups of them summarized.

    Args:
        embedder: Embeds question, chunks and summaries; name or object.
        summarizer: Name or object.
        store: SQLite file that keeps summaries between runs.
    """

    embedder: Spelling | Embedder | None = None
    summarizer: Spelling | Summarizer = "extractive"
    store: str | Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._embedder = CachedEmbedder(self.embedder or self._default_embedder)
        self._store = summary_store(self.store)
        self.summarizer = self._summarizer = SUMMARIZERS.offer(self.summarizer, {"tokens": self.tokens})

    @property
    def _default_embedder(self) -> str:
        return "minilm"


@dataclass(kw_only=True, eq=False)
class SummarizingSelector(WithSummarizer):
    """Groups candidates and puts a summary of each group into the prompt.

    The budget is shared out equally among the groups; what a short group does not need goes to the others. Where a
    summary fails, or says that the texts hold nothing that matters, the group's own chunks stand in, as far as they
    fit its share; the trace counts how often. The finished text is counted as a whole under the answering model's
    tokenizer, and parts that no longer fit are left out.

    Args:
        fallback: What replaces a missing summary: the group's chunks (`original`, which the paper of `edc2` found
            better) or nothing (`skip`).
        min_summary_tokens: The least tokens worth a summary; with a small budget fewer groups are summarized.
        max_summary_tokens: The most tokens of a summary, however much budget is left; by default no limit of its own.
        with_query: Whether summaries keep what matters for the question, or what the texts say together.

    Other settings: see `WithSummarizer`.
    """

    fallback: Fallback = "original"
    min_summary_tokens: int = 32
    max_summary_tokens: int | None = None
    with_query: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("fallback", self.fallback, Fallback)
        check_count("min_summary_tokens", self.min_summary_tokens, "32 is usual")
        if self.max_summary_tokens is not None:
            check_count("max_summary_tokens", self.max_summary_tokens, "100 is usual; None sets no limit")

    @abstractmethod
    def _groups(self, problem: SelectionProblem) -> list[list[int]]:
        """Return groups of candidates, best group first; no candidate twice."""

    def _choose(self, problem: SelectionProblem) -> Choice:
        return self._choose_many([problem])[0]

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        plans = [self._plan(problem) for problem in problems]
        requests = [
            SummaryRequest(
                tuple(problem.chunks[index].text for index in group),
                tuple(problem.chunks[index].id for index in group),
                share,
                problem.query if self.with_query else "",
            )
            for problem, plan in zip(problems, plans, strict=True)
            for group, share in plan
        ]
        summaries = iter(summarize_all(self._summarizer, requests, store=self._store))
        return [
            self._summarized(problem, [(group, share, next(summaries)) for group, share in plan])
            for problem, plan in zip(problems, plans, strict=True)
        ]

    def _plan(self, problem: SelectionProblem) -> list[tuple[list[int], int]]:
        """Return the groups to summarize, best first, each with the tokens of its summary."""
        budget_tokens = problem.budget_tokens
        # Chunks of white space have nothing to summarize.
        groups = [[index for index in group if problem.chunks[index].text.strip()] for group in self._groups(problem)]
        groups = [group for group in groups if group][: max(1, budget_tokens // self.min_summary_tokens)]
        room = budget_tokens - problem.separator_tokens * (len(groups) - 1)
        sizes = [int(problem.costs[group].sum()) for group in groups]
        if self.max_summary_tokens is not None:
            sizes = [min(size, self.max_summary_tokens) for size in sizes]
        return list(zip(groups, shares(sizes, max(room, len(groups))), strict=True))

    def _summarized(self, problem: SelectionProblem, parts: Sequence[tuple[list[int], int, Summary]]) -> Choice:
        pieces: list[PromptPart] = []
        for group, share, summary in parts:
            if summary.text:
                pieces.append(PromptPart(summary.text, tuple(group), "summary"))
            elif self.fallback == "original":
                kept = fill(group, problem.costs, share + problem.separator_tokens)
                pieces += [PromptPart(problem.chunks[index].text, (index,), "original") for index in kept]
        summaries = [summary for *_, summary in parts]
        failures = [summary.failure for summary in summaries if summary.failure is not None]
        trace: dict[str, Any] = {
            "summarizer": self._summarizer.name,
            "summarizer_calls": sum(summary.num_calls for summary in summaries),
            "summaries_failed": len(failures),
            "summaries_empty": sum(not summary.text for summary in summaries) - len(failures),
            **({"failure": failures[0]} if failures else {}),
        }
        return joined(problem, pieces, self.tokens, trace, fallback=self.fallback == "original")


def joined(
    problem: SelectionProblem,
    pieces: Sequence[PromptPart],
    tokens: TokenCounter,
    trace: dict[str, Any],
    *,
    fallback: bool = True,
) -> Choice:
    """Return a choice of the pieces that fit, in order; of none, with `fallback`, the best chunk that fits."""
    kept, text = fit(pieces, tokens, problem.budget_tokens)
    sources = [{"kind": one.kind, "sources": [problem.chunks[index].id for index in one.members]} for one in kept]
    trace = {**trace, "pieces": sources}
    if not kept:
        return unscored(problem, keep_best(problem, 1) if fallback else (), trace)
    return unscored(problem, tuple(dict.fromkeys(index for one in kept for index in one.members)), trace, text)


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """Share out a total, at least 1 for each: everybody gets what it needs or an equal part, whichever is less.

    `sizes` are what they need, at least 1 each. A share is from 1 to its size; together they are at most the total.
    """
    given = [0] * len(sizes)
    left, open_ones = total, len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
        given[index] = max(1, min(sizes[index], left // open_ones))
        left -= given[index]
        open_ones -= 1
    return given


def fit(pieces: Sequence[PromptPart], tokens: TokenCounter, budget_tokens: int) -> tuple[list[PromptPart], str]:
    """Return the pieces that fit, in order, and their joined text, which costs at most the budget as a whole.

    A piece that does not fit beside those before it is passed over.
    """
    kept: list[PromptPart] = []
    text = ""
    for piece in pieces:
        longer = SEPARATOR.join([*(one.text for one in kept), piece.text])
        if int(tokens.count([longer])[0]) <= budget_tokens:
            kept.append(piece)
            text = longer
    return kept, text
