import errno
import hashlib
import signal
import subprocess
import sys
import time

import pytest

from corag.cli.main import main
from corag.errors import DataError
from corag.text.data import DataFolder
from corag.text.find import find_data
from experiments.data.folder import read_source
from experiments.data.get import GetConfig, get_data
from experiments.data.sources import fetch
from experiments.data.sources.catalogue import SOURCES
from experiments.data.sources.fetch import UnfetchedError, brought, fetched, from_web
from experiments.data.sources.source import Hub, Url
from tests.experiments.data.servers import COMMIT, file_server
from tests.experiments.data.source_files import WRITERS

CONTENT = bytes(range(256)) * 4_000
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CORAG_DATA", raising=False)


@pytest.fixture
def web(monkeypatch):
    import huggingface_hub.constants as constants

    with file_server() as server:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        server.files["data.bin"] = CONTENT
        yield server


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The hub, with an empty cache of its own."""
    import huggingface_hub.constants as constants

    with file_server() as server:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


# --- A file of the web ---


def test_a_file_is_fetched_once(web):
    path = from_web(f"{web.url}/data.bin", MD5)
    assert path.read_bytes() == CONTENT
    assert from_web(f"{web.url}/data.bin", MD5) == path
    assert len(web.content_requests()) == 1
    assert not list(path.parent.glob("*.part"))


@pytest.mark.parametrize("ignores", [False, True])
def test_a_download_that_was_broken_off_goes_on(web, ignores):
    path = from_web(f"{web.url}/data.bin")
    part = path.rename(path.with_name(f"{path.name}.part"))
    part.write_bytes(CONTENT[:100_000])
    web.ignore_ranges = ignores
    assert from_web(f"{web.url}/data.bin", MD5).read_bytes() == CONTENT
    assert web.content_requests()[-1] == ("/data.bin", "bytes=100000-")


def test_a_download_that_was_stopped_after_its_last_byte(web):
    path = from_web(f"{web.url}/data.bin")
    path.rename(path.with_name(f"{path.name}.part"))
    assert from_web(f"{web.url}/data.bin", MD5).read_bytes() == CONTENT


def test_without_a_checksum_a_download_begins_anew(web):
    path = from_web(f"{web.url}/data.bin")
    path.rename(path.with_name(f"{path.name}.part")).write_bytes(b"of an older version")
    assert from_web(f"{web.url}/data.bin").read_bytes() == CONTENT


def test_a_server_that_breaks_off_is_asked_for_the_rest(web, monkeypatch):
    import huggingface_hub.constants as constants

    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100_000)
    web.break_after = 400_000
    assert from_web(f"{web.url}/data.bin", MD5).read_bytes() == CONTENT
    assert [span for _, span in web.content_requests()] == ["", "bytes=400000-", "bytes=800000-"]


def test_a_wrong_checksum_deletes_the_download(web):
    with pytest.raises(DataError, match=rf"checksum of \S+data\.bin differs: its MD5 is {MD5}, expected 00+; .*again"):
        from_web(f"{web.url}/data.bin", "0" * 32)
    assert from_web(f"{web.url}/data.bin", MD5).read_bytes() == CONTENT


def test_a_full_disk_keeps_what_was_fetched(web, monkeypatch):
    import huggingface_hub.file_download as download

    def fill(url, file, **_):
        file.write(CONTENT[:5_000])
        file.flush()
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(download, "http_get", fill)
        with pytest.raises(DataError, match=r"the disk is full while fetching .*free some space"):
            from_web(f"{web.url}/data.bin", MD5)
    assert from_web(f"{web.url}/data.bin", MD5).read_bytes() == CONTENT
    assert web.content_requests() == [("/data.bin", "bytes=5000-")]


def test_a_missing_file_and_a_missing_server(web, monkeypatch):
    with pytest.raises(UnfetchedError, match=r"nothing\.bin cannot be fetched: .*404"):
        from_web(f"{web.url}/nothing.bin")
    with pytest.raises(UnfetchedError, match="no network, or the server is unknown"):
        from_web("http://no-such-host.invalid/data.bin")
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UnfetchedError, match="no network, or HF_HUB_OFFLINE is set"):
        from_web(f"{web.url}/data.bin")


# --- The hub ---


def test_files_of_the_hub_with_their_revision(hub):
    hub.files = {"a/train-00000-of-00001.parquet": b"one", "a/README.md": b"two", "b/train.parquet": b"three"}
    [(path, revision)] = fetched(Hub("some/data", "a/*.parquet"))
    assert (path.read_bytes(), revision) == (b"one", COMMIT)
    again = fetched(Hub("some/data", "a/*.parquet"))
    assert again == [(path, revision)]
    assert len(hub.content_requests()) == 1


def test_a_gated_set_tells_what_to_do(hub):
    hub.files, hub.gated = {"a.parquet": b"one"}, True
    with pytest.raises(DataError, match=r"only for users who accept its terms: .*datasets/some/data.*hf auth login"):
        fetched(Hub("some/data", "*.parquet"))


def test_a_damaged_file_of_the_hub_is_deleted(hub):
    hub.files = {"a.parquet": b"right"}
    hub.claimed = {"a.parquet": hashlib.sha256(b"other").hexdigest()}
    with pytest.raises(DataError, match=r"checksum of \S+a\.parquet differs: its SHA-256 is .*run the same command"):
        fetched(Hub("some/data", "*.parquet"))
    hub.files, hub.claimed = {"a.parquet": b"other"}, {}
    [(path, _)] = fetched(Hub("some/data", "*.parquet"))
    assert path.read_bytes() == b"other"


def test_a_download_from_the_hub_goes_on(hub, tmp_path):
    hub.files, hub.small = {"a.parquet": CONTENT, "b.json": b"{}"}, {"b.json"}
    folder = tmp_path / "cache" / "downloads" / "hub" / "some--data" / COMMIT
    folder.mkdir(parents=True)
    (folder / "a.parquet.part").write_bytes(CONTENT[:100_000])
    [(path, _)] = fetched(Hub("some/data", "a.parquet"))
    assert path.read_bytes() == CONTENT
    assert hub.content_requests()[-1][1] == "bytes=100000-"
    # A part that is too long is of another file.
    (folder / "b.json.part").write_bytes(b"much too long")
    [(path, _)] = fetched(Hub("some/data", "b.json"))
    assert path.read_bytes() == b"{}"


def test_a_small_file_is_checked_as_git_does(hub):
    hub.files, hub.small = {"a.json": b"{}"}, {"a.json"}
    [(path, _)] = fetched(Hub("some/data", "a.json"))
    path.unlink()
    path.with_name("a.json.part").write_bytes(b"[]")
    with pytest.raises(DataError, match=r"its Git hash is .*, expected "):
        fetched(Hub("some/data", "a.json"))


def test_what_the_client_of_the_hub_has_fetched_is_used(hub):
    import huggingface_hub

    hub.files = {"a-00000-of-00002.parquet": b"one", "a-00001-of-00002.parquet": b"two"}
    theirs = huggingface_hub.snapshot_download("some/data", repo_type="dataset", allow_patterns=["*00000*"])
    [(first, _), (second, _)] = fetched(Hub("some/data", "*.parquet"))
    assert str(first).startswith(theirs)
    assert second.read_bytes() == b"two"


def test_a_missing_file_of_the_hub(hub):
    hub.files = {"a.parquet": b"one"}
    with pytest.raises(UnfetchedError, match=r"some/data has no file \*\.json"):
        fetched(Hub("some/data", "*.json"))


def test_what_is_in_the_cache_needs_no_network(hub, monkeypatch):
    hub.files = {"a.parquet": b"one", "b.parquet": b"two"}
    found = fetched(Hub("some/data", "a.parquet"))
    monkeypatch.setattr(fetch, "_has_address", lambda _: False)
    assert fetched(Hub("some/data", "a.parquet")) == found
    with pytest.raises(UnfetchedError, match="no network"):
        fetched(Hub("other/data", "*.parquet"))


def test_without_a_network_the_cache_of_the_hub_will_do(hub, monkeypatch):
    import huggingface_hub

    hub.files = {f"train-0000{number}-of-00003.parquet": b"x" for number in (0, 1, 2)}
    huggingface_hub.snapshot_download("some/data", repo_type="dataset", allow_patterns=["*[02]-of*"])
    monkeypatch.setattr(fetch, "_has_address", lambda _: False)
    assert fetched(Hub("some/data", "train-00000-*.parquet"))[0][1] == COMMIT
    # Of three files, the second is not there.
    with pytest.raises(UnfetchedError, match="no network"):
        fetched(Hub("some/data", "*.parquet"))
    with pytest.raises(UnfetchedError, match=r"b\.json of some/data cannot be fetched: no network"):
        fetched(Hub("some/data", "b.json"))


# --- Brought by hand ---


def test_brought_files_lie_as_at_the_source_or_flat(tmp_path):
    (tmp_path / "distractor").mkdir()
    (tmp_path / "distractor" / "train-1.parquet").touch()
    (tmp_path / "validation-1.parquet").touch()
    assert brought(Hub("r/d", "distractor/train-*.parquet"), tmp_path) == [tmp_path / "distractor" / "train-1.parquet"]
    assert brought(Hub("r/d", "distractor/validation-*.parquet"), tmp_path) == [tmp_path / "validation-1.parquet"]
    # A pattern without a name would take any file.
    with pytest.raises(UnfetchedError, match=r"has no file wk/test/\*\.parquet; bring .* from https://"):
        brought(Hub("r/d", "wk/test/*.parquet"), tmp_path)


def test_a_missing_shard_is_noticed(tmp_path):
    for number in (0, 2):
        (tmp_path / f"train-0000{number}-of-00003.parquet").touch()
    with pytest.raises(DataError, match=r"lacks train-00001-of-00003\.parquet; bring the others from https://"):
        brought(Hub("some/data", "a/train-*.parquet"), tmp_path)
    assert len(brought(Hub("some/data", "train-00000-*.parquet"), tmp_path)) == 1


def test_brought_files_are_checked(tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    assert brought(Url("http://a/data.bin", MD5), tmp_path) == [tmp_path / "data.bin"]
    with pytest.raises(DataError, match=rf"checksum of \S+data\.bin differs: its MD5 is {MD5}, .* 1+; bring"):
        brought(Url("http://a/data.bin", "1" * 32), tmp_path)


# --- The command ---


def test_without_a_network_all_files_to_bring_are_named(tmp_path):
    with pytest.raises(DataError) as error:
        get_data(GetConfig("clapnq", str(tmp_path / "out"), "dev", quiet=True))
    message = str(error.value)
    assert "add --from: " in message
    for name in ("clapnq_dev_answerable.jsonl", "question_dev_answerable.tsv", "passages.tsv"):
        assert f"{name} from https://" in message
    assert "clapnq_train_answerable.jsonl" not in message
    assert not (tmp_path / "out").exists()


def test_a_set_goes_to_the_cache_where_its_name_finds_it(tmp_path, capsys):
    WRITERS["pubmedqa"](tmp_path / "brought")
    config = GetConfig("pubmedqa", from_=str(tmp_path / "brought"), quiet=True)
    folder = get_data(config)
    assert folder == find_data("pubmedqa") == tmp_path / "cache" / "data" / "pubmedqa"
    assert "licence: MIT" in capsys.readouterr().err
    before = (folder / "corpus.jsonl.gz").stat()
    assert get_data(config) == folder
    assert (folder / "corpus.jsonl.gz").stat() == before
    record = read_source(folder)
    [file] = record["files"]
    content = (tmp_path / "brought/pqa_labeled/train-00000-of-00001.parquet").read_bytes()
    assert file["sha256"] == hashlib.sha256(content).hexdigest()
    with pytest.raises(DataError, match=r"holds pubmedqa with .*'limit': None.*--overwrite"):
        get_data(GetConfig("pubmedqa", limit=1, from_=config.from_, quiet=True))
    assert get_data(GetConfig("pubmedqa", limit=1, from_=config.from_, overwrite=True, quiet=True)) == folder
    assert read_source(folder)["settings"]["limit"] == 1


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    WRITERS["pubmedqa"](tmp_path / "brought")
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(DataError, match="holds something else; choose another folder"):
            get_data(GetConfig("pubmedqa", str(out), from_=str(tmp_path / "brought"), overwrite=overwrite, quiet=True))
    assert [file.name for file in out.iterdir()] == ["thesis.txt"]


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    WRITERS["squad"](tmp_path / "brought")
    config = GetConfig("squad", str(tmp_path / "out"), from_=str(tmp_path / "brought"), quiet=True)

    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("experiments.data.folder._write", fill)
        with pytest.raises(DataError, match=r"out cannot be written: .*No space left on device; free some space"):
            get_data(config)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["brought", "cache"]
    assert len(DataFolder.open(get_data(config)).queries) == 3


@pytest.mark.slow
def test_a_killed_conversion_runs_again(tmp_path):
    WRITERS["squad"](tmp_path / "brought")
    program = (
        "import sys, time, experiments.data.folder as folder\n"
        "write = folder._write\n"
        "folder._write = lambda *a: (write(*a), print('written', flush=True), time.sleep(60))\n"
        "from corag.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = ["data", "get", "squad", "--out", str(tmp_path / "out"), "--from", str(tmp_path / "brought"), "--quiet"]
    with subprocess.Popen([sys.executable, "-c", program, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out").exists()
    assert (tmp_path / ".out.part").exists()
    again = [sys.executable, "-m", "corag.cli.main", *command]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    assert "data folder in" in done.stdout
    assert len(DataFolder.open(tmp_path / "out").queries) == 3
    assert not (tmp_path / ".out.part").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data"], "corag data is followed by list or get"),
        (["data", "fetch", "squad"], "corag data is followed by list or get"),
        (["data", "get", "hotpot"], "there is no data set 'hotpot'; did you mean 'hotpotqa'?"),
        (
            ["data", "get", "squad", "--from", "nowhere"],
            "nowhere is not a folder; give the one with the source's files",
        ),
        (["data", "get", "felm"], "felm has no passages; name a data folder whose corpus holds the evidence"),
    ],
)
def test_mistakes_on_the_command_line(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_list_names_every_set_and_what_is_at_hand(tmp_path, monkeypatch, capsys):
    from experiments.data.get import ListConfig, list_data

    monkeypatch.setenv("CORAG_DATA", str(tmp_path / "mine"))
    (tmp_path / "mine" / "squad").mkdir(parents=True)
    list_data(ListConfig())
    said = capsys.readouterr().out
    assert all(name in said for name in SOURCES)
    assert "beir:NAME" in said
    list_data(ListConfig(at_hand=True))
    said = capsys.readouterr().out
    assert "squad" in said
    assert "musique" not in said
