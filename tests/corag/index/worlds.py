"""Chunks and an embedder for indexes on disk."""

import hashlib
import random
import time
from collections.abc import Sequence

import numpy as np

from corag import Chunk

WORDS = ["red", "green", "blue", "river", "stone", "cloud", "apple", "tree", "house", "bird"]


class HashingEmbedder:
    """Eight numbers drawn from a text's hash; equal texts get equal vectors."""

    def __init__(self, name: str = "hashing", dimension: int = 8, delay_s: float = 0.0) -> None:
        self.name = name
        self.dimension = dimension
        self.delay_s = delay_s
        self.num_embedded = 0

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.num_embedded += len(texts)
        time.sleep(self.delay_s)
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
        vectors = np.array([np.random.default_rng(seed).normal(size=self.dimension) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def make_chunks(num_chunks: int) -> list[Chunk]:
    rng = random.Random(7)
    return [
        Chunk(f"doc{i}#0-9", f"{' '.join(rng.choices(WORDS, k=5))} {i}", {"title": f"T{i}", "start": 0})
        for i in range(num_chunks)
    ]
