"""Benchmarks of CORAG itself."""
