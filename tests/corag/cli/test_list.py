"""`corag list` and `corag doctor`."""

import pytest

from corag import registry
from corag.cli import doctor
from corag.cli.main import MISTAKE, main
from corag.optional import to_install
from tests.chat_server import ChatServer


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Neither caches nor servers of this machine."""
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


def findings():
    return {(one.part, one.name): one for one in doctor.findings()}


def test_what_is_at_hand(tmp_path):
    (tmp_path / "cache" / "indexes").mkdir(parents=True)
    (tmp_path / "cache" / "indexes" / "a").write_bytes(bytes(2000))
    (tmp_path / "data" / "mine").mkdir(parents=True)
    found = findings()
    assert "minilm-evidence" in found["models", "shipped"].state
    assert found["models", "all-MiniLM-L6-v2"].state.startswith("whole, in ")
    assert found["caches", "  indexes"].state == "2.0 kB"
    assert found["data folders", str(tmp_path / "data")].state == "mine"
    assert found["servers", "Ollama"].state.startswith("no answer at http://127.0.0.1:9 (")
    assert found["servers", "OPENAI_API_KEY"].state == "not set"


def test_a_missing_package_has_a_remedy(monkeypatch):
    required = ["numpy>=2", "no-such-package>=1; extra == 'odd'", "pytest>=8; extra == 'dev'", "corag[x]; extra=='all'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda _: required)
    assert doctor.extras() == {"": ["numpy"], "odd": ["no-such-package"]}
    found = findings()
    odd = found["installed", "odd"]
    assert (odd.state, odd.remedy) == ("missing: no-such-package", f"install with: {to_install('odd')}")
    assert found["installed", "base"].remedy == "" and ("installed", "dev") not in found


def test_an_ollama_server_is_asked_and_nobody_else(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-123")
    with ChatServer() as server, ChatServer() as other:
        monkeypatch.setenv("OLLAMA_HOST", server.host)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{other.host}/v1")
        monkeypatch.setenv("http_proxy", other.host)
        assert main(["doctor"]) == 0
        assert other.requests == [] and len(server.requests) == 1
    printed = capsys.readouterr().out
    assert all(part in printed for part, _ in findings()) and "not contacted" in printed
    assert "secret-123" not in printed


def test_an_address_that_is_none(monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "http://[")
    found = findings()["servers", "Ollama"]
    assert found.state == "no address" and "'http://['" in found.remedy


def test_all_parts_are_listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    for table in registry.TABLES:
        assert f"{table.kind}s" in printed
        assert all(f"  {name} " in printed for name in table.names)


def test_a_kind_alone_and_the_settings_of_a_part(capsys):
    assert main(["list", "readers"]) == 0
    assert "extractive" in (printed := capsys.readouterr().out) and "top-k" not in printed
    assert main(["list", "--part", "extractive"]) == 0
    printed = capsys.readouterr().out
    assert "reader extractive(" in printed and "summarizer extractive(" in printed
    assert main(["list", "selector", "top-k"]) == 0
    assert "selector top-k(tokenizer=..., unit=passage, max_units=200, order=value, k=5)" in capsys.readouterr().out
    assert main(["list", "readers", "top-k"]) == main(["list", "nothing"]) == MISTAKE
