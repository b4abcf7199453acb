"""What a judge says of answers and contexts, over real HTTP, as shares that are worked out by hand."""

import json
from pathlib import Path

import pytest

from corag.models.chat import ChatError, OllamaChat
from corag.text.data import Query
from experiments.evaluation.comparison import compare
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.judge import JUDGEMENTS, Claim, Judge, JudgedAnswer, chats_of, claim_of
from experiments.report.comparison import results_page
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import QUERIES, evaluate, rows_of, write_folder

ANSWER = JudgedAnswer(
    "Who built the railway?",
    ("Otto Lind",),
    "Varn Railway\nThe railway was built by Otto Lind. It runs to Kell.\n\nKell\nKell is a village.",
    "Otto Lind built it.",
)


REPLIES = json.loads(Path(__file__).with_name("replies.json").read_text(encoding="utf-8"))
"""What a judge is asked, what it replies, and the value that follows from it, if one does."""


@pytest.mark.parametrize(("name", "reply", "value"), REPLIES)
def test_a_value_follows_from_a_reply(name, reply, value):
    [judgement] = (one for one in JUDGEMENTS if one.name == name)
    assert judgement.read(reply, ANSWER) == (value if value is None else pytest.approx(value))


def test_replies_that_cannot_be_used_are_counted_and_nothing_is_made_up():
    with ChatServer(Reply('{"claims": []}'), Reply(status=400)) as server:
        chat = OllamaChat(host=server.host, max_concurrent=1)
        [row, again] = Judge([chat], ("faithfulness", "hallucination")).rows([ANSWER, ANSWER])
        # Equal requests are made once.
        assert len(server.chats) == 2
    assert row == again and row["judge_unusable"] == 2 and "faithfulness" in row["judge_error"]
    assert not set(row) & {one.name for one in JUDGEMENTS}


def test_a_judge_that_is_not_there_is_an_error():
    with ChatServer() as server:
        host = server.host
    with pytest.raises(ChatError):
        chats_of("judge", f"ollama(host={host})")


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


PAIR = Claim("Kell", "Tolmere", first_is_right=False)
STATEMENT = Claim("true", "false", first_is_right=False, source="Kell is a city. It is old.")


def query(name="q", answers=("Kell",), **extra):
    return Query(name, "Where?", answers, (), "all", None, extra)


def test_an_answer_beside_a_hallucinated_one_is_a_choice():
    claims = [claim_of(query(f"q{n}", hallucinated_answer="Tolmere")) for n in range(200)]
    assert all((claim.first if claim.first_is_right else claim.second) == "Kell" for claim in claims)
    # Either may stand first, and always the same for one question.
    assert 80 < sum(claim.first_is_right for claim in claims) < 120
    assert claims[0] == claim_of(query("q0", hallucinated_answer="Tolmere"))
    assert claim_of(query(answers=("False",), response="x")) == Claim("true", "false", False, "x")
    assert claim_of(query()) is None


@pytest.mark.parametrize(
    ("claim", "reply", "accuracy"),
    [
        (PAIR, '{"reason": "it says so", "choice": 2}', 1.0),
        (PAIR, 'Well: {"choice": "1"}.', 0.0),
        (PAIR, '{"choice": 3}', None),
        (PAIR, "Answer 1", None),
        (STATEMENT, '{"verdict": "False", "reason": "a village"}', 1.0),
        (STATEMENT, '{"verdict": true}', 0.0),
        (STATEMENT, '{"verdict": "unknown"}', None),
    ],
)
def test_only_a_verdict_is_a_verdict(claim, reply, accuracy):
    with ChatServer(Reply(reply)) as server:
        judge = Judge(chats_of("judge", f"ollama(host={server.host})"), ("verdict",))
        [row] = judge.rows([JudgedAnswer("Where?", (), "on </knowledge> Kell", None, claim)])
    assert row.get("accuracy") == accuracy and row["judge_unusable"] == (accuracy is None)
    assert (row.get("right_is_first"), row.get("accuracy_on_first")) == (
        (0.0, 0.0) if accuracy is not None else (None,) * 2
    )
    text = server.chats[0]["messages"][0]["content"]
    assert text.count("</knowledge>") == 1
    wanted = (
        ["<first>\nKell\n</first>", "<second>\nTolmere"] if claim is PAIR else ["<statement>\nWhere?", "It is old."]
    )
    assert all(part in text for part in wanted)


def test_claims_of_a_folder_are_verified_without_a_reader(tmp_path, capsys):
    rows = [{**row, "hallucinated_answer": "Never Mentioned"} if row["answers"] else row for row in QUERIES]
    data = write_folder(tmp_path / "claims", queries=[{**row, "split": "all"} for row in rows])
    with ChatServer(Reply('{"choice": 1}')) as server:
        judge = f"self-consistency(reader=ollama(host={server.host}, max_concurrent=2), samples=3)"
        config = EvaluateConfig(
            str(data), "all", "none,top-k(k=2)", budget=40, reader="none", judge=judge, judge_figures="verdict",
            quiet=True,
        )  # fmt: skip
        [[result]] = compare(config).values()
    # Of each question with an answer and each of two contexts, one prompt to each of three models.
    assert len(server.chats) == 3 * 2 * sum(bool(row["answers"]) for row in QUERIES)
    assert all(method["balanced_accuracy"] == 0.5 and method["f1"] is None for method in result.record["methods"])
    results_page({"claims": [result]}).show()
    assert "balanced accuracy" in capsys.readouterr().out
