"""What an offline run of W&B wrote, read back by the schema of the `wandb` library."""

import json
from dataclasses import dataclass, field
from pathlib import Path

BLOCK, HEADER = 32768, 7


@dataclass
class OfflineRun:
    """The content of a `.wandb` file; values are those of JSON."""

    run: object = None
    config: dict = field(default_factory=dict)
    history: list = field(default_factory=list)
    summary: dict = field(default_factory=dict)
    artifacts: list = field(default_factory=list)


def offline_runs(folder):
    """Return the offline runs below a folder, in the order in which they were started."""
    import wandb

    wandb.teardown()  # waits for W&B's process, which may still be writing the end of a run
    # By time, because runs that are started within the same second have folders named by their random ids.
    return [read(path) for path in sorted(Path(folder).rglob("run-*.wandb"), key=lambda path: path.stat().st_mtime_ns)]


def read(path):
    """Return one run."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = OfflineRun()
    for data in _records(path.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            found.config |= _values(record.run.config.update)
        elif kind == "config":
            found.config |= _values(record.config.update)
        elif kind == "history":
            found.history.append(_values(record.history.item))
            found.summary |= found.history[-1]
        elif kind == "artifact":
            found.artifacts.append(record.artifact)
    return found


def _values(items):
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(content):
    """The log format of LevelDB: blocks, in which each record, or part of one, has a checksum, a length and a type."""
    place, parts = HEADER, b""
    while place + HEADER <= len(content):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        parts += content[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""
