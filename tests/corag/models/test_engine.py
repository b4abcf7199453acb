"""Our own encoder's engine: packing, halving where the memory is full, and that backends and precisions agree."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag import Candidate, Chunk
from corag.errors import InputError, ModelError
from corag.models.engine import MAX_PADDING, pack, run_packed
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
    assert all(wastes([*batch, following[0]]) for batch, following in itertools.pairwise(batches))


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


QUESTION = "Which river flows through Berlin?"
TEXTS = [
    "Berlin is the capital of Germany. It lies on the river Spree.",
    "The Rhine is a river that flows through Cologne, not through Berlin.",
    "Bananas are yellow when they are ripe, and green before.",
    "The Spree flows through Berlin.",
]
CHUNKS = [Chunk(f"c{rank}", text) for rank, text in enumerate(TEXTS)]
ORDERS = [order for size in (1, 2) for order in itertools.permutations(range(4), size)]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_half_the_precision_values_and_selects_alike(backend):
    try:
        reranker = MiniLMCosine(backend=backend, precision="bf16")
    except InputError as error:
        pytest.skip(str(error))
    exact = MiniLMCosine(backend="openvino", precision="fp32")
    values, expected = (each.scorer(QUESTION, CHUNKS)(ORDERS) for each in (reranker, exact))
    assert np.abs(values - expected).max() < 1e-2
    candidates = [Candidate(chunk, 1 - 0.1 * rank) for rank, chunk in enumerate(CHUNKS)]
    chosen = [corag.selector("naive", reranker=each).select(QUESTION, candidates, 40).ids for each in (reranker, exact)]
    # With the eight bits of bf16, nearly equal values may change places.
    assert set(chosen[0]) == set(chosen[1])


@pytest.mark.slow
def test_openvino_reports_neither_import_nor_conversion_to_its_maker(tmp_path):
    code = """
import torch
from corag.models.runtime import import_openvino, without_telemetry
openvino = import_openvino()
from openvino_telemetry import Telemetry
consents = [Telemetry().consent]
with without_telemetry():
    openvino.convert_model(torch.nn.Linear(2, 2), example_input=torch.ones(1, 2))
print(consents + [Telemetry().consent])
"""
    # Consent is noted below HOME; without a note it is taken as given.
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split("\n")[-2] == "[False, False]" and not [*tmp_path.rglob("*telemetry*")]
