"""Chunks for indexes, and the table that holds them."""

import random

from corag import Chunk
from corag.index.store import CHUNKS, connect, open_table
from tests.fakes import HashEmbedder

WORDS = ["red", "green", "blue", "river", "stone", "cloud", "apple", "tree", "house", "bird"]


def table_of(uri):
    """The table of chunks as it is now, whatever version is read."""
    table = open_table(connect(uri), CHUNKS)
    assert table is not None
    return table


def make_chunks(num_chunks):
    rng = random.Random(7)
    return [
        Chunk(f"doc{i}#0-9", f"{' '.join(rng.choices(WORDS, k=5))} {i}", {"title": f"T{i}", "start": 0})
        for i in range(num_chunks)
    ]


class StoppedEmbedder(HashEmbedder):
    """Stops after so many texts."""

    def __init__(self, num_texts):
        super().__init__()
        self.num_texts = num_texts

    def embed(self, texts):
        if self.num_embedded + len(texts) > self.num_texts:
            raise KeyboardInterrupt
        return super().embed(texts)
