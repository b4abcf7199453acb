"""Token states that are at hand take the place of a pass of the encoder."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag.models.minilm import DIMENSION, STATES, minilm_encoder, states_key

pytestmark = pytest.mark.slow

pytest.importorskip("openvino")

TEXTS = ["", "Berlin", "Berlin is the capital of Germany.", "The Spree flows through it. " * 3, "Berlin"]


class Known(dict):
    """States by key."""

    def get(self, ids):
        return {row: self[key] for row, key in enumerate(map(states_key, ids)) if key in self}


@settings(max_examples=8)
@given(st.sets(st.integers(0, len(TEXTS) - 1)))
def test_known_states_are_used_and_the_rest_encoded(rows):
    encoder, rng = minilm_encoder(), np.random.default_rng(1)
    ids = encoder.tokenize(TEXTS).ids
    known = Known({states_key(ids[row]): rng.normal(size=(len(ids[row]) + 2, DIMENSION)) for row in rows})
    fresh = encoder.states(ids)
    with STATES.set(known.get):
        states, vectors, tokens = encoder.states(ids), encoder.sentence_embeddings(ids), encoder.token_embeddings(ids)
    for row, key in enumerate(map(states_key, ids)):
        expected = known[key] if key in known else fresh[row]
        tolerance = 0 if key in known else 1e-5  # batches of other shapes differ in the last digits
        np.testing.assert_allclose(states[row], expected, atol=tolerance)
        np.testing.assert_allclose(
            tokens[row], expected[1:-1] / np.linalg.norm(expected[1:-1], axis=1, keepdims=True), atol=1e-5
        )
        mean = expected.mean(axis=0)
        np.testing.assert_allclose(vectors[row], mean / np.linalg.norm(mean), atol=1e-5)
