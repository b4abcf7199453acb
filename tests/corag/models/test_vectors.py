"""What an embedder returns is looked at before anybody compares with it."""

import numpy as np
import pytest

import corag
from corag.errors import ModelError
from tests.corag.worlds import EMBEDDING

TEXTS = ["The lake is 310 metres deep.", "It is salty.", "Kell is a village.", "The Oro is a river."]


class Embedder:
    """Unit vectors, spoilt by a function."""

    name, dimension = "spoilt", 4

    def __init__(self, spoil=lambda vectors: vectors):
        self.spoil = spoil

    def embed(self, texts):
        vectors = np.array([[1, len(text), text.count("e"), 2] for text in texts], dtype=np.float32)
        return self.spoil(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def with_nan(vectors):
    vectors[-1, 0] = np.nan
    return vectors


SPOILT = {
    "nan": (with_nan, "length nan for"),
    "infinite": (lambda vectors: np.full_like(vectors, np.inf), "length"),
    "zero": (lambda vectors: vectors * 0, "length 0 for"),
    "not unit": (lambda vectors: vectors * 2, "length 2 for"),
    "too wide": (lambda vectors: np.hstack([vectors, vectors]), "shape"),
    "too few": (lambda vectors: vectors[1:], "shape"),
    "too many": (lambda vectors: np.vstack([vectors, vectors]), "shape"),
    "one axis": (lambda vectors: vectors[:, 0], "shape"),
    "ragged": (lambda vectors: [row[: place + 1] for place, row in enumerate(vectors.tolist())], "shape"),
    "words": (lambda vectors: [["a"] * 4 for _ in vectors], "no array of numbers"),
    "nothing": (lambda vectors: None, "shape ()"),
}


# What measures distances can do without a direction.
@pytest.mark.parametrize("kind", [kind for kind in SPOILT if kind not in ("zero", "not unit")])
@pytest.mark.parametrize("method", [*EMBEDDING, "adaptive-k", "similarity-cutoff"])
def test_every_selector_says_what_is_wrong_with_an_embedder(method, kind):
    spoil, said = SPOILT[kind]
    candidates = [corag.Candidate(corag.Chunk(f"d{number}", text)) for number, text in enumerate(TEXTS)]
    with pytest.raises(ModelError, match="embedder 'spoilt' must return finite unit vectors of shape") as caught:
        corag.selector(method, embedder=Embedder(spoil)).select("How deep is it?", candidates, 100)
    assert "\n" not in str(caught.value) and (said in str(caught.value) or kind == "ragged")
