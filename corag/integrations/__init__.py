"""CORAG where other frameworks want it: one module for each, which needs the extra of that name."""
