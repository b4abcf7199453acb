"""Token states of an index's chunks, kept beside it, so that a question need not wait for the encoder to read them.

They do not depend on the question: with them a first selection takes about as long as one from known texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from corag.errors import DataError, InputError
from corag.index.lock import index_lock
from corag.index.search import ChunkIndex
from corag.index.store import local_folder
from corag.models.minilm import DIMENSION, NAME_ON_HUB, minilm_encoder, weights_sha256
from corag.models.states import STATES, StoredStates, states_key
from corag.optional import warn_once

_FILE = "states.sqlite"
_BATCH = 256


@dataclass(frozen=True, slots=True)
class StatesUpdate:
    """What storing token states took.

    Attributes:
        num_texts: Distinct texts whose states are stored now.
        num_encoded: Those of them that were encoded for it.
        nbytes: Bytes of the file.
    """

    num_texts: int
    num_encoded: int
    nbytes: int


def states_file(uri: str | Path) -> Path:
    """Return where the token states of an index lie, or would lie; `InputError` for an index on object storage."""
    folder = local_folder(uri)
    if folder is None:
        raise InputError(f"the index at {uri} is on object storage; token states need one in a local folder")
    return folder / _FILE


def has_states(uri: str | Path) -> bool:
    """Return whether token states are kept beside an index."""
    return local_folder(uri) is not None and states_file(uri).is_file()


@contextmanager
def stored_states(index: ChunkIndex | str | Path) -> Iterator[None]:
    """Let MiniLM encoders inside the block read the states kept beside an index; without such, they run as ever.

    `corag.ask` does so by itself. A file that cannot be used is left alone, with a warning.
    """
    uri = index.uri if isinstance(index, ChunkIndex) else index
    try:
        states = _open(uri) if has_states(uri) else STATES.get()
    except DataError as error:
        warn_once(f"token states are computed anew: {error}")
        states = None
    with STATES.set(states):
        yield


def update_states(index: ChunkIndex, *, report: Callable[[int, int], None] | None = None) -> StatesUpdate:
    """Store the token states of all chunks, those that are missing, and forget those of texts that are gone.

    It can be stopped, and goes on where it stopped.

    Args:
        index: The index, in a local folder.
        report: Called with (chunks done, chunks in all).

    Raises:
        InputError: The index lies on object storage.
        DataError: The file cannot be used.
    """
    path = states_file(index.uri)
    encoder = minilm_encoder(role="reranker")
    wanted: set[bytes] = set()
    num_encoded = num_done = 0
    with index_lock(index.uri), STATES.set(None):
        stored = _open(index.uri)
        known = stored.keys()
        chunks = index.chunks()
        while batch := list(islice(chunks, _BATCH)):
            by_key = {states_key(ids): ids for ids in encoder.tokenize([chunk.text for chunk in batch]).ids}
            new = [ids for key, ids in by_key.items() if key not in known and key not in wanted]
            wanted |= by_key.keys()
            stored.put(new, encoder.states(new))
            num_encoded += len(new)
            num_done += len(batch)
            if report is not None:
                report(num_done, len(index))
        stored.delete(known - wanted)
        return StatesUpdate(len(wanted), num_encoded, path.stat().st_size)


def _open(uri: str | Path) -> StoredStates:
    return StoredStates(states_file(uri), f"{NAME_ON_HUB} {weights_sha256()}", DIMENSION)
