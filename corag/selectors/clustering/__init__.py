"""Clustering of few points: what selectors that cut or group candidates build on.

Knows points, distances and labels; neither texts nor queries.
"""
