"""Importing does nothing: no heavy library, no file, no network, no logging, no seed."""

import subprocess
import sys

import pytest

import corag

HEAVY = {
    "torch", "transformers", "sentence_transformers", "tokenizers", "lightning", "openvino", "lancedb", "pyarrow",
    "FlagEmbedding", "wandb", "matplotlib", "pandas", "scipy", "sklearn", "bm25s", "ollama", "umap",
}  # fmt: skip

WATCH = """
import logging, os, sys
import numpy as np
def state():
    return (list(logging.root.handlers), logging.root.level, dict(os.environ),
            str(np.random.get_state()), np.geterr())
events = []
def hook(event, args):
    if event.startswith("socket.") or event in ("subprocess.Popen", "os.mkdir"):
        events.append((event, str(args)))
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        events.append((event, str(args)))
before = state()
sys.addaudithook(hook)
"""
JUDGE = """
heavy = {heavy!r} & set(sys.modules)
assert not heavy, heavy
assert not events, events
assert state() == before
"""
EVERY_MODULE = """
import importlib, pkgutil
for module in pkgutil.walk_packages(corag.__path__, "corag."):
    if module.name == "corag.readers.span_network":
        continue  # a network in torch and nothing else: imported where torch is wanted
    importlib.import_module(module.name)
"""


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "imports",
    ["import corag", "import search", "import agent", "import corag" + EVERY_MODULE],
    ids=["corag", "search", "agent", "every module of corag"],
)
def test_importing_does_nothing(imports):
    run(WATCH + imports + JUDGE.format(heavy=HEAVY))


def test_counting_and_cutting_need_no_model():
    use = """
import corag
document = corag.Document("d", "One sentence. Another one.")
assert len(corag.chunk_document(document, corag.token_counter(), corag.ChunkConfig(max_tokens=4))) == 2
"""
    run(WATCH + use + JUDGE.format(heavy=HEAVY - {"tokenizers"}))


def test_every_public_name_is_there():
    for name in corag.__all__:
        assert getattr(corag, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = corag.nothing
