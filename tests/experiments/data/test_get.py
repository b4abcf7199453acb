"""`corag data`: files from the web, the hub and by hand, as data folders that are whole or not there."""

import gzip
import io
import json
import shutil
import tarfile
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corag.cli.main import main
from corag.errors import DataError
from corag.text.data import DataFolder, find_data
from experiments.data.catalogue import DATA_SETS
from experiments.data.fetch import Files
from experiments.data.folder import read_source
from experiments.data.get import GetConfig, get_data
from tests.experiments.data.test_sets import ROWS

[MUSIQUE], [PUBMEDQA], SQUAD = ROWS["musique"]["dev"], ROWS["pubmedqa"]["train"], ROWS["squad"]["dev"][0]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "ir"))
    monkeypatch.delenv("CORAG_DATA", raising=False)


@pytest.fixture
def web(tmp_path):
    """The address of a server, and the folder whose files it has."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.fixture
def source(monkeypatch):
    """Says where the files of a set are on this machine."""

    def at(name, **files):
        places = {part: (str(place),) for part, place in files.items()}
        monkeypatch.setitem(DATA_SETS, name, replace(DATA_SETS[name], files=places))

    return at


@pytest.fixture
def pubmedqa(tmp_path, source):
    parquet(tmp_path / "train.parquet", [PUBMEDQA, PUBMEDQA | {"pubid": 215}])
    source("pubmedqa", train=tmp_path / "train.parquet")


def rows(place):
    return list(Files({"dev": (place,)}, quiet=True).rows("dev"))


def test_a_file_of_the_web_is_fetched_once(web):
    url, folder = web
    (folder / "a.jsonl").write_bytes(b'{"id": 1}\n')
    assert rows(f"{url}/a.jsonl") == [{"id": 1}]
    (folder / "a.jsonl").unlink()
    assert rows(f"{url}/a.jsonl") == [{"id": 1}]


def test_a_file_that_cannot_be_fetched(web):
    url, _ = web
    for place in (f"{url}/nothing.jsonl", "http://no-such-host.invalid/a.jsonl", "hf://datasets/some/data/*.parquet"):
        with pytest.raises(DataError, match="cannot be fetched"):
            rows(place)


ROW = {"id": "1", "text": "Varn"}
TABLE = b"\xef\xbb\xbfid\ttext\n1\tVarn\n"
FORMS = {
    "a.jsonl": (json.dumps(ROW).encode() + b"\n\n", [ROW]), "a.json": (json.dumps([ROW], indent=1).encode(), [ROW]),
    "o.json": (b'{"x": {"id": 0.5}}', [{"key": "x", "value": {"id": 0.5}}]),
    "a.md": (b"Varn\nKell", [{"file": "a", "text": "Varn\nKell"}]), "a.tsv": (TABLE, [ROW | {"file": "a"}]),
    "a.csv": (TABLE.replace(b"\t", b","), [ROW | {"file": "a"}]),
}  # fmt: skip


def test_every_form_of_a_file_by_itself_zipped_and_in_archives(web):
    url, folder = web
    with zipfile.ZipFile(folder / "x.zip", "w") as zipped, tarfile.open(folder / "x.tar.gz", "w:gz") as tape:
        for name, (content, _) in FORMS.items():
            zipped.writestr(f"data/{name}", content)
            entry = tarfile.TarInfo(f"data/{name}")
            entry.size = len(content)
            tape.addfile(entry, io.BytesIO(content))
            (folder / name).write_bytes(content)
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    for name, (_, expected) in FORMS.items():
        for place in (f"{url}/{name}", f"{url}/{name}.gz", f"zip://**/*{name}::{url}/x.zip"):
            assert rows(place) == expected, place
    assert rows(f"tar://data/a.jsonl::{url}/x.tar.gz") == [ROW]
    with pytest.raises(DataError, match="cannot be fetched"):
        rows(f"zip://**/*.parquet::{url}/x.zip")
    (folder / "b.jsonl").write_text("{broken\n")
    with pytest.raises(DataError):
        rows(f"{url}/b.jsonl")


def got(name, out, **settings):
    return get_data(GetConfig(name, str(out), quiet=True, **settings))


def test_a_set_goes_to_the_cache_where_its_name_finds_it(tmp_path, pubmedqa, capsys):
    config = GetConfig("pubmedqa", quiet=True)
    folder = get_data(config)
    assert folder == find_data("pubmedqa") == tmp_path / "cache" / "data" / "pubmedqa"
    assert "licence: MIT" in capsys.readouterr().err
    before = (folder / "corpus.jsonl.gz").stat()
    assert get_data(config) == folder
    assert (folder / "corpus.jsonl.gz").stat() == before
    record = read_source(folder)
    assert (record["licence"], record["questions"], record["passages"]) == ("MIT", {"train": 2}, 2)
    assert record["sha256"]["corpus.jsonl.gz"] and record["files"] and record["home"]
    changed = {"limit": 1, "quiet": True}
    with pytest.raises(DataError, match="--overwrite"):
        get_data(GetConfig("pubmedqa", **changed))
    assert get_data(GetConfig("pubmedqa", overwrite=True, **changed)) == folder
    assert read_source(folder)["settings"]["limit"] == 1
    assert len(DataFolder.open(folder).queries) == 1


def test_a_folder_with_other_files_is_left_alone(tmp_path, pubmedqa):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError):
        got("pubmedqa", out, overwrite=True)
    assert [file.name for file in out.iterdir()] == ["thesis.txt"]


def test_a_set_without_passages_is_asked_of_another_corpus(tmp_path, pubmedqa, source):
    other = got("pubmedqa", tmp_path / "pubmedqa")
    parquet(tmp_path / "wk.parquet", ROWS["felm"]["wk"])
    source("felm", wk=tmp_path / "wk.parquet")
    folder = DataFolder.open(got("felm", tmp_path / "out", corpus=str(other)))
    assert len(folder.split("wk")) == 2 and list(folder.documents) == list(DataFolder.open(other).documents)


def test_lone_surrogates_are_replaced_and_repeated_questions_left_out(tmp_path, source, capsys):
    row = json.loads(json.dumps(MUSIQUE))
    row["paragraphs"][0]["paragraph_text"] = "Broken \ud83d emoji"
    (tmp_path / "train.jsonl").write_text(f"{json.dumps(row)}\n" * 2)
    source("musique", train=tmp_path / "train.jsonl")
    folder = DataFolder.open(got("musique", tmp_path / "out", splits="train"))
    assert len(folder.queries) == 1
    assert any(passage.text.startswith("Broken �") for passage in folder.documents.values())
    assert "1 questions" in capsys.readouterr().err


def test_without_a_network_nothing_is_left(tmp_path):
    with pytest.raises(DataError, match="copy the folder"):
        got("clapnq", tmp_path / "out", splits="dev")
    assert not (tmp_path / "out").exists()


def test_a_conversion_that_breaks_off_leaves_nothing_and_runs_again(tmp_path, source):
    files = {name: tmp_path / f"{name}.parquet" for name in ("train", "dev")}
    for name, file in files.items():
        parquet(file, [SQUAD | {"id": name}])
    source("squad", **files)
    whole = files["dev"].read_bytes()
    files["dev"].write_bytes(whole[:-9])
    (tmp_path / ".out.part").mkdir()  # a kill leaves it
    command = ["data", "get", "squad", "--out", str(tmp_path / "out"), "--quiet"]
    assert main(command) == 2
    assert not (tmp_path / "out").exists()
    files["dev"].write_bytes(whole)
    shutil.rmtree(tmp_path / "cache" / "downloads")
    assert main(command) == 0
    assert len(DataFolder.open(tmp_path / "out").queries) == 2
    assert not (tmp_path / ".out.part").exists()


def test_a_set_of_ir_datasets(monkeypatch, tmp_path):
    import ir_datasets
    from ir_datasets.datasets.base import Dataset
    from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries
    from ir_datasets.util.download import LocalDownload

    def file(name, content):
        (tmp_path / name).write_text(content)
        return LocalDownload(tmp_path / name)

    docs = TsvDocs(file("docs", "0\tVarn is an island.\n1#L1\tIts capital is Tolmere.\n2\tKell.\n"), namespace="varn")
    queries = TsvQueries(file("queries", "7\tcapital of varn\n8\twhat is kell\n"))
    qrels = TrecQrels(file("qrels", "7 0 1#L1 2\n7 0 0 0\n8 0 2 1\n"), {1: "good", 2: "best"})
    parts = {"varn": Dataset(docs), "varn/test": Dataset(docs, queries, qrels)}
    monkeypatch.setattr(ir_datasets.registry, "_registered", {**ir_datasets.registry._registered, **parts})
    config = GetConfig("ir_datasets:varn", str(tmp_path / "out"), quiet=True)
    data = DataFolder.open(get_data(config))
    assert [(query.split, query.id, query.question, query.gold) for query in data.queries] == [
        ("test", "7", "capital of varn", ("1#L1",)), ("test", "8", "what is kell", ("2",)),
    ]  # fmt: skip
    assert data.queries[0].grades == {"1#L1": 2, "0": 0}
    assert [passage.text for passage in data.documents.values()][2] == "Kell."
    limited = get_data(GetConfig(config.name, str(tmp_path / "some"), limit=1, passages=1, quiet=True))
    assert list(DataFolder.open(limited).documents) == ["0", "1#L1"]
