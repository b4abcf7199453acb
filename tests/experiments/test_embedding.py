import numpy as np

import corag
from corag.types import Embedder
from experiments.embedding import RememberingEmbedder


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
    remembering = RememberingEmbedder(counting)
    assert isinstance(remembering, Embedder)
    assert (remembering.name, remembering.dimension) == ("minilm", 384)
    first = remembering.embed(["one", "two", "one"])
    second = remembering.embed(["two", "three"])
    assert counting.asked == ["one", "two", "three"]
    assert first.dtype == np.float32 and first.shape == (3, 384)
    np.testing.assert_array_equal(first[[0, 1]], first[[2, 1]])
    np.testing.assert_array_equal(second[0], first[1])
    np.testing.assert_allclose(first, corag.embedder().embed(["one", "two", "one"]), atol=1e-5)
    assert remembering.embed([]).shape == (0, 384)
