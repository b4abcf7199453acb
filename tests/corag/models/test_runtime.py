"""Where models run: what is given, what stands for `auto`, what blocks and threads see."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import corag
from corag.models import runtime
from corag.models.runtime import Runtime, current, has_precision, in_runtime, record_use, recording, resolve_device


def torch_with(gpus=0, mps=False, capability=(9, 0)):
    """What is asked of a PyTorch that sees some GPUs."""
    cuda = SimpleNamespace(
        device_count=lambda: gpus,
        is_available=lambda: gpus > 0,
        get_device_name=lambda device: f"GPU {device}",
        get_device_capability=lambda device: capability,
    )
    metal = SimpleNamespace(is_available=lambda: mps, is_macos_or_newer=lambda *_: True)
    return SimpleNamespace(
        cuda=cuda, backends=SimpleNamespace(mps=metal), version=SimpleNamespace(hip=None), __version__="9.9"
    )


@pytest.mark.parametrize(
    ("see", "device", "precisions"),
    [
        ({"gpus": 2}, "cuda:0", ["fp32", "bf16", "bf16"]),
        ({"gpus": 1, "capability": (7, 5)}, "cuda:0", ["fp32", "fp32", "fp32"]),
        ({"mps": True}, "mps", ["fp32", "bf16", "bf16"]),
        ({}, "cpu", ["fp32", *["bf16" if has_precision("bf16") else "fp32"] * 2]),
    ],
)
def test_auto_takes_a_gpu_that_is_there(monkeypatch, see, device, precisions):
    monkeypatch.setattr(runtime, "require", lambda module, extra: torch_with(**see))
    monkeypatch.setattr(runtime, "_may_have_gpu", lambda: True)
    found = [resolve_device(role) for role in ("embedder", "reranker", "reader")]
    assert [placement.device for placement in found] == [device] * 3
    assert [placement.precision for placement in found] == precisions
    assert device != "cpu" or resolve_device("reranker", backend="torch").precision == "fp32"
    assert all(placement.backend == "torch" for placement in found) or device == "cpu"


def test_blocks_nest_and_end():
    assert current() == Runtime()
    with corag.runtime(device="cpu", precision="bf16"):
        assert resolve_device("embedder").precision == "bf16"
        with corag.runtime(batch_tokens=7):
            assert current() == Runtime(device="cpu", precision="bf16", batch_tokens=7)
            assert resolve_device("embedder", precision="auto").precision == "fp32"
        assert current().batch_tokens is None
    assert current() == Runtime()


def test_settings_of_a_command_hold_while_it_runs_and_its_defaults_change_nothing():
    @dataclass(frozen=True)
    class Settings(Runtime):
        question: str

    @in_runtime
    def run(config):
        return config.question, current()

    with corag.runtime(trust_remote_code=True, precision="bf16"):
        question, inside = run(Settings("why", device="cpu"))
    assert question == "why"
    assert inside == Runtime(device="cpu", precision="bf16", trust_remote_code=True)


def test_what_ran_is_recorded_once_and_for_threads_too():
    where = resolve_device("reranker", device="cpu", backend="torch")
    with recording() as outer:
        with recording() as inner, ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: record_use("minilm", where), range(4)))
            (row,) = inner()
        record_use("reader", where)
    record_use("later", where)
    assert [one["model"] for one in outer()] == ["minilm", "reader"]
    assert (row["device"], row["precision"]) == ("cpu", "fp32") and row["hardware"]
    assert row["backend"].startswith("torch ")
