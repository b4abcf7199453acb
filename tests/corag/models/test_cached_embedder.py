import numpy as np

import corag
from corag.models.cached import CachedEmbedder
from corag.types import Embedder


class Counting:
    def __init__(self):
        self._embedder = corag.embedder()
        self.name, self.dimension = self._embedder.name, self._embedder.dimension
        self.asked = []

    def embed(self, texts):
        self.asked += texts
        return self._embedder.embed(texts)


def test_each_text_is_embedded_once():
    counting = Counting()
    cached = CachedEmbedder(counting)
    assert isinstance(cached, Embedder)
    assert (cached.name, cached.dimension) == ("minilm", 384)
    first = cached.embed(["one", "two", "one"])
    second = cached.embed(["two", "three"])
    assert counting.asked == ["one", "two", "three"]
    assert first.dtype == np.float32 and first.shape == (3, 384)
    np.testing.assert_array_equal(first[[0, 1]], first[[2, 1]])
    np.testing.assert_array_equal(second[0], first[1])
    np.testing.assert_allclose(first, corag.embedder().embed(["one", "two", "one"]), atol=1e-5)
    assert cached.embed([]).shape == (0, 384)


def test_a_vector_does_not_depend_on_its_neighbours():
    embedder = CachedEmbedder(corag.embedder(), batch=1, cache_mb=0)
    assert isinstance(embedder, Embedder)
    assert (embedder.name, embedder.dimension) == ("minilm", 384)
    texts = ["one", "two and a few words more", "three"]
    together = embedder.embed(texts)
    assert together.dtype == np.float32
    for row, text in enumerate(texts):
        np.testing.assert_array_equal(together[row], embedder.embed([text])[0])
    np.testing.assert_allclose(together, corag.embedder().embed(texts), atol=1e-5)
    assert embedder.embed([]).shape == (0, 384)
