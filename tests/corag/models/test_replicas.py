"""Models on several devices, and batches that do not fit their memory."""

import logging
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag.errors import ModelError
from corag.models.engine.replicas import Job, Replicas, is_out_of_memory
from corag.models.ran import Ran, recording

RECORD = Ran("big", "cuda:0", "a GPU", "bf16", "torch 9.9")


class Memory:
    """A model that takes so many tokens at once, and notes what it was given."""

    def __init__(self, room, error=MemoryError):
        self.room, self.error, self.given = room, error, []

    def __call__(self, tokens):
        self.given.append(sum(tokens))
        if sum(tokens) > self.room:
            raise self.error(f"out of memory: {sum(tokens)}")
        return [2 * one for one in tokens]


def job(lengths):
    return Job(
        lambda model, rows: model([lengths[row] for row in rows]),
        lambda rows: len(rows) * max(lengths[row] for row in rows),
    )


def ran(replicas, batches, lengths):
    """Every row's value."""
    found = {}
    for rows, values in replicas.run([np.array(batch, dtype=np.intp) for batch in batches], job(lengths)):
        assert not set(found) & set(rows.tolist())
        found |= dict(zip(rows.tolist(), values, strict=True))
    return [found[row] for row in range(len(lengths))]


def test_a_batch_is_halved_until_it_fits_and_later_ones_are_cut_at_once(caplog):
    model = Memory(room=10)
    with caplog.at_level(logging.WARNING, logger="corag"):
        assert ran(Replicas([model], RECORD), [range(8), range(8, 16)], [4] * 16) == [8] * 16
    # 32 and 16 do not fit, 8 does; from then on nothing above 8 is tried.
    assert model.given == [32, 16, *[8] * 8]
    (first, second) = caplog.records
    assert "a batch of 32 tokens did not fit the memory of cuda:0 (a GPU); batches have at most 16" in first.message
    assert "at most 8 from now on: --batch_tokens 8" in second.message


def test_a_single_text_that_does_not_fit_is_an_error_that_says_what_helps():
    model = Memory(room=10)
    with pytest.raises(
        ModelError, match=r"'big' ran out of memory on cuda:0 \(a GPU\) with a single text of 11 tokens;"
    ):
        ran(Replicas([model], RECORD), [range(4)], [4, 11, 4, 4])
    assert 11 in model.given


@pytest.mark.slow
def test_what_pytorch_says_when_memory_runs_out():
    torch = pytest.importorskip("torch")
    model = Memory(room=4, error=torch.OutOfMemoryError)
    assert ran(Replicas([model]), [range(4)], [2] * 4) == [4] * 4
    # As the CPU's and Apple's allocators say it.
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert is_out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_other_errors_come_through():
    def broken(_):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        ran(Replicas([broken]), [range(2)], [1, 1])


@given(st.lists(st.integers(1, 9), max_size=40), st.integers(1, 4), st.integers(9, 40), st.integers(1, 6))
def test_values_depend_neither_on_the_number_of_devices_nor_on_their_memory(lengths, devices, room, size):
    batches = [range(start, min(start + size, len(lengths))) for start in range(0, len(lengths), size)]
    replicas = Replicas([Memory(room) for _ in range(devices)])
    assert ran(replicas, batches, lengths) == [2 * length for length in lengths]


def test_devices_work_at_the_same_time_and_batches_come_in_order():
    together = threading.Barrier(2, timeout=10)

    def model(tokens):
        together.wait()
        return tokens

    order = [rows.tolist() for rows, _ in Replicas([model, model]).run(np.array_split(np.arange(8), 4), job([1] * 8))]
    assert order == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_an_error_on_one_of_several_devices_comes_through_and_they_go_on_working():
    replicas = Replicas([Memory(5), Memory(5)], RECORD)
    with pytest.raises(ModelError, match="single text of 7 tokens"):
        ran(replicas, [[0], [1], [2]], [1, 7, 1])
    assert ran(replicas, [[0], [1]], [3, 4]) == [6, 8]


def test_a_model_that_runs_is_recorded():
    with recording() as record:
        list(Replicas([Memory(5)], RECORD).run([np.arange(1)], job([1])))
    assert record() == [
        {"model": "big", "device": "cuda:0", "hardware": "a GPU", "precision": "bf16", "backend": "torch 9.9"}
    ]
