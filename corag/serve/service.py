"""What CORAG does as a service: it ranks documents and selects texts for a prompt, as plain data.

`corag.serve.api` serves it over HTTP, `corag.serve.tools` as tools of an assistant. A client may name shipped parts
only: no server, model, file or key; see `corag.untrusted.check_untrusted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import uuid4

from common.checks import check_query
from common.configuration import parse, spelling
from corag.candidates import Text, as_candidates
from corag.errors import InputError, ModelError
from corag.index import ChunkIndex
from corag.registry import RERANKERS, SELECTORS
from corag.registry import tokens as make_tokens
from corag.reply import Reply, ask, chunk_rows, embedder_of
from corag.selectors.problem import SelectionProblem
from corag.text.documents import content
from corag.text.tokens import token_counts
from corag.text.units import source_of
from corag.types import Candidate, Chunk, Reranker
from corag.untrusted import check_untrusted

Scored = tuple[int, float, str]
"""The position of a document, its score, and its text."""


@dataclass(kw_only=True, eq=False)
class Service:
    """Ranks and selects; threads may share it.

    Attributes:
        method: Selector, if a request names none.
        budget: Token budget, if a request sets none.
        tokenizer: Counts tokens as the answering model does.
        index: Searched if a request has no texts.
        num_candidates: Chunks of the index to choose from.
    """

    method: str = "corag"
    budget: int = 1024
    tokenizer: str = "minilm"
    index: ChunkIndex | None = None
    num_candidates: int = 20

    def __post_init__(self) -> None:
        self.tokens = make_tokens(self.tokenizer)
        self._reranker = lru_cache(maxsize=4)(self._new_reranker)
        # What is wrong is refused now, not with the first request; and models are loaded.
        token_counts(self.tokens, ["."])
        self.chosen("question", [])
        if self.index is not None:
            embedder_of(self.index)

    def select(self, query: str, texts: Sequence[Text] | None = None, **choice: Any) -> dict[str, Any]:
        """Select texts for a prompt; the arguments are the fields of `/v1/select`.

        Returns:
            `text`, `cost_tokens`, `budget_tokens`, `value`, `method`, `trace`, and `chunks` in the order of the text:
            `index`, the position in `texts` (None for chunks of the index or of a summary), and what `chunk_rows` says.

        Raises:
            InputError: A value breaks a rule; nothing is selected.
            ModelError: The method names something that a request may not choose.
        """
        given = None if texts is None else as_candidates(texts)
        selection = self.chosen(query, given, **choice).selection
        # With the text, because chunks of a tree have ids of their own, which may be those of texts.
        positions = {(one.chunk.id, one.chunk.text): position for position, one in reversed([*enumerate(given or ())])}
        rows = zip(map(source_of, selection.chunks), chunk_rows(selection), strict=True)
        chunks = [{"index": positions.get((source.id, source.text)), **row} for source, row in rows]
        return {"text": selection.text, "chunks": chunks, **selection.summary()}

    def rerank(
        self,
        query: str,
        documents: Sequence[str | Mapping[str, Any]],
        top_n: int | None = None,
        return_documents: bool | str = False,
        model: str | None = None,
        **choice: Any,
    ) -> dict[str, Any]:
        """Score documents, or select them under a budget, in the form of reranking services.

        Without a budget all documents are scored, because clients put the scores beside their documents. A budget
        leaves out what adds less than it costs: then `method` and `unit` count, by default whole documents.

        Returns:
            `id`, of this reply; `results`, best first: `index` in `documents`, `relevance_score`, and `document` with
            `text` if asked for; `model`, what scored or selected; `usage`; and, with a budget, `selection`. A score is
            the reranker's value of the document (of chosen sentences, the best) alone, 0 for an empty one; of a method
            without a reranker the similarity, or 1 / rank.
        """
        texts: list[Any] = [one.get("text") if isinstance(one, Mapping) else one for one in documents]
        if None in texts:
            raise InputError(f"documents[{texts.index(None)}] has no text; send strings or objects with a 'text'")
        given = [Candidate(Chunk(str(index), text)) for index, text in enumerate(texts)]
        check_query(query)
        if "budget_tokens" in choice:
            rows, described = self._selected(query, given, **choice)
        elif choice:
            raise InputError(f"{min(choice)} says how to select; send budget_tokens, too, or leave it out to score all")
        else:
            rows, described = self._scored(query, given, model)
        with_text = str(return_documents).lower() == "true"  # Xinference's clients send a string
        results = [
            {"index": index, "relevance_score": float(score)} | ({"document": {"text": text}} if with_text else {})
            for index, score, text in sorted(rows, key=lambda row: -row[1])[:top_n]
        ]
        return {"id": f"rerank-{uuid4().hex}", "results": results, **described}

    def _scored(self, query: str, given: Sequence[Candidate], model: str | None) -> tuple[list[Scored], dict[str, Any]]:
        """Return all that is given with its score by a reranker."""
        reranker = self._reranker(model)
        problem = SelectionProblem(query, given, self.tokens, self.budget)  # without empty texts and repeated ones
        orders = [(row,) for row in range(len(problem.chunks))]
        values = problem.scorer(reranker)(orders) if orders else ()
        value_of = {content(chunk): value for chunk, value in zip(problem.chunks, values, strict=True)}
        rows = [(row, value_of.get(content(one.chunk), 0.0), one.chunk.text) for row, one in enumerate(given)]
        tokens = token_counts(self.tokens, [query, *(chunk.text for chunk in problem.chunks)])
        return rows, {"model": spelling(reranker), "usage": {"total_tokens": int(tokens.sum())}}

    def _selected(self, query: str, given: Sequence[Candidate], **choice: Any) -> tuple[list[Scored], dict[str, Any]]:
        """Return what is selected of all that is given, each with its score, and how it was selected."""
        selection = self.select(query, given, **choice, whole=True)
        parts: dict[int, list[tuple[float, str]]] = {}
        for rank, row in enumerate(selection.pop("chunks"), 1):
            if row["index"] is None:
                raise InputError(
                    f"method {selection['method']!r} of the server selects from a corpus of its own, not from the "
                    "documents; name another method, or ask /v1/select"
                )
            score = next(one for one in (row["value"], row["similarity"], 1 / rank) if one is not None)
            parts.setdefault(row["index"], []).append((score, row["text"]))
        rows = [(index, max(part)[0], "\n".join(text for _, text in part)) for index, part in parts.items()]
        del selection["text"]
        usage = {"total_tokens": selection["cost_tokens"]}
        return rows, {"model": selection["method"], "usage": usage, "selection": selection}

    def chosen(self, query: str, texts: Sequence[Text] | None = None, *, whole: bool = False, **choice: Any) -> Reply:
        """Return what is chosen, and what is left out; see `select`. With `whole`, passages if no unit is named."""
        source = self.index if texts is None else texts
        if source is None:
            raise InputError("there are no texts, and the server has no index; send texts, or start it with --index")
        method = choice.pop("method", None)
        part = parse(self.method) if method is None else check_untrusted(SELECTORS, method, "the request")
        if "unit" in choice:
            part = part.with_settings(unit=choice.pop("unit"))  # in place of the server's
        elif whole:
            part = SELECTORS.check(part, defaults={"unit": "passage"})
        settings = {"budget_tokens": self.budget, "num_candidates": self.num_candidates, **choice}
        return ask(query, source, method=part, tokenizer=self.tokens, **settings)

    def _new_reranker(self, model: str | None) -> Reranker:
        """Return the reranker that a request names; for a name that is foreign here, that of the server's method."""
        with suppress(InputError, ModelError):
            return RERANKERS.make(check_untrusted(RERANKERS, model, "the request"))
        return RERANKERS.make(parse(self.method).settings.get("reranker") or "fused")  # the default of `corag`


def wrong_fields(errors: Iterable[Mapping[str, Any]]) -> str:
    """Return which fields of a request pydantic refuses, and why, for an error."""
    return "; ".join(f"{'.'.join(map(str, one['loc'][:3]))}: {one['msg']}" for one in errors)
