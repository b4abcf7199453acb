"""Choosing sentences after passages: `prune`, and what others do, `sentence-threshold` and `extractive-compression`."""
