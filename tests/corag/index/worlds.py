"""Chunks and an embedder for indexes, and builds that are killed."""

import hashlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corag import Chunk
from corag.index.store import CHUNKS, connect, open_table
from tests.paths import ROOT

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


def table_of(uri: str | Path) -> Any:
    """The table of chunks as it is now, whatever version is read."""
    table = open_table(connect(uri), CHUNKS)
    assert table is not None
    return table


def make_chunks(num_chunks: int) -> list[Chunk]:
    rng = random.Random(7)
    return [
        Chunk(f"doc{i}#0-9", f"{' '.join(rng.choices(WORDS, k=5))} {i}", {"title": f"T{i}", "start": 0})
        for i in range(num_chunks)
    ]


SLOW_BUILD = """
import sys
from corag.index import ChunkIndex
from tests.corag.index.worlds import HashingEmbedder, make_chunks

embedder = HashingEmbedder(delay_s=0.05)
ChunkIndex.build(
    sys.argv[1], make_chunks(60), embedder, batch_size=4, overwrite=len(sys.argv) > 2,
    progress=lambda done, total: print(done, embedder.num_embedded, flush=True),
)
"""


def build_and_kill(uri: str | Path, *flags: str, num_stored: int, delay_s: float) -> int:
    """Build in another process, kill it so long after so many chunks; return how many it embedded."""
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, str(uri), *flags],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        reports = ["0 0"]
        for line in process.stdout:
            reports.append(line)
            if int(line.split()[0]) >= num_stored:
                time.sleep(delay_s)
                process.send_signal(signal.SIGKILL)
    # A build may be done before the signal comes; anything else would be an error of its own.
    assert process.returncode in {0, -signal.SIGKILL}
    return int(reports[-1].split()[1])
