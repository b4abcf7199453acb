"""Drawings of results, as SVG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from corag.optional import require
from corag.text.visible import visible
from corag.types import FloatArray

MARKERS = ("o", "s", "^", "D", "v")
"""Of methods that share a colour."""
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
"""Okabe and Ito's palette, which stays distinct for colour-blind readers."""
LONGEST_NAME = 56
"""Characters of a name in one line below a plot."""

Line = tuple[str, FloatArray, Mapping[str, Any]]
"""Its name in the legend, tokens and value of each point, or also the ends of its interval, and matplotlib's style."""


def against_tokens(panels: Mapping[str, Iterable[Line]]) -> str:
    """Return an SVG of lines over tokens, `[points, 2]` or `[points, 4]` each: a panel for each title.

    The same lines give the same text. The legend is that of the last panel.
    """
    # Not from pyplot, which keeps figures, and the back end of a user's own plots, for the whole process.
    figure = require("matplotlib.figure", "experiments").Figure(figsize=(4.8 * len(panels), 3.5))
    for panel, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for name, points, style in lines:
            # A setting that is itself a list of settings makes a long name; between dollars would be a formula.
            label = textwrap.fill(visible(name).replace("$", r"\$"), LONGEST_NAME) or None
            panel.plot(points[:, 0], points[:, 1], label=label, **style)
            for x, _, *ends in points:
                if ends:
                    panel.vlines(x, *ends, color=style["color"], linewidth=1.0, alpha=0.45)
        panel.set_xlabel("tokens of the selection (mean)")
        panel.set_ylabel(title)
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(alpha=0.3)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0)}
    figure.legend(*panel.get_legend_handles_labels(), frameon=False, fontsize=8.5, handlelength=3.2, **place)
    buffer = io.StringIO()
    # Ids of its own would differ from one process to the next.
    with require("matplotlib", "experiments").rc_context({"svg.hashsalt": "corag"}):
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
