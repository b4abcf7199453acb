"""`corag list` and `corag doctor`."""

import pytest

from corag import registry
from corag.cli.main import MISTAKE, main


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Neither caches nor servers of this machine."""
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")


def test_what_is_at_hand(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("OPENAI_API_KEY", "secret-123")
    (tmp_path / "data" / "mine").mkdir(parents=True)
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "minilm-evidence" in printed and "whole, in " in printed and "mine" in printed
    assert "no answer (" in printed and "not contacted" in printed and "secret-123" not in printed


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
