"""An index on object storage: an S3-compatible server on loopback, credentials from the environment."""

import numpy as np
import pytest

from corag.index import ChunkIndex
from tests.corag.index.worlds import make_chunks
from tests.fakes import HashEmbedder


@pytest.fixture
def bucket(monkeypatch):
    """The address of an empty bucket that the environment gives access to."""
    import boto3
    from moto.server import ThreadedMotoServer

    storage = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    storage.start()
    host, port = storage.get_host_and_port()
    variables = {
        "AWS_ENDPOINT": f"http://{host}:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3", endpoint_url=variables["AWS_ENDPOINT"]).create_bucket(Bucket="corag-tests")
    yield "s3://corag-tests"
    storage.stop()


def test_it_is_the_index_of_a_local_folder(bucket, tmp_path):
    uri, chunks = f"{bucket}/index", make_chunks(40)
    there = ChunkIndex.build(uri, chunks, HashEmbedder(), batch_size=10)
    here = ChunkIndex.build(tmp_path / "index", chunks, HashEmbedder(), batch_size=10)
    assert list(ChunkIndex.open(uri).chunks()) == list(here.chunks()) == chunks
    np.testing.assert_array_equal(there.vectors(), here.vectors())
    [vector] = HashEmbedder().embed([chunks[0].text])
    assert there.retrieve("red river", vector, 7) == here.retrieve("red river", vector, 7)
    embedder = HashEmbedder()
    ChunkIndex.build(uri, chunks, embedder)
    assert embedder.num_embedded == 0
