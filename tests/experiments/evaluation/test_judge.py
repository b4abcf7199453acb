"""What a judge says of answers and contexts, over real HTTP, as shares that are worked out by hand."""

import json

import pytest

from corag.models.chat import ChatError, OllamaChat
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import JUDGEMENTS, Judge, JudgedAnswer, chat_of
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import rows_of

ANSWER = JudgedAnswer(
    "Who built the railway?",
    ("Otto Lind",),
    "Varn Railway\nThe railway was built by Otto Lind. It runs to Kell.\n\nKell\nKell is a village.",
    "Otto Lind built it.",
)


@pytest.mark.parametrize(
    ("name", "reply", "value"),
    [
        ("grade", '{"grade": 0.5, "reason": "half"}', 0.5),
        ("grade", 'Sure!\n```json\n{"grade": 1, "reason": "all"}\n```', 1.0),
        ("grade", '<think>{"grade": 0}</think>{"grade": 1}', 1.0),
        ("grade", "0.5", None),
        ("grade", '{"grade": 7}', None),
        ("mention", '{"mention": "partial"}', 0.5),
        ("answer_relevancy", '{"statements": [{"relevant": true}, {"relevant": false}]}', 0.5),
        ("answer_relevancy", '{"statements": []}', None),
        ("faithfulness", '{"claims": [{"supported": true}, {"supported": false}]}', 0.5),
        ("contextual_relevancy", '{"relevant": []}', 0.0),
        ("contextual_relevancy", '{"relevant": [1, 1]}', 1 / 3),  # of three sentences
        ("contextual_relevancy", '{"relevant": [0]}', None),
        ("hallucination", '{"contradicted": [2]}', 0.5),
    ],
)
def test_a_value_follows_from_a_reply(name, reply, value):
    assert JUDGEMENTS[name].read(reply, ANSWER) == (value if value is None else pytest.approx(value))


def test_replies_that_cannot_be_used_are_counted_and_nothing_is_made_up():
    with ChatServer(Reply('{"claims": []}'), Reply(status=400)) as server:
        chat = OllamaChat(host=server.host, max_concurrent=1)
        [row, again] = Judge(chat, ("faithfulness", "hallucination")).rows([ANSWER, ANSWER])
        # Equal requests are made once.
        assert len(server.chats) == 2
    assert row == again and row["judge_unusable"] == 2 and "faithfulness" in row["judge_error"]
    assert not set(row) & set(JUDGEMENTS)


def test_a_judge_that_is_not_there_is_an_error():
    with ChatServer() as server:
        host = server.host
    with pytest.raises(ChatError):
        chat_of("judge", f"ollama(host={host})")


def test_a_comparison_with_a_judge_resumes_and_asks_nothing_twice(tmp_path, small_data, reader):
    out = tmp_path / "r.json"
    replies = Reply('{"grade": 1, "claims": [{"supported": true}]}'), Reply("no idea")
    with ChatServer(*replies) as server:
        config = EvaluateConfig(
            str(small_data), methods="top-k(k=1),none", budget=48, reader="first-words", out=str(out), quiet=True,
            judge=f"ollama(host={server.host}, max_concurrent=1)", judge_figures="grade,faithfulness",
        )  # fmt: skip
        reader.patience = 3
        with pytest.raises(KeyboardInterrupt):
            evaluate(config)
        num_judged, reader.patience = len(server.chats), 10**9
        result = evaluate(config)
        prompts = [json.dumps(chat["messages"]) for chat in server.chats]
    assert 0 < num_judged < len(prompts) == len(set(prompts))
    rows = rows_of(out)
    for method in result["methods"]:
        own = [row for row in rows if row["method"] == method["method"]]
        grades = [row["judge"] for row in own if "judge" in row]
        assert method["judge"] == (sum(grades) / len(grades) if grades else None)
        assert method["judge_unusable"] == sum(row.get("judge_unusable", 0) for row in own)
    assert sum(method["judge_unusable"] for method in result["methods"]) > 0
