"""An index on object storage: an S3-compatible server on loopback, credentials from the environment."""

import pytest

from corag.index import ChunkIndex
from tests.corag.index.worlds import make_chunks
from tests.fakes import HashEmbedder

pytest.importorskip("lancedb")

BUCKET = "corag-tests"


@pytest.fixture(scope="module")
def server():
    from moto.server import ThreadedMotoServer

    storage = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    storage.start()
    host, port = storage.get_host_and_port()
    yield f"http://{host}:{port}"
    storage.stop()


@pytest.fixture
def storage(server, monkeypatch):
    """Point the environment at a storage with one empty bucket; return its client."""
    variables = {
        "AWS_ENDPOINT": server, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    import boto3

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=server)
    client.create_bucket(Bucket=BUCKET)
    yield client
    for name in objects(client):
        client.delete_object(Bucket=BUCKET, Key=name)
    client.delete_bucket(Bucket=BUCKET)


def objects(client, prefix=""):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [one["Key"] for page in pages for one in page.get("Contents", [])]


def place(name):
    return f"s3://{BUCKET}/{name}"


def rows_of(uri):
    return ChunkIndex.open(uri)._table.search().to_arrow().to_pylist()


def test_it_is_the_index_of_a_local_folder(storage, tmp_path):
    chunks = make_chunks(40)
    there = ChunkIndex.build(place("index"), chunks, HashEmbedder(), batch_size=10)
    here = ChunkIndex.build(tmp_path / "index", chunks, HashEmbedder(), batch_size=10)
    assert rows_of(place("index")) == rows_of(tmp_path / "index")
    [vector] = HashEmbedder().embed([chunks[0].text])
    assert there.retrieve("red river", vector, 7) == here.retrieve("red river", vector, 7)
    embedder = HashEmbedder()
    ChunkIndex.build(place("index"), chunks, embedder)
    assert embedder.num_embedded == 0
