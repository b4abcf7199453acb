"""`corag list`."""

import pytest

from corag import registry
from corag.cli.parts import ListConfig, run
from corag.errors import InputError


def test_all_parts_are_listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    run(ListConfig())
    printed = capsys.readouterr().out
    for table in registry.TABLES:
        assert f"{table.kind}s" in printed
        assert all(f"  {name} " in printed for name in table.names)
    assert "partial(" not in printed


def test_a_kind_alone_and_the_settings_of_a_part(capsys):
    run(ListConfig(kind="readers"))
    assert "minilm-reader" in (printed := capsys.readouterr().out) and "top-k" not in printed
    run(ListConfig(part="extractive"))
    printed = capsys.readouterr().out
    assert "reader extractive(" in printed and "summarizer extractive(" in printed
    run(ListConfig(kind="selector", part="top-k"))
    assert "selector top-k(tokens, unit=passage, max_units=60, k=5)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "widget"}, "kind is 'widget'; it must be one of embedder, reranker"),
        ({"part": "top-l"}, r"part 'top-l' is unknown \(did you mean 'top-k'\?\)"),
        ({"kind": "reader", "part": "top-k"}, "part 'top-k' is unknown"),
    ],
)
def test_what_there_is_not(settings, message):
    with pytest.raises(InputError, match=message):
        run(ListConfig(**settings))
