"""What OpenVINO compiled is kept for later processes, and done without where that is damaged or cannot be kept."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from corag.models.engine import compiled
from corag.models.engine.compiled import FOLDER, compile_file, trim

openvino = pytest.importorskip("openvino")

SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
INPUT = np.arange(12, dtype=np.float32).reshape(3, 4)
COMPILE = """
import sys
import openvino
from pathlib import Path
from corag.models.engine.compiled import compile_file
compile_file(openvino.Core(), Path(sys.argv[1]), {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small converted model: a product with weights."""
    ops = openvino.opset13
    given = ops.parameter([-1, 4], np.float32, name="x")
    weights = np.random.default_rng(0).normal(size=(4, 50_000)).astype(np.float32)
    model = openvino.Model([ops.relu(ops.matmul(given, ops.constant(weights), False, False))], [given], "m")
    openvino.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    return tmp_path / "m.xml"


def output(file: Path) -> np.ndarray:
    return compile_file(openvino.Core(), file, SETTINGS)({"x": INPUT})[0]


def kept(file: Path) -> list[Path]:
    return sorted((file.parent / FOLDER).rglob("*.blob"))


def test_values_are_equal_to_the_last_bit(file: Path):
    plain = openvino.Core().compile_model(file, "CPU", SETTINGS)({"x": INPUT})[0]
    first = output(file)
    (blob,) = kept(file)
    before = blob.stat().st_mtime_ns
    second = output(file)
    np.testing.assert_array_equal(first, plain)
    np.testing.assert_array_equal(second, plain)
    assert [one.stat().st_mtime_ns for one in kept(file)] == [before]


@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: blob.write_bytes(b""),
        lambda blob: blob.write_bytes(blob.read_bytes()[: blob.stat().st_size // 2]),
        lambda blob: blob.write_bytes(b"\0" * 100 + blob.read_bytes()[100:]),
        lambda blob: blob.write_bytes(b"another file"),
    ],
    ids=["empty", "half", "another head", "no model"],
)
def test_what_is_damaged_is_compiled_anew(file: Path, damage):
    whole = output(file)
    (blob,) = kept(file)
    blob.chmod(0o600)
    damage(blob)
    np.testing.assert_array_equal(output(file), whole)
    np.testing.assert_array_equal(output(file), whole)


def test_a_folder_that_cannot_be_made_is_done_without(file: Path):
    (file.parent / FOLDER).write_text("in the way")
    assert output(file).shape == (3, 50_000)
    assert (file.parent / FOLDER).read_text() == "in the way"


def test_a_folder_that_cannot_be_written_is_done_without(file: Path):
    with tempfile.TemporaryDirectory() as name:  # pytest's folders are closed to other users
        folder = Path(shutil.copytree(file.parent, name, dirs_exist_ok=True))
        whole = output(folder / file.name)
        (blob,) = kept(folder / file.name)
        blob.chmod(0o600)
        blob.unlink()
        code = f"""
import os
import numpy as np, openvino
from pathlib import Path
from corag.models.engine.compiled import compile_file
core = openvino.Core()
core.get_property("CPU", "FULL_DEVICE_NAME")
os.chmod({name!r}, 0o755)
os.chmod({str(blob.parent)!r}, 0o555)
if os.getuid() == 0:
    os.setuid(65534)
found = compile_file(core, Path({str(folder / file.name)!r}), {SETTINGS!r})({{"x": np.ones((1, 4), np.float32)}})[0]
assert found.shape == (1, 50_000)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr, kept(folder / file.name)) == (0, "", [])
        blob.parent.chmod(0o755)
        np.testing.assert_array_equal(output(folder / file.name), whole)


def test_a_model_that_cannot_be_read_is_an_error(file: Path):
    file.write_text("<net")
    with pytest.raises(RuntimeError):
        output(file)


@pytest.mark.slow
def test_processes_compile_one_model_at_once(file: Path):
    whole = openvino.Core().compile_model(file, "CPU", SETTINGS)({"x": INPUT})[0]
    running = [subprocess.Popen([sys.executable, "-c", COMPILE, str(file)]) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(kept(file)) == 1
    np.testing.assert_array_equal(output(file), whole)


def test_weights_are_not_kept_twice(file: Path):
    output(file)
    (blob,) = kept(file)
    assert blob.stat().st_size < file.with_suffix(".bin").stat().st_size == 4 * 50_000 * 4


def test_another_processor_has_a_folder_of_its_own(file: Path):
    class Other:
        """A processor with another name."""

        def __init__(self) -> None:
            self._core = openvino.Core()

        def get_property(self, device: str, name: str) -> object:
            return "other" if name == "FULL_DEVICE_NAME" else self._core.get_property(device, name)

        def compile_model(self, *arguments: object) -> object:
            return self._core.compile_model(*arguments)

    output(file)
    compile_file(Other(), file, SETTINGS)
    assert len({blob.parent for blob in kept(file)}) == 2


def test_those_longest_unused_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiled, "MAX_BYTES", 250)
    for age, name in enumerate(("newest", "newer", "older", "oldest")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.blob").write_bytes(b"0" * 100)
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    trim(tmp_path)
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["newer", "newest"]


def test_use_keeps_a_model(file: Path, monkeypatch: pytest.MonkeyPatch):
    output(file)
    (blob,) = kept(file)
    os.utime(blob.parent, (1, 1))
    other = blob.parent.with_name("other")
    other.mkdir()
    (other / "1.blob").write_bytes(b"0" * 100)
    monkeypatch.setattr(compiled, "MAX_BYTES", blob.stat().st_size + 50)
    output(file)
    assert kept(file) == [blob] and not other.exists()
