"""Datasets, labelling, training, comparison and reports: everything that measures CORAG."""
