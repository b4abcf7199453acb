"""Moved to `experiments.report.drawing`."""

from experiments.report.drawing import COLORS as COLORS
from experiments.report.drawing import interval_plot as interval_plot
from experiments.report.drawing import new_figure as new_figure
from experiments.report.drawing import to_svg as to_svg
