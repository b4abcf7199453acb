"""YAML without aliases: nine lines of them can stand for gigabytes."""

from __future__ import annotations


def refuse_aliases(text: str) -> None:
    """Raise `yaml.YAMLError` for a text that has an alias, or is no YAML."""
    import yaml  # type: ignore[import-untyped]

    if "*" in text and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise yaml.YAMLError("an alias (*name); write out what it stands for")
