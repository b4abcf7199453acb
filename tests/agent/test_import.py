import subprocess
import sys

import pytest

import agent
from tests.agent.worlds import DIM, random_agent


@pytest.mark.slow
def test_loading_and_predicting_need_no_torch(tmp_path):
    agent.save(tmp_path / "checkpoint", random_agent(), "")
    code = (
        "import sys, agent\n"
        f"prediction = agent.load({str(tmp_path / 'checkpoint')!r}).predict([0.0] * {DIM})\n"
        "heavy = {'torch', 'lightning', 'wandb', 'corag', 'search'} & set(sys.modules)\n"
        "sys.exit(f'{heavy}' if heavy else 0)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_extra_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.delitem(sys.modules, "agent.checkpoint", raising=False)
    with pytest.raises(ImportError, match=r"agent\.load needs safetensors; .* pip install 'corag\[agent\]'"):
        _ = agent.load
