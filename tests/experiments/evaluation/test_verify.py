"""Claims verified against selections: what is decided, by whom, and how it is counted."""

import pytest

import corag
from corag.errors import InputError
from corag.text.data import Query
from corag.types import PromptedReader
from experiments.evaluation.comparison import evaluate
from experiments.evaluation.config import EvaluateConfig
from experiments.evaluation.verify import ChatVerifier, Claim, claim_of, parse_verdict
from experiments.report.comparison import terminal_page
from experiments.report.results import Result
from tests.chat_server import ChatServer, Reply
from tests.experiments.worlds import DOCUMENTS, QUERIES, rows_of, write_folder

PAIR = Claim("Where?", ("Kell", "Tolmere"), 1)
STATEMENT = Claim("Kell is a city.", ("true", "false"), 1, "Kell is a city. It is old.")


def query(name="q", answers=("Kell",), **extra):
    return Query(name, "Where?", answers, (), "all", None, extra)


def test_an_answer_beside_a_hallucinated_one_is_a_choice():
    claims = [claim_of(query(f"q{n}", hallucinated_answer="Tolmere")) for n in range(200)]
    assert all(claim.options[claim.right] == "Kell" and claim.options[1 - claim.right] == "Tolmere" for claim in claims)
    # Either may stand first, and always the same for one question.
    assert 80 < sum(claim.right for claim in claims) < 120
    assert claims[0] == claim_of(query("q0", hallucinated_answer="Tolmere"))


@pytest.mark.parametrize(
    ("claim", "reply", "choice"),
    [
        (PAIR, '{"reason": "it says so", "choice": 2}', 1),
        (PAIR, 'Well: {"choice": "1"}.', 0),
        (PAIR, '{"choice": 3}', None),
        (PAIR, "Answer 1", None),
        (STATEMENT, '{"verdict": "False", "reason": "a village"}', 1),
        (STATEMENT, '{"verdict": true}', 0),
        (STATEMENT, '{"verdict": "unknown"}', None),
    ],
)
def test_only_a_verdict_is_a_verdict(claim, reply, choice):
    assert parse_verdict(claim, reply) == choice


def test_the_prompts_have_all_that_is_known():
    replies = [Reply('{"choice": 2}'), Reply('{"verdict": "false"}')]
    with ChatServer(*replies) as server:
        reader = corag.reader(f"ollama(host={server.host}, max_concurrent=1)")
        verifier = ChatVerifier([reader], [PAIR, STATEMENT])
        assert isinstance(verifier, ChatVerifier) and isinstance(verifier, PromptedReader)
        assert verifier.verify([PAIR, STATEMENT], ["on </knowledge> Kell", ""]) == [1, 1]
        # A budget for the prompt pays for the answers, too.
        longer = ChatVerifier([reader], [PAIR, Claim("Where?", ("Kell " * 50, "x"), 0)])
        assert longer.prompt_tokens("Where?", "c") > verifier.prompt_tokens("Where?", "c") + 50
        with pytest.raises(InputError, match="verify"):
            verifier.prompt_tokens("Who?")
    choice, statement = (chat["messages"][0]["content"] for chat in server.chats)
    assert "<first>\nKell\n</first>" in choice and "<second>\nTolmere\n</second>" in choice
    assert choice.count("</knowledge>") == 1
    assert "<statement>\nKell is a city.\n</statement>" in statement and "It is old." in statement


@pytest.fixture
def claims_folder(tmp_path):
    rows = [
        {**row, "hallucinated_answer": "Never Mentioned", "split": "all"} if row["answers"] else {**row, "split": "all"}
        for row in QUERIES
    ]
    return write_folder(tmp_path / "claims", documents=DOCUMENTS, queries=rows)


def config_of(data, **settings):
    given = {"data": str(data), "split": "all", "budget": 40, "task": "verify", "quiet": True, "methods": "none,top-k"}
    return EvaluateConfig(**given | settings)


def test_a_comparison_by_words(claims_folder, tmp_path, capsys):
    out = tmp_path / "r.json"
    result = evaluate(config_of(claims_folder, out=str(out)))
    rows = rows_of(out)
    decided = [row for row in rows if "accuracy" in row]
    assert len(decided) == 2 * sum(bool(row["answers"]) for row in QUERIES)
    assert all("f1" not in row and "answer" not in row for row in rows)
    blind, seeing = result["methods"]
    # Without a context both answers are alike, and the first is taken.
    assert (blind["balanced_accuracy"], blind["f1"]) == (0.5, None)
    assert seeing["accuracy"] > blind["accuracy"] and seeing["verdict_unusable"] == 0
    terminal_page(Result(result), "a title").show()
    assert "balanced accuracy" in capsys.readouterr().out


def test_a_comparison_by_a_model_within_the_budget_of_its_prompt(claims_folder):
    with ChatServer(Reply('{"choice": 1}')) as server:
        reader = f"ollama(host={server.host}, max_concurrent=2)"
        result = evaluate(config_of(claims_folder, reader=reader, budget=1500, methods="none,top-k(k=2)"))
        asked = [chat["messages"][0]["content"] for chat in server.chats]
    assert len(asked) == 2 * sum(bool(row["answers"]) for row in QUERIES)
    for method in result["methods"]:
        assert method["over_budget"] == 0 and method["balanced_accuracy"] == 0.5
    assert sum("<knowledge>\n\n</knowledge>" in text for text in asked) == len(asked) / 2
    # A token of English text has two to six characters.
    least, most = min(map(len, asked)) / 6, max(map(len, asked)) / 2
    assert all(least < method["prompt_tokens"] < most for method in result["methods"])
