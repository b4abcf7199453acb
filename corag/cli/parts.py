"""`corag list`: the parts that there are, and the settings of one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

from rich.markup import escape
from rich.table import Table

from corag import registry
from corag.cli.console import plain, say, stdout
from corag.errors import CoragError, InputError
from corag.registry import nearest, with_default


@dataclass(frozen=True)
class ListConfig:
    """List the parts by kind, or the settings of one part.

    Attributes:
        kind: Kind of part, such as `selectors`, by default all.
        part: Name of a part whose settings are listed.
    """

    kind: str | None = None
    part: str | None = None


def run(config: ListConfig) -> None:
    """List parts, or the settings of one."""
    kinds = {table.kind: table for table in registry.TABLES}
    kind = None if config.kind is None else config.kind.removesuffix("s")
    if kind not in (None, *kinds):
        raise InputError(f"kind is {config.kind!r}; it must be one of {', '.join(kinds)}")
    tables = list(kinds.values()) if kind is None else [kinds[kind]]
    if config.part is None:
        drawn = Table(box=None, pad_edge=False, show_header=False, expand=True)
        drawn.add_column(no_wrap=True, min_width=2 + max(len(name) for table in tables for name in table.names))
        drawn.add_column(ratio=1)
        for table in tables:
            drawn.add_row(f"[bold]{table.kind}s[/]")
            for name in table.names:
                drawn.add_row(f"  {escape(name)}", plain(_documentation(table, name).partition("\n")[0]))
        stdout().print(drawn)
        say(f"The settings of a part: corag list {tables[0].kind} {tables[0].names[0]}")
        return
    if not (having := [table for table in tables if config.part in table.names]):
        hint = nearest(config.part, [name for table in tables for name in table.names])
        known = f"the names are {', '.join(tables[0].names)}" if kind else "`corag list` shows all parts"
        raise InputError(f"{kind or 'part'} {config.part!r} is unknown{hint}; {known}")
    for table in having:
        settings = ", ".join(map(with_default, table.parameters(config.part).values()))
        sections = "\n".join([_documentation(table, config.part), *_inherited(table, config.part)])
        say(f"{table.kind} {config.part}({settings})\n\n{sections}\n")


def _documentation(parts: registry.Registry[Any], name: str) -> str:
    try:
        build = parts.builder(name)
    except CoragError as error:
        return str(error)
    return inspect.getdoc(build.func if isinstance(build, partial) else build) or ""


def _inherited(parts: registry.Registry[Any], name: str) -> Iterator[str]:
    """Yield the sections that describe the settings that a part has from its bases."""
    build = parts.builder(name)
    bases = build.__mro__[1:] if inspect.isclass(build) else ()
    for base in filter(is_dataclass, bases):
        _, *section = re.split(r"\n(?:Args|Attributes):\n", inspect.cleandoc(vars(base).get("__doc__") or ""))
        if section:
            yield f"\nSettings of {base.__name__}:\n{section[0]}"
