"""`corag doctor` and `corag completion`."""

import json
import shutil
import subprocess

import pytest

from corag.cli import doctor
from corag.cli.main import MISTAKE, main
from tests.chat_server import ChatServer


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Neither caches nor servers of this machine."""
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def findings(capsys):
    assert main(["doctor", "--json"]) == 0
    return {(one["part"], one["name"]): one for one in json.loads(capsys.readouterr().out)}


def test_what_is_at_hand(capsys, tmp_path):
    (tmp_path / "cache" / "indexes").mkdir(parents=True)
    (tmp_path / "cache" / "indexes" / "a").write_bytes(bytes(2000))
    (tmp_path / "cache" / "m.bin").write_bytes(bytes(1_500_000))
    (tmp_path / "data" / "mine").mkdir(parents=True)
    found = findings(capsys)
    assert "minilm-reader" in found["models", "shipped"]["state"]
    assert found["models", "all-MiniLM-L6-v2"]["state"].startswith("whole, in ")
    assert found["caches", "  indexes"]["state"] == "2 KB" and found["caches", "  compiled models"]["state"] == "2 MB"
    assert found["data folders", str(tmp_path / "data")]["state"] == "mine"
    assert found["servers", "Ollama"]["state"].startswith("no answer at http://127.0.0.1:9 (")
    assert found["servers", "OPENAI_API_KEY"]["state"] == "not set"


def test_a_missing_package_has_a_remedy(capsys, monkeypatch):
    required = ["numpy>=2", "no-such-package>=1; extra == 'odd'", "pytest>=8; extra == 'dev'", "corag[x]; extra=='all'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda _: required)
    assert doctor.extras() == {"": ["numpy"], "odd": ["no-such-package"]}
    found = findings(capsys)
    odd = found["installed", "odd"]
    assert (odd["state"], odd["remedy"]) == ("missing: no-such-package", "install with: pip install 'corag[odd]'")
    assert found["installed", "base"]["remedy"] == "" and ("installed", "dev") not in found


def test_an_ollama_server_is_asked_and_nobody_else(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-123")
    with ChatServer() as server, ChatServer() as other:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{other.host}/v1")
        monkeypatch.setenv("http_proxy", other.host)
        assert main(["doctor"]) == 0
        assert other.requests == [] and len(server.requests) == 1
    printed = capsys.readouterr().out
    assert "not contacted" in printed and "secret-123" not in printed


@pytest.mark.parametrize("host", ["http://[", "127.0.0.1:port"])
def test_an_address_that_is_none(capsys, monkeypatch, host):
    monkeypatch.setenv("OLLAMA_HOST", host)
    assert "host must be an address" in findings(capsys)["servers", "Ollama"]["remedy"]


@pytest.mark.slow
def test_a_shell_takes_the_completion_script(capsys):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert "train-adapter" in script and "--num_candidates" in script
    if bash := shutil.which("bash"):
        subprocess.run([bash, "-n"], input=script, text=True, check=True)


def test_an_unknown_shell_is_refused(capsys):
    assert main(["completion", "fish"]) == MISTAKE
    assert "fish" in capsys.readouterr().err


ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=1000; echo READY\\$((1+1))"
zpty -r -m z out '*READY2*'
for typed in "corag evaluate --wandb." "corag sw"; do
    zpty -w -n z "$typed"$'\\t'
    out=
    for turn in {1..100}; do
        if zpty -r -t z part; then out+=$part; elif [[ $out == *(entity|sweep)* ]]; then break; else sleep 0.1; fi
    done
    print -r -- "$out"
    zpty -w -n z $'\\x15'
done
zpty -d z
"""
"""An interactive shell that is asked to complete two lines."""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh is installed; on Debian: apt-get install zsh")
def test_zsh_completes_commands_and_settings(capsys, tmp_path):
    pytest.importorskip("shtab")
    assert main(["completion", "zsh"]) == 0
    (tmp_path / "_corag").write_text(capsys.readouterr().out)
    zsh = [shutil.which("zsh"), "-f", "-c", ZSH, "zsh", str(tmp_path)]
    shown = subprocess.run(zsh, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path).stdout
    assert "--wandb.entity" in shown and "--wandb.project" in shown
    assert "corag sweep" in shown
