"""`corag app` as it is typed."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from corag.cli.serve import AppConfig, make_workbench
from corag.errors import InputError
from tests.paths import ROOT


def test_questions_without_candidates_need_an_index(tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "sea"}\n')
    (tmp_path / "queries.jsonl").write_text('{"id": "q", "question": "sea?", "answers": [], "gold": []}\n')
    with pytest.raises(InputError, match="corag index --data"):
        make_workbench(AppConfig(data=str(tmp_path)))


@pytest.mark.slow
def test_the_page_is_served_until_it_is_stopped(small_data):
    command = [sys.executable, "-m", "corag.cli.main", "app", "--data", str(small_data), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    served = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )
    try:
        line = served.stdout.readline()
        assert line.startswith("page at http://127.0.0.1:")
        url = line.split()[2].rstrip(";")
        with urllib.request.urlopen(f"{url}api/about", timeout=60) as answer:
            assert json.load(answer)["questions"] == 12
        served.send_signal(signal.SIGINT)
        _, err = served.communicate(timeout=30)
        assert (served.returncode, err) == (0, "")
    finally:
        served.kill()
