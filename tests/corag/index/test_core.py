"""Reading through LanceDB's core is reading through its package, and imports none of it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corag.index import ChunkIndex, store
from corag.index.core import CoreDatabase, CoreTable
from tests.corag.index.worlds import HashingEmbedder, make_chunks, table_of

pytest.importorskip("lancedb")

NUM_CHUNKS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    ChunkIndex.build(folder, make_chunks(NUM_CHUNKS), HashingEmbedder())
    return folder


@pytest.fixture(scope="module")
def core(folder: Path) -> CoreTable:
    return CoreDatabase(folder).open_table(ChunkIndex.open(folder).manifest.table)


VECTORS = np.random.default_rng(3).normal(size=(3, 8)).astype(np.float32)
READS = {
    "all": lambda table: table.search(),
    "columns": lambda table: table.search().select(["id", "vector"]),
    "one vector": lambda table: table.search(VECTORS[:1]).distance_type("cosine").limit(7).with_row_id(True),
    "vectors": lambda table: (
        table.search(VECTORS, vector_column_name="vector")
        .distance_type("cosine").limit(7).ef(200).refine_factor(2).select(["_distance"]).with_row_id(True)
    ),
    "filtered": lambda table: table.search(VECTORS[:1]).where("position < 9").limit(20).select(["position"]),
    "words": lambda table: (
        table.search("Red \"rivers\" AND +stone -cloud title:x ~2 (", query_type="fts", fts_columns="text")
        .limit(NUM_CHUNKS).select(["_score"]).with_row_id(True)
    ),
    "no such word": lambda table: table.search("zzz", query_type="fts", fts_columns="text").limit(5),
    "row ids": lambda table: table.take_row_ids([0, 5, 299]).with_row_id().select(["id"]),
}  # fmt: skip


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_rows_are_those_of_the_package(folder: Path, core: CoreTable, read):
    ours, theirs = read(core).to_arrow(), read(table_of(folder)).to_arrow()
    assert ours.schema.names == theirs.schema.names
    assert sorted(map(json.dumps, ours.to_pylist())) == sorted(map(json.dumps, theirs.to_pylist()))
    assert sum(len(batch) for batch in read(core).to_batches()) == len(theirs)


def test_a_table_tells_its_size_and_columns(folder: Path, core: CoreTable):
    assert core.count_rows() == NUM_CHUNKS
    assert core.schema == table_of(folder).schema


def test_errors_are_those_of_the_package(folder: Path, core: CoreTable):
    with pytest.raises(ValueError, match="'nothing' was not found"):
        CoreDatabase(folder).open_table("nothing")
    with pytest.raises((ValueError, RuntimeError), match="nowhere"):
        core.search().select(["nowhere"]).to_arrow()
    with pytest.raises(AttributeError):
        core.search().no_such_step(1)


@pytest.mark.slow
def test_reading_imports_the_core_alone_and_leaves_the_package_whole(folder: Path):
    code = f"""
import asyncio, sys
import numpy as np
from corag.index import ChunkIndex

async def in_a_running_loop():  # as in a notebook
    return ChunkIndex.open({str(folder)!r})

index = asyncio.run(in_a_running_loop())
found = index.retrieve("red river", np.ones(8), 5)
assert len(found) == 5
heavy = {{"lancedb", "pandas", "pydantic", "lance_namespace"}} & set(sys.modules)
assert not heavy, heavy
import lancedb
from corag.index.store import connect
assert connect({str(folder)!r}).open_table(index.manifest.table).count_rows() == {NUM_CHUNKS}
assert lancedb.db.LOOP is sys.modules["lancedb.background_loop"].LOOP
assert index.retrieve("red river", np.ones(8), 5) == found
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_read_at_once(folder: Path):
    code = f"""
from concurrent.futures import ThreadPoolExecutor
from corag.index import ChunkIndex

def read(_):
    return [chunk.id for chunk in ChunkIndex.open({str(folder)!r}).chunks()]

with ThreadPoolExecutor(8) as pool:
    assert len({{tuple(ids) for ids in pool.map(read, range(16))}}) == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("error", [TypeError, AttributeError])
def test_a_core_of_another_form_is_left_to_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch, error: type):
    def changed(_: Path) -> None:
        raise error("connect() takes 9 arguments")

    monkeypatch.setattr(store, "CoreDatabase", changed)
    assert len(list(ChunkIndex.open(folder).chunks())) == NUM_CHUNKS
