"""The benchmark of a GPU, at reduced size on the CPU: what it writes, and what ends it."""

import json
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

from safetensors.torch import load_file, save_file  # noqa: E402

from corag.text.tokens import model_folder  # noqa: E402
from experiments.bench.gpu.__main__ import STAGES, main  # noqa: E402
from experiments.bench.gpu.stage import OutOfTimeError, Run  # noqa: E402
from tests.paths import ROOT  # noqa: E402

HEAVY = ("openvino", "lancedb", "wandb", "FlagEmbedding", "sentence_transformers")


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """MiniLM's files, its weights in fp16."""
    folder = tmp_path_factory.mktemp("weights")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model_folder() / name, folder / name)
    tensors = load_file(model_folder() / "model.safetensors")
    halves = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_everything_is_measured_on_a_cpu_too(half, tmp_path, monkeypatch, capsys):
    # An import of any of these would fail, but for those that other tests have imported: natively compiled ones must
    # not be loaded twice.
    for name in set(HEAVY).difference(sys.modules):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("corag.models.runtime.openvino_has", lambda _: False)
    arguments = ["--out", str(tmp_path), "--weights", str(half), "--size", "small", "--device", "cpu"]
    assert main(arguments) == 0, capsys.readouterr().out
    result = json.loads((tmp_path / "gpu.json").read_text())
    stages = result["stages"]
    assert list(stages) == list(STAGES) and not any("error" in stage for stage in stages.values())
    exact = [row for row in stages["parity"]["rows"] if row["precision"] == "fp32"]
    assert len(exact) == 11 and all(row["largest_difference"] < 1e-5 for row in exact)
    rounded = [row for row in stages["parity"]["rows"] if row["precision"] == "bf16"]
    assert all(row["largest_difference"] < 0.1 for row in rounded) and any(row["largest_difference"] for row in rounded)
    settings = {(row["model"], row["setting"].split(",")[0]) for row in stages["speed"]["rows"]}
    assert {("minilm", "bare"), ("cross-encoder", "bare"), ("minilm-reader", "answers")} < settings
    assert all(row["tokens_per_s"] > 0 for row in stages["speed"]["rows"])
    assert all(0 <= row["core_share"] <= 1 and row["orders"] <= 8 for row in stages["orders"]["rows"])
    assert {row["policy"] for row in stages["orders"]["rows"]} >= {"paper", "bayesian", "beam"}
    [labelled] = stages["label"]["rows"]
    assert labelled["questions"] == 2 and labelled["orders_scored"] > 0
    [trained] = stages["train_agent"]["rows"]
    assert trained["device"] == "cpu" and trained["questions_per_s"] > 0
    assert all(stage["process_peak_gb"] > 0 for stage in stages.values())
    page = (tmp_path / "gpu.md").read_text()
    assert page == capsys.readouterr().out and "| cross-encoder | bayesian |" in page


STAGES_THAT_END = """
import sys, time
from pathlib import Path
from experiments.bench.gpu.stage import Run

def endless(stage):
    stage.row(number=1)
    while True:
        time.sleep(0.01)

def patient(stage):
    stage.row(number=2)
    while True:
        stage.check()

def broken(stage):
    raise ValueError("no such thing")

run = Run(Path(sys.argv[1]), "cpu", 60, {"device": "cpu"})
for name, seconds, work in (("endless", 0.1, endless), ("patient", 0.1, patient), ("broken", 5, broken)):
    run.stage(name, seconds, work)
"""


@pytest.mark.slow
def test_a_stage_that_takes_too_long_ends_and_leaves_its_rows(tmp_path):
    # A process of its own: the alarm is the whole process's, and a test runner uses it as well.
    subprocess.run([sys.executable, "-c", STAGES_THAT_END, str(tmp_path)], check=True, cwd=ROOT, timeout=120)
    stages = json.loads((tmp_path / "gpu.json").read_text())["stages"]
    assert [stage["rows"] for stage in stages.values()] == [[{"number": 1}], [{"number": 2}], []]
    assert [stage["error"].split(":")[0] for stage in stages.values()] == [*[OutOfTimeError.__name__] * 2, "ValueError"]


def test_no_stage_begins_after_the_time_of_all(tmp_path):
    run = Run(tmp_path, "cpu", 0, {})
    run.stage("late", 5, lambda stage: pytest.fail("the stage runs"))
    assert run.result["stages"]["late"]["error"] == "no time was left"


def test_the_stages_have_less_than_nine_minutes():
    assert sum(seconds for _, seconds in STAGES.values()) <= 540


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "nowhere"], "nowhere lacks config.json; give a folder with the files of sentence-transformers/"),
        (["--device", "cuda:99"], "device 'cuda:99' is not there"),
        (["--device", "tpu"], "device 'tpu' is unknown"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, capsys, arguments, message):
    assert main(["--out", str(tmp_path), "--size", "small", *arguments]) == 2
    assert message in capsys.readouterr().err
