"""What parts keep for later questions: one room for all of them, with a bound in bytes."""

import gc

import numpy as np
import pytest

import corag
from corag.errors import InputError
from corag.memory import ENTRY_BYTES, size_of, usages
from corag.models.cached import CachedEmbedder, room
from corag.models.engine.engine import Engine
from tests.corag.rerankers.evidence_worlds import WordEncoder

TEXTS = [
    f"Lake {number}\nIt is cold. It is {number} metres deep. Nobody swims in lake {number}." for number in range(40)
]


@pytest.fixture
def encoded(monkeypatch):
    """Texts that went through a model."""
    seen, run = [], Engine.run
    monkeypatch.setattr(Engine, "run", lambda self, ids, *more, **how: seen.extend(ids) or run(self, ids, *more, **how))
    return seen


def test_parts_share_a_room():
    with corag.runtime(cache_mb=7):
        first, second = room(None), room(None)
        own = room(3)
    assert first is second
    assert (first.max_bytes, own) == (7_000_000, 3_000_000)
    assert room(None).max_bytes == 400_000_000
    with pytest.raises(InputError, match="cache_mb must be at least 0, got -1"), corag.runtime(cache_mb=-1):
        pass


def test_rerankers_share_what_was_encoded(encoded):
    with corag.runtime(cache_mb=5.5):
        multihop, factoid = corag.reranker("minilm-multihop"), corag.reranker("minilm-factoid")
        maxsim, pooled = corag.reranker("minilm-maxsim"), corag.reranker("minilm-pooled")
    for one, other in ((multihop, factoid), (maxsim, pooled)):
        one.score("How deep is lake 1?", TEXTS[:3])
        del encoded[:]
        other.score("How deep is lake 1?", TEXTS[:3])
        assert len(encoded) == 1  # the question


@pytest.mark.parametrize("megabytes", [0, 0.2])
def test_each_text_is_encoded_once_whatever_is_kept(encoded, megabytes):
    offered = [corag.Candidate(corag.Chunk(text, text)) for text in TEXTS[:12]]
    with corag.runtime(cache_mb=megabytes):
        selector = corag.selector("corag", agent="none", unit="sentence")
        selector.select("How deep is lake 1?", offered, 60)
    assert len(encoded) == 1 + len(offered)


def texts_read():
    """What is known of texts, by id; those of other tests, too."""
    gc.collect()
    return {id(one) for one in gc.get_objects() if type(one).__name__ in ("Passage", "_Encoded")}


def test_all_that_a_selector_keeps_is_within_the_bound():
    before = texts_read()
    with corag.runtime(cache_mb=1.5):
        reranker = corag.reranker("minilm-sentence", encoder=WordEncoder())
        selector = corag.selector("corag", reranker=reranker, unit="sentence")
        store = room(None)
    for start in range(0, 36, 4):
        offered = [corag.Candidate(corag.Chunk(text, text)) for text in TEXTS[start : start + 4]]
        selector.select("How deep is lake 1?", offered, 60)
        kept = {usage.kind: usage for usage in usages() if usage.max_bytes == 1_500_000}
        taken = sum(size_of(key) + size_of(value) + ENTRY_BYTES for (*_, key), (value, _) in store.entries.items())
        # The sizes of words are estimated.
        assert taken == pytest.approx(sum(usage.nbytes for usage in kept.values()), rel=0.1)
        assert sum(usage.nbytes for usage in kept.values()) <= 1_500_000
    assert kept["passages"].misses > kept["passages"].entries > 0
    assert len(texts_read() - before) <= sum(usage.entries for usage in kept.values()) + 4


def test_a_vector_that_is_kept_keeps_no_others():
    embedder = CachedEmbedder(corag.embedder(), cache_mb=1)
    embedder.vectors(TEXTS[:3])
    kept = embedder._vectors.get(TEXTS[:3]).values()
    assert len(kept) == 3
    assert all(vector.base is None for vector in kept)
    assert any(usage.kind == "vectors" and usage.nbytes >= 3 * 384 * 8 for usage in usages())
    assert np.isfinite(list(kept)).all()
