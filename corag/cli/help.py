"""How `--help` shows settings: in the order that people set them, without types. `--help-all` shows these, too."""

from __future__ import annotations

from argparse import SUPPRESS, Action

from jsonargparse import DefaultHelpFormatter


class BriefHelpFormatter(DefaultHelpFormatter):  # type: ignore[misc]  # jsonargparse has no types
    """Adds to the help of a setting whether it is required, or its default where that says something."""

    def _get_help_string(self, action: Action) -> str:
        if action.dest in ("config", "help", "help_all") or action.help is None:
            return str(super()._get_help_string(action))
        if action.required:
            return f"{action.help} (required)"
        if action.default in (None, "", (), SUPPRESS):
            return action.help
        default = str(action.default).lower() if isinstance(action.default, bool) else "%(default)s"
        return f"{action.help} (default: {default})"
