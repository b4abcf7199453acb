"""Files with bytes that are changed, lost, doubled or put elsewhere: one line of error, or the same as before."""

import random

import numpy as np
import pytest

from corag.errors import CoragError
from corag.index import ChunkIndex
from corag.text.data import DataFolder
from experiments.labels.table import read_labels
from tests.effort import CAMPAIGN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


def mutated(rng, content):
    """Return content with a change at random."""
    at, to = rng.randrange(len(content)), rng.randrange(len(content))
    end = at + 1 + int(rng.expovariate(1 / 8))
    there = content[at:end]
    mutants = (
        content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :],
        content[:at] + rng.randbytes(len(there)) + content[end:],
        content[:at] + content[end:],
        content[:at] + there + content[at:],
        content[:at],
        content[:to] + there + content[to + len(there) :],
    )
    return rng.choice(mutants)


def of_labels(folder):
    """All that a label table holds."""
    labels = read_labels(str(folder / "labels.parquet"))
    measures = {name: values.tolist() for name, values in labels.measures.items()}
    return labels.ids, labels.configurations, measures, labels.query_vectors.tolist(), labels.metadata


def of_data(folder):
    """Only that it can be read: whoever changes a text changes the data."""
    assert DataFolder.open(folder / "data").documents


def of_index(folder):
    """Only that it answers: Lance has no checksums."""
    ChunkIndex.open(folder / "index").retrieve("lighthouse", np.ones(384), 3, "hybrid")


WORLDS = {
    "labels.parquet": (of_labels, 3000, 100),
    "data": (of_data, 3000, 200),
    "index": (of_index, 1000, 20),
}
"""Reader, and mutants in the campaign and outside of it."""


@pytest.mark.parametrize("name", WORLDS)
def test_a_mutant_is_refused_in_one_line_or_read_as_it_was(world, name):
    read, *numbers = WORLDS[name]
    expected, wrong = read(world), []
    files = sorted(path for path in (world / name).rglob("*") if path.is_file()) or [world / name]
    files = [path for path in files if path.stat().st_size]
    for number in range(numbers[0] if CAMPAIGN else numbers[1]):
        rng = random.Random(f"{name} {number}")
        file = rng.choice(files)
        content = file.read_bytes()
        file.write_bytes(mutated(rng, content))
        try:
            outcome = "read as it was" if read(world) == expected else "WRONG"
        except CoragError as error:
            outcome = "refused" if "\n" not in str(error) else f"LINES {error!r:.200}"
        except BaseException as error:  # noqa: BLE001 - a panic of Lance is no Exception
            outcome = f"TRACEBACK {type(error).__name__}: {error!s:.200}"
        file.write_bytes(content)
        if outcome[0].isupper():
            wrong.append(f"{number}: {file.relative_to(world)}: {outcome}")
    assert not wrong, f"{len(wrong)}: " + "\n".join(wrong[:8])
