"""Summaries of groups of candidates in the prompt: the base of `crag`, `edc2` and `raptor`, and `crag` itself.

`crag`: Akesson and Santos, "Clustered Retrieved Augmented Generation (CRAG)", sections 2.3 and 2.4: k-means on the
embeddings, a summary of each cluster, the summaries joined.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from common.checks import check_choice, check_count, check_seed
from corag.optional import require
from corag.registry import SUMMARIZERS
from corag.selectors.base import Choice, EmbeddingSelector, checked, fill, keep_best, unscored
from corag.selectors.car import renumbered
from corag.selectors.problem import SelectionProblem
from corag.summarizers.runs import Summary, summarize_all
from corag.text.documents import SEPARATOR
from corag.types import Summarizer, SummaryRequest, TokenCounter

MIN_SUMMARY_TOKENS = 32
"""The least tokens worth a summary; with a small budget fewer groups are summarized."""


class PromptPart(NamedTuple):
    """A part of the prompt, and the candidates that it was made from, or is."""

    text: str
    members: tuple[int, ...]
    kind: Literal["summary", "original"]


@dataclass(kw_only=True, eq=False)
class WithSummarizer(EmbeddingSelector):
    """A selector that embeds candidates and has groups of them summarized, by a `summarizer`: name or object."""

    summarizer: str | Summarizer = "extractive"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.summarizer = self._summarizer = SUMMARIZERS.make(self.summarizer, defaults={"tokenizer": self.tokenizer})


@dataclass(kw_only=True, eq=False)
class SummarizingSelector(WithSummarizer, ABC):
    """Groups candidates and puts a summary of each group into the prompt.

    The budget is divided equally among the groups; what a short group does not need goes to the others. If a summary
    fails, or says that the texts contain nothing relevant, the group's own chunks replace it, as far as they fit its
    share; the trace counts how often. The finished text is counted as a whole under the answering model's tokenizer,
    and parts that no longer fit are left out.

    Args:
        max_summary_tokens: The most tokens of a summary, however much budget is left; by default no limit of its own.
        with_query: Whether summaries keep what matters for the question, or what the texts say together.
    """

    max_summary_tokens: int | None = checked(None, check_count, hint="typical: 100; None sets no limit")
    with_query: bool = checked(True, check_choice, names=(True, False))

    @abstractmethod
    def _groups(self, problem: SelectionProblem) -> list[list[int]]:
        """Return groups of candidates, best group first; no candidate twice."""

    def _choose_many(self, problems: Sequence[SelectionProblem]) -> list[Choice]:
        plans = [self._plan(problem) for problem in problems]
        requests = [
            SummaryRequest(
                tuple(problem.chunks[index].text for index in group), share, problem.query if self.with_query else ""
            )
            for problem, plan in zip(problems, plans, strict=True)
            for group, share in plan
        ]
        summaries = iter(summarize_all(self._summarizer, requests))
        return [
            self._summarized(problem, [(*planned, next(summaries)) for planned in plan])
            for problem, plan in zip(problems, plans, strict=True)
        ]

    def _plan(self, problem: SelectionProblem) -> list[tuple[list[int], int]]:
        """Return the groups to summarize, best first, each with the tokens of its summary."""
        # Chunks of white space have nothing to summarize.
        groups = [[index for index in group if problem.chunks[index].text.strip()] for group in self._groups(problem)]
        groups = [group for group in groups if group][: max(1, problem.budget_tokens // MIN_SUMMARY_TOKENS)]
        available = problem.budget_tokens - problem.separator_tokens * (len(groups) - 1)
        sizes = [int(problem.costs[group].sum()) for group in groups]
        if self.max_summary_tokens is not None:
            sizes = [min(size, self.max_summary_tokens) for size in sizes]
        return list(zip(groups, shares(sizes, max(available, len(groups))), strict=True))

    def _summarized(self, problem: SelectionProblem, groups: Sequence[tuple[list[int], int, Summary]]) -> Choice:
        parts: list[PromptPart] = []
        for group, share, summary in groups:
            if summary.text:
                parts.append(PromptPart(summary.text, tuple(group), "summary"))
            else:
                kept = fill(group, problem.costs, share + problem.separator_tokens)
                parts += [PromptPart(problem.chunks[index].text, (index,), "original") for index in kept]
        summaries = [summary for *_, summary in groups]
        failures = [summary.failure for summary in summaries if summary.failure is not None]
        trace: dict[str, Any] = {
            "summarizer": self._summarizer.name,
            "summaries_failed": len(failures),
            "summaries_empty": sum(not summary.text for summary in summaries) - len(failures),
            **({"failure": failures[0]} if failures else {}),
        }
        return joined(problem, parts, self.tokenizer, trace)


def joined(
    problem: SelectionProblem, parts: Sequence[PromptPart], tokens: TokenCounter, trace: dict[str, Any]
) -> Choice:
    """Return a choice of the parts that fit, in order; if none does, the best chunk that fits.

    The joined text costs at most the budget as a whole. A part that does not fit beside those before it is skipped.
    """
    kept: list[PromptPart] = []
    text = ""
    for part in parts:
        longer = SEPARATOR.join([*(before.text for before in kept), part.text])
        if int(tokens.count([longer])[0]) <= problem.budget_tokens:
            kept.append(part)
            text = longer
    trace["pieces"] = [
        {"kind": part.kind, "sources": [problem.chunks[index].id for index in part.members]} for part in kept
    ]
    if not kept:
        return unscored(problem, keep_best(problem, 1), trace)
    return unscored(problem, tuple(dict.fromkeys(index for part in kept for index in part.members)), trace, text)


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """Divide a total, at least 1 for each: each gets what it needs or an equal part, whichever is less.

    `sizes` are what they need, at least 1 each. A share is from 1 to its size; together they are at most the total.
    """
    divided = [0] * len(sizes)
    left = total
    for number, index in enumerate(sorted(range(len(sizes)), key=lambda index: sizes[index])):
        divided[index] = max(1, min(sizes[index], left // (len(sizes) - number)))
        left -= divided[index]
    return divided


@dataclass(kw_only=True, eq=False)
class Crag(SummarizingSelector):
    """A summary of each cluster of candidates; the cluster of the most similar candidate first.

    Args:
        k: Clusters; the paper has 4, chosen by the elbow of the squared distances.
        with_query: The paper's summaries do not know the question, so that they can be made once for all questions.
        seed: Of the random starts of k-means.
    """

    k: int = checked(4, check_count, hint="typical: 4")
    with_query: bool = checked(False, check_choice, names=(True, False))
    seed: int = checked(0, check_seed)
    name = "crag"

    def _groups(self, problem: SelectionProblem) -> list[list[int]]:
        vectors = self._vectors(problem)
        count = min(self.k, len(np.unique(vectors, axis=0)))
        if count < 2:
            return [list(range(len(vectors)))]
        kmeans = require("sklearn.cluster", "clustering").KMeans(count, n_init=10, random_state=self.seed)
        labels = renumbered(kmeans.fit_predict(vectors).astype(np.int64))
        groups = [np.flatnonzero(labels == label).tolist() for label in range(labels.max() + 1)]
        return sorted(groups, key=lambda group: -max(problem.relevance[group]))
