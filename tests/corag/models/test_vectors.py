"""What an embedder returns is looked at before anybody compares with it."""

import numpy as np
import pytest

import corag
from corag.errors import ModelError
from corag.models.cached import vectors_by
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


SPOILT = {
    "nan": lambda vectors: vectors * np.array([np.nan, 1, 1, 1]),
    "too few": lambda vectors: vectors[1:],
    "ragged": lambda vectors: [row[: index + 1] for index, row in enumerate(vectors.tolist())],
    "nothing": lambda vectors: None,
    "longer": lambda vectors: vectors * 2,
}


@pytest.mark.parametrize("spoil", SPOILT.values())
def test_vectors_are_finite_and_of_one_length(spoil):
    with pytest.raises(ModelError, match="spoilt"):
        vectors_by(Embedder(spoil), TEXTS, unit=True)


@pytest.mark.parametrize("method", [*EMBEDDING, "adaptive-k", "similarity-cutoff"])
def test_every_selector_says_what_is_wrong_with_an_embedder(method):
    candidates = [corag.Candidate(corag.Chunk(f"d{number}", text)) for number, text in enumerate(TEXTS)]
    for spoil in (SPOILT["nan"], SPOILT["too few"]):
        with pytest.raises(ModelError, match="spoilt"):
            corag.selector(method, embedder=Embedder(spoil)).select("How deep is it?", candidates, 100)
