"""Keys and passwords come from the environment; no part is named with one, and no output holds one."""

import sys

import pytest

import corag
from common.configuration import parse, split_parts
from corag.cli.main import main
from corag.errors import InputError, ReaderError
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import MANY_QUERIES, QUERIES, write_folder

KEY = "sk-PLANTED-0123456789"


@pytest.mark.parametrize(
    "part",
    [
        f"openai(model=x, api_key={KEY})",
        f"openai(model=x, API-Key={KEY})",
        f"openai(model=x, base_url=http://user:{KEY}@127.0.0.1:1/v1)",
        f"self-route(reader=openai(model=x, api_key={KEY}))",
        f"self-route(full=self-route(reader=ollama(host=http://user:{KEY}@h)))",
    ],
)
def test_a_part_that_names_a_key_is_refused_with_the_variable_to_set(part):
    for read in (parse, split_parts):
        with pytest.raises(InputError, match="OPENAI_API_KEY") as caught:
            read(part)
        assert KEY not in str(caught.value)


def test_an_argument_in_python_that_is_a_key_is_refused():
    with pytest.raises(InputError, match="OPENAI_API_KEY"):
        corag.reader("openai", model="x", api_key=KEY)
    for server, setting, variable in (("openai", "base_url", "OPENAI_BASE_URL"), ("ollama", "host", "OLLAMA_HOST")):
        with pytest.raises(InputError, match=variable) as caught:
            corag.reader(server, model="x", **{setting: f"http://user:{KEY}@127.0.0.1:1"})
        assert KEY not in str(caught.value)


def test_an_at_sign_elsewhere_is_no_password():
    for text in ("openai(model=a@b)", "cross-encoder(model=http://h/@org/m)"):
        assert str(parse(text)) == text


@pytest.mark.parametrize("shift", range(15, 60, 14))
def test_a_key_that_a_server_echoes_where_its_error_is_cut_is_hidden(monkeypatch, shift):
    key = KEY + "-of-a-length-that-is-cut"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    echo = Reply(status=400, error=" " * (1990 - shift) + key)
    with ChatServer(echo) as server, pytest.raises(ReaderError) as caught:
        corag.reader("openai", model="llama3.1:8b", base_url=server.base_url).answer("Who?", "Berlin.")
    assert key[:6] not in str(caught.value) and "***" in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_command_writes_or_prints_a_key(tmp_path, capfd, monkeypatch):
    """Every file that commands write, their names, and what they print, with keys in the environment."""
    for name in ("OPENAI_API_KEY", "OLLAMA_API_KEY"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    data = write_folder(tmp_path / "data", queries=[*QUERIES[:2], *QUERIES[5:7]])
    write_folder(tmp_path / "many", queries=MANY_QUERIES)
    write_folder(tmp_path / "unanswered", queries=[{**query, "answers": []} for query in QUERIES[:2]])
    with ChatServer(Reply("310 metres")) as server:
        part = f"openai(model=llama3.1:8b, base_url={server.base_url}, max_answer_tokens=20)"
        refused = f"openai(model=llama3.1:8b, api_key={KEY})"
        routed, digest = f"self-route(reader={part})", f"crag(summarizer={part})"
        evaluate = ["evaluate", "--data", str(data), "--split", "train", "--limit", "1", "--quiet", "--reader"]
        commands = [
            [*evaluate, part, "--methods", f"top-k, {routed}, {digest}", "--out", "w.json", "--logger", "wandb"],
            ["tune", "--data", "many", "--configurations", f"top-k(k=1), {routed}", "--out", "tuned", "--quiet"],
            ["data", "references", "--data", "unanswered", "--reader", part, "--out", "references", "--quiet"],
            ["label", "--data", str(data), "--out", "l.parquet", "--limit", "2", "--reader", part],
            [*evaluate, refused, "--methods", "top-k", "--out", "r.json"],
            [*evaluate, part, "--methods", f"self-route(reader={refused})", "--out", "r.json"],
        ]
        statuses = []
        for command in commands:
            monkeypatch.setattr(sys, "argv", ["corag", *command])
            statuses.append(main(command))
    said = capfd.readouterr()
    assert statuses == [0, 0, 0, 0, 2, 2], said.err
    assert {one.get("authorization") for one in server.headers} == {f"Bearer {KEY}"}
    assert KEY not in said.out + said.err and not (tmp_path / "r.json").exists()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [path for path in files if KEY.encode() in path.read_bytes() or KEY in str(path)]
