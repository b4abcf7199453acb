"""Chunks and an embedder for indexes, and builds that are killed."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from corag import Chunk
from corag.index.store import CHUNKS, connect, open_table
from tests.paths import ROOT

WORDS = ["red", "green", "blue", "river", "stone", "cloud", "apple", "tree", "house", "bird"]


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
from tests.corag.index.worlds import make_chunks
from tests.fakes import HashEmbedder

class Reporting(HashEmbedder):
    def embed(self, texts):
        vectors = super().embed(texts)
        print(self.num_embedded, flush=True)
        return vectors

ChunkIndex.build(
    sys.argv[1], make_chunks(60), Reporting(delay_s=0.05), batch_size=4, overwrite=len(sys.argv) > 2
)
"""


def build_and_kill(uri: str | Path, *flags: str, num_embedded: int, delay_s: float) -> int:
    """Build in batches of four in another process; kill it that long after so many chunks. Return how many it embedded.

    The last batch may be lost.
    """
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_BUILD, str(uri), *flags], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        number = 0
        for line in process.stdout:
            number = int(line)
            if number >= num_embedded:
                time.sleep(delay_s)
                process.send_signal(signal.SIGKILL)
    # A build may be done before the signal comes; anything else would be an error of its own.
    assert process.returncode in {0, -signal.SIGKILL}
    return number
