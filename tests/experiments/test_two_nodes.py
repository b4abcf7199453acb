"""A cluster of two nodes labels as one process does; on request, as it starts two Ray nodes."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.effort import FULL
from tests.experiments.labels.label_tables import tables
from tests.experiments.worlds import write_folder
from tests.paths import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FULL, reason="starts two Ray nodes: only with CORAG_TESTS=full"),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'corag[ray]'"
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture
def address():
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    yield nodes.address
    nodes.shutdown()


def labelled(folder, out, *arguments):
    command = ["label", "--data", folder, "--out", out, "--rerankers", "bm25", "--budget", "48", "--quiet", "true"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    whole = [sys.executable, "-m", "corag.cli.main", *map(str, [*command, *arguments])]
    subprocess.run(whole, check=True, cwd=folder, env=variables, timeout=300)
    return tables(out)


def test_two_nodes_label_as_one_process(tmp_path, address):
    folder = write_folder(tmp_path / "data")
    together = labelled(folder, tmp_path / "together.parquet", "--engine", "ray", "--address", address)
    assert together == labelled(folder, tmp_path / "alone.parquet")
