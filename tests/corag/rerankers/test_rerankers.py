"""The contract of rerankers for every registered one, and each one's values against another way to get them."""

import math

import bm25s
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag.rerankers.bm25 import Bm25
from corag.rerankers.cosine import MiniLMCosine
from corag.testing import ODD, PASSAGES, QUESTION, RerankerContract
from corag.text.documents import SEPARATOR
from tests.chat_server import ChatServer, weighing
from tests.corag.models.worlds import save_bert
from tests.fakes import chunks_of

pytestmark = pytest.mark.slow


@pytest.fixture(params=corag.RERANKERS.names, scope="module")
def reranker(request, tmp_path_factory):
    """Each by its name, with a model where it brings none."""
    with ChatServer(weighing) as server:
        reader = f"ollama(model=llama3.1:8b, host={server.host})"
        needed = {"llm": {"reader": reader}, "cross-encoder": {"model": save_bert(tmp_path_factory.mktemp("bert"))}}
        yield corag.reranker(request.param, **needed.get(request.param, {}))


class TestShippedRerankers(RerankerContract):
    def test_order_matters_where_it_is_said_to(self, reranker):
        scorer = reranker.scorer(QUESTION, chunks_of(PASSAGES))
        forward, backward = scorer([(0, 1, 2), (2, 1, 0)])
        assert scorer.order_matters == (abs(forward - backward) > 1e-4)


texts = st.sampled_from([*PASSAGES, *ODD]) | st.text(max_size=20)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(texts, min_size=1, max_size=4),
    st.lists(st.permutations(range(4)), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_cosine_of_an_order_is_that_of_its_joined_text(batch, permutations, size):
    reranker = MiniLMCosine()
    kept = [tuple(index for index in order if index < len(batch))[:size] for order in permutations]
    scorer = reranker.scorer(QUESTION, chunks_of(batch))
    joined = [SEPARATOR.join(batch[index] for index in order) for order in kept]
    assert scorer(kept) == pytest.approx(reranker.score(QUESTION, joined), abs=1e-5)


def by_bm25s(query, passages, k1, b):
    """Scores of bm25s with Lucene's formula, as a share of the weights of the question's terms."""
    split = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "return_ids": False, "show_progress": False}
    passage_terms = bm25s.tokenize(passages, **split)
    index = bm25s.BM25(method="lucene", k1=k1, b=b, dtype="float64")
    index.index(passage_terms, show_progress=False)
    terms = [term for term in dict.fromkeys(bm25s.tokenize([query], **split)[0]) if term in index.vocab_dict]
    frequencies = [sum(term in passage for passage in passage_terms) for term in terms]
    most = sum(math.log(1 + (len(passages) - n + 0.5) / (n + 0.5)) for n in frequencies)
    return index.get_scores(terms) / most


@pytest.mark.parametrize("query", [QUESTION, "the Rhine and the Spree", "capital capital unknown"])
@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.4), (0.9, 0.0), (2.0, 1.0)])
def test_bm25_equals_bm25s_on_single_chunks(query, k1, b):
    values = Bm25(k1=k1, b=b).scorer(query, chunks_of(PASSAGES))([(row,) for row in range(len(PASSAGES))])
    assert values == pytest.approx(by_bm25s(query, list(PASSAGES), k1, b), abs=1e-6)
