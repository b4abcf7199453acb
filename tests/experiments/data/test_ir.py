import gzip
import hashlib

import pytest

from corag.errors import DataError
from corag.text.data import DataFolder
from experiments.data.get import GetConfig, get_data
from experiments.data.sources.catalogue import find_source
from experiments.data.sources.fetch import UnfetchedError
from tests.experiments.data.servers import file_server

FILES = {
    "passages.tsv.gz": gzip.compress(b"0\tVarn is an island.\n1\tIts capital is Tolmere.\n2\tKell.\n", mtime=0),
    "queries.tsv": b"7\tcapital of varn\n8\twhat is kell\n",
    "qrels": b"7 0 1 2\n7 0 0 0\n8 0 2 1\n",
}
"""A set of ir_datasets: passages, questions, judgements."""


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A set called `varn` of ir_datasets, with the part `varn/test`, whose files lie on a server."""
    import huggingface_hub.constants as constants
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util import GzipExtract
    from ir_datasets.util.download import Download, RequestsDownload

    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with file_server() as server:
        server.files = dict(FILES)

        def download(name):
            checksum = hashlib.md5(FILES[name]).hexdigest()
            return Download([RequestsDownload(f"{server.url}/{name}")], str(tmp_path / "ir" / name), checksum)

        docs = TsvDocs(GzipExtract(download("passages.tsv.gz")), namespace="varn", lang="en")
        queries, qrels = TsvQueries(download("queries.tsv")), TrecQrels(download("qrels"), {1: "good", 2: "best"})
        parts = {"varn": Dataset(docs), "varn/test": Dataset(docs, queries, qrels)}
        monkeypatch.setattr(ir_datasets.registry, "_registered", {**ir_datasets.registry._registered, **parts})
        yield server


def get(tmp_path, **settings):
    return get_data(GetConfig("ir_datasets:varn", str(tmp_path / "out"), quiet=True, **settings))


def test_passages_questions_and_judgements(server, tmp_path):
    folder = DataFolder.open(get(tmp_path))
    assert [(query.split, query.id, query.question, query.gold) for query in folder.queries] == [
        ("test", "7", "capital of varn", ("1",)), ("test", "8", "what is kell", ("2",)),
    ]  # fmt: skip
    assert folder.queries[0].grades == {"1": 2, "0": 0}
    assert [passage.text for passage in folder.documents.values()][2] == "Kell."
    assert sorted(path for path, _ in server.content_requests()) == ["/passages.tsv.gz", "/qrels", "/queries.tsv"]
    from ir_datasets.util.download import RequestsDownload

    assert RequestsDownload.stream.__module__ == "ir_datasets.util.download"


def test_a_download_that_was_broken_off_goes_on(server, tmp_path):
    name = hashlib.sha256(f"{server.url}/passages.tsv.gz".encode()).hexdigest()[:8]
    part = tmp_path / "cache" / "downloads" / f"{name}-passages.tsv.gz.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(FILES["passages.tsv.gz"][:10])
    assert len(DataFolder.open(get(tmp_path)).documents) == 3
    assert ("/passages.tsv.gz", "bytes=10-") in server.content_requests()


def test_a_wrong_checksum_deletes_the_download(server, tmp_path):
    server.files["passages.tsv.gz"] = gzip.compress(b"0\tSomething else.\n")
    with pytest.raises(DataError, match=r"checksum of a file of varn differs: .*run the same command again"):
        get(tmp_path)
    server.files = dict(FILES)
    assert len(DataFolder.open(get(tmp_path)).documents) == 3


def test_files_brought_by_hand(server, tmp_path):
    (tmp_path / "brought").mkdir()
    for name, content in FILES.items():
        (tmp_path / "brought" / name).write_bytes(content)
    assert len(DataFolder.open(get(tmp_path, from_=str(tmp_path / "brought"))).documents) == 3
    assert not server.asked


def test_a_missing_file_is_named_with_its_address(server, tmp_path):
    (tmp_path / "brought").mkdir()
    with pytest.raises(DataError, match=rf"has no file qrels; leave out --from .*: qrels from {server.url}/qrels"):
        get(tmp_path, from_=str(tmp_path / "brought"))
    del server.files["queries.tsv"]
    with pytest.raises(DataError, match=r"queries\.tsv cannot be fetched: .*404"):
        get(tmp_path)
    assert issubclass(UnfetchedError, DataError)


def test_a_part_of_a_large_corpus(server, tmp_path):
    folder = DataFolder.open(get(tmp_path, limit=1, passages=1))
    assert list(folder.documents) == ["0", "1"]


def test_sets_are_known_by_name():
    source = find_source("beir:scifact")
    assert source.splits == ("test", "train")
    assert find_source("ir_datasets:msmarco-passage/trec-dl-2019/judged").splits == ("test",)
    assert find_source("msmarco").default_splits == ("dev", "test")
