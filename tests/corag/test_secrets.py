"""No key and no password is in anything that is printed, logged or written."""

import base64
import copy
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag import registry
from corag.cli.main import main
from corag.errors import InputError
from corag.index import ChunkIndex
from corag.naming import PartName, hidden, parse, split_parts, without_secrets
from corag.redaction import hide_secrets, remember_secrets, shown
from corag.registry import READERS
from experiments.agents.sweep import SweepConfig, _folder_name
from experiments.labels.table import read_metadata, write_labels
from experiments.papers.study import make_study
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import MANY_QUERIES, QUERIES, write_folder
from tests.paths import ROOT
from tests.processes import environment

KEY = "sk-PLANTED"
LONG_KEY = "sk-PLANTED-LONG-0123456789"
URL = f"http://user:{KEY}@127.0.0.1:1/v1"
NAMES = st.sampled_from(sorted({name for table in registry.TABLES for name in table.names}))
LEAVES = st.fixed_dictionaries(
    {},
    optional={
        "api_key": st.sampled_from([KEY, f"{KEY}, )\"'", f"{KEY} and more"]),
        "token": st.just(KEY),
        "password": st.just(KEY),
        "headers": st.just({"Authorization": f"Bearer {KEY}", "x": [KEY]}),
        "base_url": st.just(URL),
        "model": st.just("gpt-4o"),
        "urls": st.just([URL, {"a": URL}]),
    },
)
INNER = st.builds(PartName, NAMES, LEAVES)


def nested(inner):
    settings = st.dictionaries(st.sampled_from(["reader", "summarizer", "selector", "part"]), inner, max_size=2)
    return st.builds(lambda name, leaves, parts: PartName(name, {**leaves, **parts}), NAMES, LEAVES, settings)


def raw(value):
    """A part as its user writes it, secrets and all."""
    if isinstance(value, PartName):
        return f"{value.name}({', '.join(f'{key}={raw(inner)}' for key, inner in value.settings.items())})"
    return json.dumps({name: raw(inner) for name, inner in value.items()} if isinstance(value, dict) else value)


@given(nested(nested(INNER)))
def test_no_part_nested_three_deep_shows_a_secret(part):
    assert KEY not in part and KEY not in repr(part) and KEY not in json.dumps({part: [part]})
    assert KEY not in str(copy.deepcopy(part)) and KEY not in json.dumps(without_secrets({"a": [part]}))
    read = parse(raw(part))
    assert KEY not in read and KEY not in str(parse(str(read)))
    assert KEY not in json.dumps(without_secrets([raw(part), {part.name: dict(part.settings)}]))
    assert KEY not in "".join(split_parts([raw(part)]))
    assert KEY not in str(hidden([raw(part)])[0])
    assert KEY not in hide_secrets(raw(part)) and KEY not in str(InputError(f"{shown(raw(part), 500)} is wrong"))


def test_a_key_is_there_for_who_builds():
    part = parse(f"openai(model=gpt-4o, api_key={KEY}, base_url={URL})")
    built = corag.reader(part)
    assert built.api_key == KEY and built.base_url == URL
    assert corag.reader(hidden(f"openai(model=gpt-4o, api_key={KEY})")).api_key == KEY
    assert KEY not in f"{built}"
    again = corag.reader(str(corag.reader("openai", model="gpt-4o", base_url=URL)))
    assert again.base_url == "http://127.0.0.1:1/v1"


def test_what_an_own_part_calls_secret_is_one():
    @dataclass
    class Own(corag.naming.Part):
        licence: str = ""
        secrets = frozenset({"licence"})

    assert str(registry.Registry("reader", {"own": Own}).make(f"own(licence={KEY})")) == "own(licence=***)"


@pytest.mark.parametrize(
    "part",
    [
        f"openai(model=x, api_key=ab,{KEY})",
        f"openai(model=x, api_key=ab){KEY}, seed=1)",
        f"openai(model=x, API-Key={KEY})",
        f"openai(model=x, apikey={KEY})",
        f"openai(base_url=http://u:a/{KEY}@h/v1)",
        f"openai(base_url=http://u:a#{KEY}@h/v1)",
    ],
)
def test_a_key_that_is_not_written_as_it_should_be(part):
    try:
        said = f"{parse(part)!r} {without_secrets(part)}"
    except InputError as error:
        said = str(error)
    assert KEY not in said + str(InputError(f"{part!r} is wrong")) and "***" in said


def test_no_repr_shows_a_key():
    for part in (f"openai(model=gpt-4o, api_key={KEY}, base_url={URL})", f"ollama(host={URL})"):
        assert KEY not in repr(corag.reader(part)) + repr(corag.summarizer(part))


def test_settings_in_settings_and_names_of_mappings():
    given = {"trainer": {"callbacks": [f"a/b(token={KEY})"]}}
    base = {"labels": "l", "out": "o", "recipe": "paper", **given}
    shown_ = hidden(SweepConfig(base=base, vary={name: [value] for name, value in given.items()}))
    assert KEY not in json.dumps(asdict(shown_))
    assert KEY not in _folder_name(given, 0)


def test_a_study_and_a_label_table_show_no_key(tmp_path):
    part = f"openai(model=x, api_key={KEY}, base_url={URL})"
    grid = {"reader": [part], "kind": {part: {"reader": part}}}
    more = {"methods": {"top-k": "top-k"}, "figures": ["f1"]}
    study = make_study({"name": "own", "title": "t", "evaluate": {"summarizer": part}, "grid": grid} | more)
    assert KEY not in f"{study}" and KEY not in json.dumps([study.evaluate, study.grid], default=str)
    write_labels(tmp_path / "l.parquet", [], {"settings": {"reader": part}, "embedder": "minilm"})
    assert KEY not in json.dumps(read_metadata(tmp_path / "l.parquet"))


@pytest.mark.parametrize(
    "text", ["max_tokens=5 tokens=minilm", "mail a@b.c about http://h/v1", "a(b=1): 3", "key=value", "the token is"]
)
def test_other_texts_stay(text):
    assert hide_secrets(text) == without_secrets(text) == text


def test_hidden_settings_of_a_table_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert READERS.make("openai(model=gpt-4o, api_key=***)").api_key is None


def test_a_known_value_is_hidden_wherever_it_is():
    corag.reader(f"openai(model=x, api_key={LONG_KEY})")
    corag.reader("openai", model="x", base_url=f"http://user:{LONG_KEY}2@127.0.0.1:1/v1")
    basic = base64.b64encode(f"user:{LONG_KEY}2".encode()).decode()
    for text in (f"you sent {LONG_KEY} here", f"(b'Basic {basic}')", f"/v1/models/{quote(LONG_KEY, safe='')}", basic):
        assert LONG_KEY not in hide_secrets(text) and basic not in hide_secrets(text) and "***" in hide_secrets(text)


@given(st.text(max_size=9), st.text(max_size=9))
def test_a_known_value_is_hidden_in_base64_whatever_stands_around_it(before, behind):
    remember_secrets(LONG_KEY, secret=True)
    coded = base64.b64encode(f"{before}{LONG_KEY}{behind}".encode()).decode()
    assert "***" in hide_secrets(coded) and len(hide_secrets(coded)) < len(coded) - len(LONG_KEY)


def test_a_password_to_a_proxy_is_known(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{quote(LONG_KEY + '3#')}@127.0.0.1:1")
    assert hide_secrets(f"407 for {LONG_KEY}3#, b'{base64.b64encode(f'me:{LONG_KEY}3#'.encode()).decode()}'") == (
        "407 for ***, b'bWU6***w=='"
    )


@pytest.mark.parametrize("shift", range(15, 60, 14))
def test_a_key_that_a_server_echoes_where_its_error_is_cut_is_hidden(shift):
    key = LONG_KEY + "-of-a-length-that-is-cut"
    echo = Reply(status=400, error=" " * (1990 - shift) + key)
    with ChatServer(echo) as server, pytest.raises(corag.errors.ReaderError) as caught:
        corag.reader("openai", model="llama3.1:8b", base_url=server.base_url, api_key=key).answer("Who?", "Berlin.")
    assert key[:6] not in str(caught.value) and "***" in str(caught.value)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_the_server_of_weights_and_biases_echoes_is_in_no_log(tmp_path):
    key = "0123456789abcdef" * 2 + "01234567"
    code = f"""
from pathlib import Path
from corag.cli.main import _configure_logging
from experiments.run.track import TrackedRun, Tracking
_configure_logging(debug=True)
with TrackedRun("evaluate", Tracking(logger="wandb"), Path({str(tmp_path)!r}) / "log", {{}}) as run:
    assert run.start() is None
"""
    with ChatServer(echoes=True) as server:
        variables = environment(
            WANDB_BASE_URL=server.host, WANDB_API_KEY=key, WANDB_MODE="online", WANDB_INIT_TIMEOUT="20"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=variables)
    assert done.returncode == 0 and "W&B could not start" in done.stderr, done.stderr
    said = [done.stdout + done.stderr, *(file.read_text(errors="replace") for file in tmp_path.rglob("*.log"))]
    coded = base64.b64encode(f"api:{key}".encode()).decode()[8:-8]
    assert len(said) > 1 and any("you sent Basic" in text for text in said[1:])
    assert not [text for text in said if key in text or coded in text]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("source", "debug"), [("setting", ["--debug"]), ("environment", [])])
def test_what_a_server_echoes_is_in_no_traceback_and_no_log(tmp_path, debug, source):
    chunks = [corag.Chunk("a", "Berlin is in Germany.")]
    ChunkIndex.build(tmp_path / "index", chunks, corag.embedder())
    echo = Reply(status=400, error=f"you sent {LONG_KEY}", headers={"X-Echo": f"Bearer {LONG_KEY}"})
    with ChatServer(echo) as server:
        reader = f"openai(model=llama3.1:8b, base_url={server.base_url}"
        variables = environment(**({"OPENAI_API_KEY": LONG_KEY} if source == "environment" else {}))
        reader += ")" if source == "environment" else f', api_key="{LONG_KEY}")'
        ask = ["ask", "Where is Berlin?", "--index", str(tmp_path / "index"), "--tokenizer", "minilm"]
        command = [sys.executable, "-m", "corag.cli.main", *debug, *ask, "--reader", reader]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables)
    said = done.stdout + done.stderr
    assert done.returncode == (1 if debug else 2) and "you sent ***" in said, said
    assert bool(debug) == ("Traceback" in said)
    assert LONG_KEY not in said and not server.headers[-1]["authorization"].endswith("***")


def test_errors_of_threads_and_those_that_nobody_handles_show_no_key():
    code = f"""
import os, threading
from corag.redaction import hide_in_tracebacks
from corag.cli.main import _configure_logging
hide_in_tracebacks()
os.environ["WANDB_API_KEY"] = {LONG_KEY!r}
_configure_logging(debug=True)
import logging, warnings
warnings.warn({LONG_KEY!r})
logging.getLogger("corag").info("%d", {LONG_KEY!r})
def fail():
    raise ValueError({LONG_KEY!r})
class Broken:
    def __del__(self): fail()
thread = threading.Thread(target=fail); thread.start(); thread.join()
Broken()
try:
    fail()
except ValueError as error:
    raise RuntimeError("then") from error
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment())
    assert done.returncode == 1 and done.stderr.count("ValueError: ***") == 3 and "RuntimeError: then" in done.stderr
    assert f"ValueError: {LONG_KEY}" not in done.stderr and "UserWarning: ***" in done.stderr
    assert "Arguments" not in done.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_command_writes_or_prints_a_key(tmp_path, capfd, monkeypatch):
    """Every file that commands write, their names, and what they print, with a key in each kind of part."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    data = write_folder(tmp_path / "data", queries=[*QUERIES[:2], *QUERIES[5:7]])
    write_folder(tmp_path / "many", queries=MANY_QUERIES)
    write_folder(tmp_path / "unanswered", queries=[{**query, "answers": []} for query in QUERIES[:2]])
    with ChatServer(Reply("310 metres")) as server:
        url = server.base_url.replace("://", f"://user:{KEY}@")
        part = f"openai(model=llama3.1:8b, base_url={url}, api_key={KEY}, max_answer_tokens=20)"
        routed, digest = f"self-route(reader={part})", f"crag(summarizer={part})"
        nested = f"self-route(full=self-route(part=crag(summarizer={part})))"
        evaluate = ["evaluate", "--data", str(data), "--split", "train", "--limit", "1", "--reader", part, "--quiet"]
        label = ["label", "--data", str(data), "--out", "l.parquet", "--limit", "2"]
        commands = [
            [*evaluate, "--methods", f"top-k, {routed}, {digest}, {nested}", "--out", "r.json"],
            [*evaluate, "--methods", f"top-k, {routed}", "--out", "w.json", "--logger", "wandb"],
            ["tune", "--data", "many", "--configurations", f"top-k(k=1), {routed}", "--out", "tuned", "--quiet"],
            ["data", "references", "--data", "unanswered", "--reader", part, "--out", "references", "--quiet"],
            [*label, "--configurations", f"corag(reranker=bm25), {routed}", "--reader", part],
            ["evaluate", "--data", str(data), "--methods", f"nope(reader={part})"],
            ["evaluate", "--data", str(data), "--methods", f"top-k(k=3, reader={part}"],
        ]
        statuses = []
        for command in commands:
            monkeypatch.setattr(sys, "argv", ["corag", *command])
            statuses.append(main(command))
    said = capfd.readouterr()
    assert statuses == [0, 0, 0, 0, 0, 2, 2], said.err
    # The password reaches the server from every command; in an address it takes the place of the key.
    password = base64.b64encode(f"user:{KEY}".encode()).decode()
    assert {one.get("authorization") for one in server.headers} == {f"Basic {password}"}
    assert KEY not in said.out + said.err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20 and "***" in (tmp_path / "r.json").read_text()
    leaks = [path for path in files if KEY.encode() in path.read_bytes() or KEY in str(path)]
    assert not leaks
