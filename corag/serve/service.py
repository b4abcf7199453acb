"""What CORAG does as a service: it ranks documents and selects texts for a prompt, as plain data.

`corag.serve.api` serves it over HTTP, `corag.serve.tools` as tools of an assistant. A client may name shipped parts
only: no server, model, file or key; see `corag.registry.check_untrusted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from corag.candidates import Text, as_candidates
from corag.checks import check_budget, check_count, check_query
from corag.errors import InputError, ModelError
from corag.index import ChunkIndex, Retrieval
from corag.models.cached import vectors_by
from corag.naming import parse, spelling
from corag.registry import RERANKERS, SELECTORS, check_untrusted
from corag.registry import tokens as make_tokens
from corag.reply import embedder_of
from corag.selecting import with_missing_cosines
from corag.selectors.problem import SelectionProblem
from corag.selectors.reranking import DEFAULT_RERANKER
from corag.text.documents import citation
from corag.text.tokens import token_counts
from corag.text.units import source_of
from corag.types import Candidate, Chunk, Reranker, Selection, Selector

MAX_RESULTS = 200


@dataclass(kw_only=True, eq=False)
class Service:
    """Ranks and selects; threads may share it.

    Attributes:
        method: Selector, if a request names none.
        budget: Token budget, if a request sets none.
        tokenizer: Counts tokens as the answering model does.
        agent: Agent of method `corag`, as for `corag ask`.
        index: Searched if a request has no texts.
        num_candidates: Chunks of the index to choose from.
        retrieval: How the index finds them.
    """

    method: str = "corag"
    budget: int = 1024
    tokenizer: str = "minilm"
    agent: str = "none"
    index: ChunkIndex | None = None
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"

    def __post_init__(self) -> None:
        check_budget(self.budget, "budget")
        check_count("num_candidates", self.num_candidates, "typical: 10-50", most=MAX_RESULTS)
        self.tokens = make_tokens(self.tokenizer)
        token_counts(self.tokens, ["."])  # refuses a wrong name now, not with the first request
        self._selector = lru_cache(maxsize=16)(self._new_selector)
        self._selector(None, None, None)  # refuses a wrong method, and loads its models
        self._reranker = lru_cache(maxsize=4)(self._new_reranker)
        self._embedder = None if self.index is None else embedder_of(self.index)

    def select(self, query: str, texts: Sequence[Text] | None = None, **choice: Any) -> dict[str, Any]:
        """Select texts for a prompt; the arguments are the fields of `/v1/select`.

        Returns:
            `text`, `cost_tokens`, `budget_tokens`, `value`, `method`, `trace`, and `chunks` in the order of the text:
            `index`, the position in `texts` (None for chunks of the index or of a summary), `id`, `text`, `citation`,
            `span` in the text, `tokens`, `value` alone where the method computes it, and `metadata`.

        Raises:
            InputError: A value breaks a rule; nothing is selected.
            ModelError: The method names something that a request may not choose.
        """
        candidates, selection = self.chosen(query, texts, **choice)
        positions: dict[str, int] = {}
        for position, candidate in enumerate([] if texts is None else candidates):
            positions.setdefault(candidate.chunk.id, position)
        trace = selection.trace
        values: Sequence[float | None] = trace.chunk_values or (None,) * len(selection)
        return {
            "text": selection.text,
            "chunks": [
                {
                    "index": positions.get(source_of(chunk).id),
                    "id": chunk.id,
                    "text": chunk.text,
                    "citation": citation(chunk),
                    "span": list(selection.spans[row]) if selection.spans else None,
                    "tokens": trace.chunk_tokens[row] if trace.chunk_tokens else None,
                    "value": values[row],
                    "metadata": dict(chunk.metadata),
                }
                for row, chunk in enumerate(selection.chunks)
            ],
            **selection.summary(),
        }

    def rerank(
        self,
        query: str,
        documents: Sequence[str | Mapping[str, Any]],
        top_n: int | None = None,
        return_documents: bool | str = False,
        model: str | None = None,
        budget_tokens: int | None = None,
        **choice: Any,
    ) -> dict[str, Any]:
        """Score documents, or select them under a budget, in the form of reranking services.

        Without a budget all documents are scored, because clients put the scores beside their documents. A budget
        leaves out what adds less than it costs: then `method` and `unit` count, by default whole documents.

        Returns:
            `results`, best first: `index` in `documents`, `relevance_score`, and `document` with `text` if asked for;
            `model`, what scored or selected; `usage`; and, with a budget, `selection`. A score is the reranker's value
            of the document (of chosen sentences, the best) alone, 0 for an empty one; of a method without a reranker
            the similarity, or 1 / rank.
        """
        texts = [_text_of(document, position) for position, document in enumerate(documents)]
        check_query(query)
        if budget_tokens is None:
            if given := [name for name, value in choice.items() if value is not None]:
                raise InputError(
                    f"{given[0]} says how to select; send budget_tokens, too, or leave it out to score all"
                )
            scored: dict[str, Any] = self._scored(query, texts, model)
        else:
            scored = self._ranked(query, texts, budget_tokens, **choice)
        scores, shown = scored.pop("scores"), scored.pop("texts", texts)
        ranked = sorted(scores, key=lambda index: -scores[index])[:top_n]
        results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in ranked]
        if str(return_documents).lower() == "true":  # Xinference's clients send a string
            results = [{**result, "document": {"text": shown[result["index"]]}} for result in results]
        return {"results": results, **scored}

    def _scored(self, query: str, texts: Sequence[str], model: str | None) -> dict[str, Any]:
        """Return the score of each text by a reranker."""
        reranker = self._reranker(model)
        rows = {text: row for row, text in enumerate(dict.fromkeys(text for text in texts if text.strip()))}
        candidates = [Candidate(Chunk(str(row), text)) for text, row in rows.items()]
        problem = SelectionProblem(query, candidates, self.tokens, self.budget)
        values = problem.scorer(reranker)([(row,) for row in range(len(rows))]) if rows else ()
        read = int(token_counts(self.tokens, [query, *rows]).sum())
        return {
            "scores": {index: float(values[rows[text]]) if text in rows else 0.0 for index, text in enumerate(texts)},
            "model": spelling(reranker),
            "usage": {"total_tokens": read},
        }

    def _ranked(self, query: str, texts: Sequence[str], budget_tokens: int, **choice: Any) -> dict[str, Any]:
        """Return the scores of the texts that are selected, and what was selected of each."""
        candidates = [Candidate(Chunk(str(index), text)) for index, text in enumerate(texts) if text.strip()]
        selection = self._selected(query, candidates, budget_tokens, default_unit="passage", **choice)
        known = selection.trace.chunk_values or selection.trace.chunk_similarities
        scores: dict[int, float] = {}
        chosen: dict[int, str] = {}
        for row, chunk in enumerate(selection.chunks):
            index = int(source_of(chunk).id)
            score = known[row] if known else None
            score = 1 / (row + 1) if score is None else float(score)
            scores[index] = max(score, scores.get(index, score))
            chosen[index] = f"{chosen[index]}\n{chunk.text}" if index in chosen else chunk.text
        usage = {"total_tokens": selection.cost_tokens}
        summary = selection.summary()
        return {"scores": scores, "texts": chosen, "model": selection.method, "usage": usage, "selection": summary}

    def chosen(
        self, query: str, texts: Sequence[Text] | None = None, **choice: Any
    ) -> tuple[list[Candidate], Selection]:
        """Return what there is to choose from, and what is chosen of it; see `select`."""
        candidates = self._retrieved(query) if texts is None else as_candidates(texts)
        return candidates, self._selected(query, candidates, **choice)

    def _retrieved(self, query: str) -> list[Candidate]:
        if self.index is None or self._embedder is None:
            raise InputError("there are no texts, and the server has no index; send texts, or start it with --index")
        vector = vectors_by(self._embedder, [query], query=True)[0]
        return self.index.retrieve(query, vector, self.num_candidates, self.retrieval)

    def _selected(
        self,
        query: str,
        candidates: Sequence[Candidate],
        budget_tokens: int | None = None,
        method: str | None = None,
        unit: str | None = None,
        default_unit: str | None = None,
    ) -> Selection:
        budget = self.budget if budget_tokens is None else budget_tokens
        check_budget(budget)
        named = None if method is None else str(check_untrusted(SELECTORS, method, "the request"))
        selector = self._selector(named, unit, default_unit)
        candidates = with_missing_cosines(query, candidates, budget, selector)
        return selector.select(query, candidates, budget)

    def _new_selector(self, method: str | None, unit: str | None, default_unit: str | None) -> Selector:
        named = self.method if method is None else method
        offered: dict[str, Any] = {"tokenizer": self.tokens, "agent": self.agent}
        offered |= {} if default_unit is None else {"unit": default_unit}
        settings = {} if unit is None else {"unit": unit}
        return SELECTORS.make(named, defaults=offered, **settings)

    def _new_reranker(self, model: str | None) -> Reranker:
        """Return the reranker that a request names; for a name that is foreign here, that of the server's method."""
        with suppress(InputError, ModelError):
            if model is not None and RERANKERS.knows(model):
                return RERANKERS.make(check_untrusted(RERANKERS, model, "the request"))
        return RERANKERS.make(parse(self.method).settings.get("reranker") or DEFAULT_RERANKER)


def _text_of(document: object, position: int) -> str:
    text = document.get("text") if isinstance(document, Mapping) else document
    if not isinstance(text, str):
        raise InputError(f"documents[{position}] has no text; send strings or objects with a 'text'")
    return text
