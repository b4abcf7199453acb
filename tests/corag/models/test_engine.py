"""Our own encoder's engine: packing, halving where the memory is full, and that backends and precisions agree."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag import Candidate, Chunk
from corag.errors import InputError, ModelError
from corag.models import openvino, runtime
from corag.models.engine import MAX_PADDING, EncoderSource, pack, pad, run_packed
from corag.models.runtime import place
from corag.rerankers.cosine import MiniLMCosine

lengths = st.lists(st.integers(1, 300) | st.sampled_from([100, 101, 102]), max_size=60)
limits = st.integers(1, 2000)


@given(lengths, limits)
def test_every_row_is_in_one_batch_that_is_not_too_large_and_wastes_little(lengths, limit):
    batches = pack(lengths, limit)
    rows = [row for batch in batches for row in batch.tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)

    def wastes(rows):
        inside = [lengths[row] for row in rows]
        area = len(inside) * max(inside)
        return (area > limit and len(inside) > 1) or area - sum(inside) > MAX_PADDING * area

    assert not any(map(wastes, batches))
    # None was closed before its time.
    assert all(wastes([*batch, following[0]]) for batch, following in itertools.pairwise(batches))


def test_packing_and_padding_by_hand():
    # 100 + 100 + 90 wastes 10 of 300, below 5%; with 89 it would be 21 of 400, above; 89 + 10 wastes 79 of 178.
    assert [batch.tolist() for batch in pack([10, 100, 89, 90, 100], 4096)] == [[1, 4, 3], [2], [0]]
    assert [batch.tolist() for batch in pack([50, 60], 20)] == [[1], [0]]
    assert pack([], 20) == []
    padded, mask = pad([np.array([7, 8, 9]), np.array([5])], 1)
    assert (padded.tolist(), mask.tolist()) == ([[7, 8, 9], [5, 1, 1]], [[1, 1, 1], [1, 0, 0]])


def test_a_batch_that_does_not_fit_is_halved_and_a_single_row_is_an_error():
    def run(rows):
        if len(rows) > capacity:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")
        return len(rows)

    capacity = 2
    batches = list(run_packed(run, [10] * 7, 1000))
    assert [size for _, size in batches] == [1, 2, 2, 2]
    assert sorted(row for rows, _ in batches for row in rows.tolist()) == list(range(7))
    capacity = 0
    with pytest.raises(ModelError, match="max_tokens"):
        list(run_packed(run, [10], 1000))
    with pytest.raises(RuntimeError, match="another"):
        list(run_packed(lambda rows: (_ for _ in ()).throw(RuntimeError("another")), [1], 10))


# --- Backends ---


QUESTIONS = ["Which river flows through Berlin?", "What do bananas look like?", "Where is the capital of Germany?"]
CHUNKS = [
    Chunk(f"c{rank}", text)
    for rank, text in enumerate(
        [
            "Berlin is the capital of Germany. It lies on the river Spree.",
            "The Rhine is a river that flows through Cologne, not through Berlin.",
            "Bananas are yellow when they are ripe, and green before.",
            "The capital of Germany was Bonn, too, from 1949 to 1990; the Rhine flows there.",
            "The Spree flows through Berlin.",
        ]
    )
]
ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(range(5), size)]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "precision"), [("torch", "bf16"), ("openvino", "fp32"), ("openvino", "bf16")])
def test_backends_value_and_select_alike(backend, precision):
    if backend == "openvino":
        pytest.importorskip("openvino")
    try:
        reranker = MiniLMCosine(backend=backend, precision=precision)
    except InputError as error:
        pytest.skip(str(error))
    exact = MiniLMCosine(backend="torch", precision="fp32")
    candidates = [Candidate(chunk, 1 - 0.1 * rank) for rank, chunk in enumerate(CHUNKS)]
    for question in QUESTIONS:
        values, expected = (one.scorer(question, CHUNKS)(ORDERS) for one in (reranker, exact))
        ranks = [np.argsort(np.argsort(column)) for column in (values, expected)]
        assert np.corrcoef(*ranks)[0, 1] > 0.999
        assert np.abs(values - expected).max() < (1e-5 if precision == "fp32" else 1e-2)
        chosen = [
            corag.selector("naive", reranker=one).select(question, candidates, 40).ids for one in (reranker, exact)
        ]
        assert chosen[0] == chosen[1]


@pytest.mark.slow
def test_a_precision_that_the_cpu_lacks(monkeypatch):
    library = pytest.importorskip("openvino")

    class OlderCore(library.Core):
        def get_property(self, device, name):
            return ["FP32", "INT8"] if name == "OPTIMIZATION_CAPABILITIES" else super().get_property(device, name)

    monkeypatch.setattr(library, "Core", OlderCore)
    runtime.has_precision.cache_clear()
    try:
        with pytest.raises(InputError, match="bf16"):
            openvino.openvino_forward(EncoderSource("none", "0" * 64, (), pytest.fail), "bf16")
        assert place("reranker", device="cpu", precision="bf16").backend == "torch"
        assert place("reranker", device="cpu").backend == "openvino"
    finally:
        runtime.has_precision.cache_clear()


@pytest.mark.slow
def test_openvino_reports_to_nobody():
    pytest.importorskip("openvino")
    program = (
        "import sys\n"
        "from corag.models.minilm import minilm_encoder\n"
        "minilm_encoder('openvino')\n"
        "assert not any(name.startswith('openvino_telemetry.') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm-cosine", "minilm-softsim", "minilm-multihop", "minilm-sentence"])
def test_shipped_rerankers_through_pytorch(name):
    device = "cuda" if __import__("torch").cuda.is_available() else "cpu"
    usual, by_torch = corag.reranker(name), corag.reranker(name, backend="torch", device=device, precision="fp32")
    for question in QUESTIONS:
        values, expected = (one.scorer(question, CHUNKS)(ORDERS) for one in (by_torch, usual))
        np.testing.assert_allclose(values, expected, atol=2e-4)
