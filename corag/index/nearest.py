"""How an index finds the nearest vectors: by comparing all of them, or by partitions of quantised ones.

A large index has an inverted file (IVF): k-means cuts the vectors into partitions, and a query looks at the nearest of
these. There it compares RaBitQ codes, and ranks the best of them again by the true vectors, so cosines are exact. That
takes a tenth of the time of an HNSW graph to make, holds no graph in memory, and takes new rows without being made
anew.
"""

from __future__ import annotations

from typing import Any

MIN_CHUNKS_TO_PARTITION = 10_000
"""From this many chunks on an index has partitions; below, a search compares every vector, which is exact.

Comparing takes up to 1 ms of CPU time a query for each 1,000 vectors of 384 numbers.
"""
PROBES = 40
"""Partitions that a query looks at.

Recall@20 and CPU ms of a query, 384 numbers: 1,000,000 chunks .956 and 5.9 with 10, .998 and 5.8 with 40, .999 and 7.5
with 80; 100,000 chunks .993 and 5.1 with 10, .999 and 6.5 with 40.
"""
_CHUNKS_PER_PARTITION = 2_000
# K-means takes 256 vectors a partition: 400 MB for vectors of 384 numbers.
_MAX_PARTITIONS = 1_000
# Bits for each number of a vector. Recall@20 over 100,000 chunks with twice as many ranked again: 1 bit .72, 4 .999.
_BITS = 4
# RaBitQ takes whole bytes.
_NUMBERS_PER_BYTE = 8
# So many times the wanted rows are ranked again by the true vectors (recall@20: 2 .9992, 3 1.0000). Each takes 20 us.
_REFINE_FACTOR = 2


def make_partitions(table: Any, num_chunks: int, dimension: int) -> None:
    """Give a table of chunks an index of its vectors if it is large enough to need one, and none otherwise."""
    from lancedb.index import IvfRq, IvfSq

    if num_chunks < MIN_CHUNKS_TO_PARTITION:
        for index in table.list_indices():
            if index.columns == ["vector"]:
                table.drop_index(index.name)
        return
    num_partitions = min(-(-num_chunks // _CHUNKS_PER_PARTITION), _MAX_PARTITIONS)
    if dimension % _NUMBERS_PER_BYTE:
        config: Any = IvfSq(distance_type="cosine", num_partitions=num_partitions)
    else:
        config = IvfRq(distance_type="cosine", num_partitions=num_partitions, num_bits=_BITS)
    table.create_index("vector", config=config)


def nearest_rows(table: Any, vectors: Any, limit: int, probes: int, where: str | None) -> Any:
    """Return a query for the `limit` rows nearest to each of `vectors`, `[q, d]`, by cosine.

    Without partitions LanceDB takes no notice of what concerns them.
    """
    query = table.search(vectors, vector_column_name="vector").distance_type("cosine").limit(limit)
    # The partitions probed may hold fewer rows than are wanted, and few that a filter leaves. Then all are looked at,
    # which takes 5 ms longer for a million chunks, less than the filter itself.
    ranked = _REFINE_FACTOR * limit
    everywhere = where is not None or ranked > _CHUNKS_PER_PARTITION
    query = query.nprobes(probes).refine_factor(_REFINE_FACTOR)
    query = query.maximum_nprobes(0) if everywhere else query
    return query if where is None else query.where(where)
