"""RAPTOR: a tree of summaries over chunks.

Sarthi, Abdullah, Tuli, Khanna, Goldie and Manning, "RAPTOR: Recursive abstractive processing for tree-organized
retrieval" (2024). Chunks are the leaves; each layer above holds summaries of clusters of the layer below.
"""
