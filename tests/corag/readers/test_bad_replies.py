"""What a server says cannot harm the terminal or the files of the commands that ask it."""

import json

import pytest

from corag.cli.main import main
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import EvaluateConfig
from tests.chat_server import ChatServer, Reply

pytestmark = pytest.mark.slow

NASTY = (
    b'data: {"choices": [{"index": 0, "delta": {"content": "Otto\\ud800 \\u001b[31mLind\\u2028\\u0085\\u0000"}, '
    b'"finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
)
CLEAN = "Otto\ufffd [31mLind"


@pytest.fixture
def server():
    with ChatServer(Reply(body=NASTY, delay_s=0.05)) as server:
        yield server


def reader_of(server):
    return f"openai(base_url={server.base_url}, model=llama3.1:8b, tokenizer=minilm, max_concurrent=3)"


def test_ask_prints_a_harmless_answer(server, small_index, capsys):
    command = ["ask", "Who is the mayor?", "--index", str(small_index), "--reader", reader_of(server)]
    main([*command, "--json"])
    assert json.loads(capsys.readouterr().out)["answer"] == CLEAN
    main(command)
    printed = capsys.readouterr().out
    assert CLEAN in printed and "\x1b" not in printed


def test_evaluate_keeps_a_readable_journal_and_rows(server, small_data, tmp_path):
    out = tmp_path / "result.json"
    config = EvaluateConfig(
        data=str(small_data), methods="top-k(k=1),none", reader=reader_of(server), budget=400, out=str(out), limit=5,
        quiet=True,
    )  # fmt: skip
    result = evaluate(config)
    rows = [json.loads(line) for line in out.with_suffix(".rows.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert {row["answer"] for row in rows} == {CLEAN}
    assert len(rows) == 2 * result["queries"] > 4
    asked = len(server.chats)
    assert evaluate(config) == result and len(server.chats) == asked
    # Contexts of three questions are read together; those without any context are as many as the questions.
    assert 1 < server.most_at_once <= 3


def test_a_key_does_not_reach_a_result(small_data):
    from corag.errors import InputError

    for name in ("reader", "judge"):
        with pytest.raises(InputError, match=f"{name} holds an api_key, which results record; set OPENAI_API_KEY"):
            EvaluateConfig(data=str(small_data), **{name: "openai(model=x, api_key=sk-1)"})
