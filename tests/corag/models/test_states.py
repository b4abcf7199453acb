"""Token states that are stored take the place of a pass of the encoder."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import DataError
from corag.memory import DiskStore
from corag.models.engine.engine import Engine
from corag.models.minilm import DIMENSION, minilm_encoder
from corag.models.states import STATES, StoredStates, states_key

pytestmark = pytest.mark.slow

pytest.importorskip("openvino")

TEXTS = ["", "Berlin", "Berlin is the capital of Germany.", "The Spree flows through it. " * 9, "Berlin"]


def made(num_tokens: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(num_tokens + 2, DIMENSION)).astype(np.float32)


@pytest.fixture
def stored(tmp_path):
    return StoredStates(tmp_path / "states.sqlite", "made", DIMENSION)


@pytest.fixture(scope="module")
def encoder():
    return minilm_encoder()


@pytest.fixture(scope="module")
def ids(encoder):
    return encoder.tokenize(TEXTS).ids


@given(st.sets(st.integers(0, len(TEXTS) - 1)))
def test_what_is_stored_is_read_and_the_rest_encoded(encoder, ids, tmp_path_factory, known):
    stored = StoredStates(tmp_path_factory.mktemp("states") / "states.sqlite", "made", DIMENSION)
    states = {row: made(len(ids[row]), len(ids[row])) for row in known}
    stored.put([ids[row] for row in known], list(states.values()))
    # Equal texts have equal states.
    same = {row: states[other] for row in range(len(ids)) for other in states if TEXTS[row] == TEXTS[other]}
    fresh = encoder.states(ids)
    with STATES.set(stored):
        found, vectors, tokens = encoder.states(ids), encoder.sentence_embeddings(ids), encoder.token_embeddings(ids)
    for row in range(len(ids)):
        expected = same[row].astype(np.float16).astype(np.float32) if row in same else fresh[row]
        tolerance = 0 if row in same else 1e-5  # batches of other shapes differ in the last digits
        np.testing.assert_allclose(found[row], expected, atol=tolerance)
        lengths = np.linalg.norm(expected[1:-1], axis=1, keepdims=True)
        np.testing.assert_allclose(tokens[row], expected[1:-1] / lengths, atol=1e-5)
        mean = expected.mean(axis=0)
        np.testing.assert_allclose(vectors[row], mean / np.linalg.norm(mean), atol=1e-5)
    assert np.array_equal(encoder.states(ids)[0], fresh[0])


def test_nothing_runs_for_what_is_stored(encoder, ids, stored, monkeypatch):
    stored.put(ids, encoder.states(ids))
    batches = []
    run = Engine.run
    monkeypatch.setattr(Engine, "run", lambda *given, **settings: batches.extend(given[1]) or run(*given, **settings))
    with STATES.set(stored):
        encoder.states(ids)
        encoder.sentence_embeddings(ids)
    assert batches == []


def test_states_of_another_model_are_not_seen(ids, stored):
    stored.put(ids[:1], [made(0, 0)])
    other = StoredStates(stored._table.path, "another", DIMENSION)
    assert set(stored.get(ids)) == {0} and other.get(ids) == {} and other.keys() == set()


def test_what_is_deleted_is_gone(ids, stored):
    stored.put(ids[:3], [made(len(row), 1) for row in ids[:3]])
    assert stored.keys() == {states_key(row) for row in ids[:3]}
    stored.delete([states_key(ids[1]), b"never there"])
    assert set(stored.get(ids)) == {0, 2}


@pytest.mark.parametrize("data", [b"odd", b"", b"a few" * 2])
def test_a_damaged_value_is_one_clear_error(ids, stored, data):
    DiskStore(stored._table.path, "states of made").put({states_key(ids[2]): data})
    with pytest.raises(DataError, match=r"states\.sqlite cannot be used: it holds a damaged value .* delete it"):
        stored.get(ids)
