"""The contracts of parts, as classes to subclass: a subclass with one fixture tests a part of your own.

    import pytest
    from corag.testing import RerankerContract

    class TestMine(RerankerContract):
        @pytest.fixture
        def reranker(self):
            return Mine()

Each class names its fixture. Whoever collects tests as pytest does can run them; nothing beyond numpy is imported.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from corag.text.documents import SEPARATOR
from corag.types import Answer, BatchReader, Candidate, Chunk, Embedder, FloatArray, Reader, Reranker, Selector

QUESTION = "Which river flows through the capital of Germany?"
PASSAGES = (
    "Berlin\nBerlin is the capital of Germany. It lies on the river Spree.",
    "Rhine\nThe Rhine is a river that flows through Cologne, not through Berlin.",
    "Bananas are yellow; bananas, bananas everywhere.",
    "Germany, Germany, Germany: the capital of Germany was Bonn, too.",
    "The Spree flows through Berlin, flows and flows.",
)
BLANK = ("", " \n", "\x00")
ODD = (*BLANK, "🦔🌊\u200d", "القدس עיר", "e\u0301\u0301 \ufffd", "[SEP] [CLS] [PAD]", "a" * 300)
ODD_QUESTIONS = (QUESTION, "the of", "🦔", "ברלין?")
LONG = "river " * 600
"""Longer than the windows of most encoders."""
TOLERANCE = 1e-5
"""How far values may differ with the batch that a text is in."""


class EmbedderContract:
    """An embedder gives every text a unit vector, whatever is embedded beside it. Fixture: `embedder`."""

    def test_it_is_an_embedder(self, embedder: Embedder) -> None:
        """It has a name, a dimension and `embed`."""
        assert isinstance(embedder, Embedder) and embedder.name

    def test_every_text_has_one_unit_vector(self, embedder: Embedder) -> None:
        """Vectors are float32, `[n, dimension]`, of length 1; of no texts, `[0, dimension]`."""
        for texts in ([], [*PASSAGES, *ODD, LONG]):
            vectors = embedder.embed(texts)
            assert vectors.shape == (len(texts), embedder.dimension) and vectors.dtype == np.float32
            np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=TOLERANCE)

    def test_a_vector_does_not_depend_on_other_texts(self, embedder: Embedder) -> None:
        """Alone, together and in any order a text has the same vector."""
        texts = (*PASSAGES, *ODD)
        vectors = embedder.embed(texts)
        np.testing.assert_allclose(np.concatenate([embedder.embed([text]) for text in texts]), vectors, atol=TOLERANCE)
        np.testing.assert_allclose(embedder.embed(texts[::-1])[::-1], vectors, atol=TOLERANCE)


class RerankerContract:
    """A reranker values texts, and orders of chunks, on the scale [0, 1]. Fixture: `reranker`."""

    def test_it_is_a_reranker(self, reranker: Reranker) -> None:
        """It has a name, `score` and `scorer`."""
        assert isinstance(reranker, Reranker) and reranker.name

    def test_a_value_does_not_depend_on_other_texts(self, reranker: Reranker) -> None:
        """Texts have the same values together, alone and in any order; no texts have no values."""
        texts = [*PASSAGES, *ODD]
        for query in ODD_QUESTIONS:
            together = reranker.score(query, texts)
            _check_values(together, len(texts))
            np.testing.assert_allclose(reranker.score(query, texts[::-1])[::-1], together, atol=TOLERANCE)
        alone = [reranker.score(QUESTION, [text])[0] for text in texts]
        np.testing.assert_allclose(reranker.score(QUESTION, texts), alone, atol=TOLERANCE)
        _check_values(reranker.score(QUESTION, []), 0)

    def test_blank_texts_are_worth_nothing(self, reranker: Reranker) -> None:
        """Blank texts and orders of them have the value 0."""
        assert reranker.score(QUESTION, BLANK).tolist() == [0.0, 0.0, 0.0]
        assert reranker.scorer(QUESTION, _chunks(BLANK[:2]))([(0,), (1, 0)]).tolist() == [0.0, 0.0]

    def test_an_order_does_not_depend_on_other_orders(self, reranker: Reranker) -> None:
        """Orders have the same values together and alone."""
        scorer = reranker.scorer(QUESTION, _chunks(PASSAGES))
        draw = random.Random(0)
        orders = [tuple(draw.sample(range(len(PASSAGES)), length)) for length in (1, 2, 3, 3, 5)]
        values = scorer(orders)
        _check_values(values, len(orders))
        np.testing.assert_allclose([scorer([order])[0] for order in orders], values, atol=TOLERANCE)

    def test_order_matters_only_if_the_scorer_says_so(self, reranker: Reranker) -> None:
        """If `order_matters` is false, all permutations of an order have one value, to the last digit."""
        for texts in (PASSAGES[:3], (ODD[3], "", PASSAGES[3]), ODD[:2]):
            scorer = reranker.scorer(QUESTION, _chunks(texts))
            sizes = range(1, len(texts) + 1)
            orders = [order for size in sizes for order in itertools.permutations(range(len(texts)), size)]
            values = scorer(orders)
            _check_values(values, len(orders))
            if not scorer.order_matters:
                by_set = dict(zip(orders, values.tolist(), strict=True))
                assert values.tolist() == [by_set[tuple(sorted(order))] for order in orders]

    def test_orders_beyond_the_window_are_counted_once(self, reranker: Reranker) -> None:
        """`num_truncated` counts distinct orders with a text that was cut; 0 for a reranker without a window."""
        scorer = reranker.scorer(QUESTION, _chunks(["Berlin", LONG]))
        scorer([(0,)])
        assert scorer.num_truncated == 0
        for _ in range(2):
            scorer([(1,), (0, 1), (1,)])
        assert scorer.num_truncated == (2 if getattr(reranker, "max_tokens", None) else 0)


class SelectorContract:
    """A selector keeps the budget, for one question and for many. Fixture: `selector`."""

    budgets = (1, 8, 30, 200, 2000)
    """Token budgets that are tried; a subclass may set others."""

    def test_it_is_a_selector(self, selector: Selector) -> None:
        """It has a name and the three methods."""
        assert isinstance(selector, Selector) and selector.name

    def test_no_selection_costs_more_than_the_budget(self, selector: Selector) -> None:
        """Selections cost at most the budget, count the tokens of their text, and repeat no chunk."""
        for budget in self.budgets:
            for pool in (candidates(PASSAGES), candidates(ODD), candidates(PASSAGES[:1])):
                selection = selector.select(QUESTION, pool, budget)
                assert selection.budget_tokens == budget
                assert 0 <= selection.cost_tokens <= budget
                assert len(set(selection.ids)) == len(selection.ids)
                if (tokens := getattr(selector, "tokenizer", None)) is not None:
                    assert selection.cost_tokens == (tokens.count([selection.text])[0] if selection.text else 0)

    def test_no_candidates_are_no_text(self, selector: Selector) -> None:
        """Of no candidates it selects nothing."""
        selection = selector.select(QUESTION, [], 100)
        assert (selection.text, selection.cost_tokens, selection.ids) == ("", 0, ())

    def test_the_same_input_has_the_same_selection(self, selector: Selector) -> None:
        """Again, among others and awaited, a question gets the same selection."""
        pools = [candidates(PASSAGES), candidates(PASSAGES[:2]), candidates(PASSAGES)]
        first, *others = [_essence(selector.select(QUESTION, pool, 30)) for pool in pools]
        assert others[-1] == first
        together = selector.select_many([QUESTION] * len(pools), pools, 30)
        assert [_essence(one) for one in together] == [first, *others]
        assert _essence(asyncio.run(selector.aselect(QUESTION, pools[0], 30))) == first

    def test_repeated_candidates_count_once(self, selector: Selector) -> None:
        """Candidates with the id or the text of a better one change nothing, and the trace counts them."""
        pool = candidates(PASSAGES)
        repeated = [*pool, Candidate(pool[0].chunk, 0.01), Candidate(Chunk("copy", PASSAGES[1]), 0.01)]
        selection, plain = selector.select(QUESTION, repeated, 40), selector.select(QUESTION, pool, 40)
        assert (selection.ids, selection.text) == (plain.ids, plain.text)
        assert selection.trace.duplicates_dropped == plain.trace.duplicates_dropped + 2


class ReaderContract:
    """A reader answers from the context that it is given. Fixture: `reader`."""

    contexts = ("", "  \n\n ", PASSAGES[0], SEPARATOR.join(PASSAGES), SEPARATOR.join(ODD[3:]), LONG)
    """Contexts that are tried; a subclass may set others."""

    def test_it_is_a_reader(self, reader: Reader) -> None:
        """It has a name and `answer`."""
        assert isinstance(reader, Reader) and reader.name

    def test_an_answer_refers_to_its_context(self, reader: Reader) -> None:
        """Spans are within the context, in order and not blank; `chunk` is one of its parts."""
        for context in self.contexts:
            answer = reader.answer(QUESTION, context)
            assert isinstance(answer, Answer)
            ends = [0, *itertools.chain.from_iterable(answer.spans), len(context)]
            assert ends == sorted(ends) and all(context[start:end].strip() for start, end in answer.spans)
            assert answer.chunk is None or 0 <= answer.chunk < len(context.split(SEPARATOR))
            assert answer.confidence is None or 0 <= answer.confidence <= 1
            assert answer.text == answer.text.strip()

    def test_many_are_read_as_each_alone(self, reader: Reader) -> None:
        """The same question gets the same answer, alone or in a batch."""
        alone = [reader.answer(QUESTION, context) for context in self.contexts]
        together = [reader.answer(QUESTION, context) for context in self.contexts]
        if isinstance(reader, BatchReader):
            together = reader.answer_many([QUESTION] * len(self.contexts), self.contexts)
            assert reader.answer_many([], []) == []
        assert [(one.text, one.spans) for one in together] == [(one.text, one.spans) for one in alone]
        for one, other in zip(together, alone, strict=True):
            assert (one.confidence is None) == (other.confidence is None)
            assert abs((one.confidence or 0) - (other.confidence or 0)) < 1e-3


def candidates(texts: Sequence[str]) -> list[Candidate]:
    """Return candidates `c0`, `c1`, ... with falling cosines."""
    return [Candidate(chunk, 0.9 - rank / 20) for rank, chunk in enumerate(_chunks(texts))]


def _chunks(texts: Sequence[str]) -> list[Chunk]:
    return [Chunk(f"c{rank}", text) for rank, text in enumerate(texts)]


def _check_values(values: FloatArray, num_values: int) -> None:
    assert values.shape == (num_values,) and values.dtype == np.float64
    assert ((values >= 0) & (values <= 1)).all()


def _essence(selection: Any) -> tuple[Any, ...]:
    return selection.ids, selection.text, selection.cost_tokens
