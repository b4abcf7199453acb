"""`corag completion`: a script that lets a shell complete commands and settings."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

Shell = Literal["bash", "zsh", "tcsh"]


@dataclass(frozen=True)
class CompletionConfig:
    """Print a script by which a shell completes commands and their settings.

    Attributes:
        shell: The shell: bash, zsh or tcsh.
    """

    shell: str


def run(config: CompletionConfig) -> None:
    """Print the script."""
    from corag.checks import check_choice
    from corag.cli.main import make_parser
    from corag.optional import require

    check_choice("shell", config.shell, Shell)
    require("shtab", "completion")
    sys.stdout.write(make_parser().get_completion_script(f"shtab-{config.shell}").rstrip() + "\n")
