"""Moved to `experiments.report.page`."""

from experiments.report.page import markdown_table as markdown_table
