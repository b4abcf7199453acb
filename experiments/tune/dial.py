"""The dial: what a choice gives and costs as the price of tokens, or of time, rises.

Letters: `n` questions, `C` configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corag.selectors.corag.routing import PRICES, Prices, Worth
from experiments.run.drawing import COLORS, new_figure, to_svg
from experiments.tune.choose import Chosen, Labelled, best

BUDGET_PRICES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
SECOND_PRICES = (0.02, 0.05, 0.1, 0.2, 0.5)
DIAL = ("prefer", "quality", "tokens of the budget", "ms of a core", "configurations in use")
"""Headings of the curve as a table."""


@dataclass(frozen=True)
class DialPoint:
    """Means over questions at one price.

    Attributes:
        name: The preference that has this price, or the price.
        prices: The price.
        quality: Quality.
        budget_share: Tokens over budget.
        seconds: Of a selection.
        configurations: How many configurations are in use.
    """

    name: str
    prices: Prices
    quality: float
    budget_share: float
    seconds: float
    configurations: int


def settings_of_dial() -> dict[str, Prices]:
    """Return the prices of the curve by name."""
    found = {f"{price:g} a budget": Prices(budget=price) for price in BUDGET_PRICES}
    found |= {f"{price:g} a second": Prices(second=price) for price in SECOND_PRICES}
    return {**PRICES, **{name: prices for name, prices in found.items() if prices not in PRICES.values()}}


def point(name: str, prices: Prices, measured: Worth, places: NDArray[np.int64] | Sequence[int]) -> DialPoint:
    """Return the means of what was measured, `[n, C]`, under the configurations chosen, `[n]`."""
    columns = np.asarray(places, dtype=np.int64)
    rows = np.arange(len(columns))
    seconds = np.broadcast_to(measured.seconds, measured.quality.shape)
    quality, share, spent = (
        float(figures[rows, columns].mean()) for figures in (measured.quality, measured.budget_share, seconds)
    )
    return DialPoint(name, prices, quality, share, spent, len(set(columns.tolist())))


def dial(questions: Labelled, chosen: Chosen) -> list[DialPoint]:
    """Return the curve of a choice on the questions that it was made with."""
    measured = Worth(questions.qualities, questions.shares, questions.seconds)
    found = []
    for name, prices in settings_of_dial().items():
        if chosen.router is None:
            places = [best(chosen.worth, prices)] * len(questions.qualities)
        else:
            routes = chosen.router.routes(questions.vectors, prices)
            places = [questions.names.index(chosen.router_names[route.place]) for route in routes]
        found.append(point(name, prices, measured, places))
    return found


def dial_rows(curve: Sequence[DialPoint]) -> list[list[str]]:
    """Return the curve as a table, below `DIAL`; a price at which nothing changes has no row."""
    rows: list[list[str]] = []
    for one in curve:
        figures = [
            f"{one.quality:.3f}", f"{one.budget_share:.1%}", f"{1000 * one.seconds:.0f}", str(one.configurations)
        ]  # fmt: skip
        if one.name in PRICES or figures not in (row[1:] for row in rows):
            rows.append([one.name, *figures])
    return rows


def plot_dial(curve: Sequence[DialPoint]) -> str:
    """Return an SVG with quality against tokens, as their price rises, and against time, as its price does."""
    panels = (
        ("tokens, share of the budget", "budget_share", [one for one in curve if not one.prices.second]),
        ("ms of a core for a selection", "seconds", [one for one in curve if not one.prices.budget]),
    )
    figure = new_figure(9.0, 3.6)
    for axis, (label, cost, points) in zip(figure.subplots(1, 2), panels, strict=True):
        points = sorted(points, key=lambda one: (one.prices.budget, one.prices.second))
        scale = 1000 if cost == "seconds" else 1
        costs = [scale * getattr(one, cost) for one in points]
        axis.plot(costs, [one.quality for one in points], "o-", color=COLORS[0])
        for one, at in zip(points, costs, strict=True):
            price = one.prices.budget or one.prices.second
            axis.annotate(f"{price:g}", (at, one.quality), textcoords="offset points", xytext=(4, -9), fontsize=7)
        axis.set_xlabel(f"{label} (labels: price)")
        axis.set_ylabel("quality")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    return str(to_svg(figure))
