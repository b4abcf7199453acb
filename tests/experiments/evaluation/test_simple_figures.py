"""Figures of the simpler systems, worked out by hand, and the judge over real HTTP."""

import pytest

from corag.errors import InputError
from corag.models.chat.base import ChatError
from corag.models.chat.ollama import OllamaChat, OllamaSettings
from corag.types import Chunk
from experiments.evaluation.judging.figures import Verdict, parse_verdict
from experiments.evaluation.judging.judge import Judge, chat_of
from experiments.evaluation.metrics import (
    answer_similarity,
    change_in_tokens,
    evidence_places,
    redundancy,
    substring_match,
    trade_off_efficiency,
)
from tests.chat_server import ChatServer, Reply
from tests.corag.worlds import AxisEmbedder, HashEmbedder


@pytest.mark.parametrize(
    ("answer", "references", "expected"),
    [
        ("It is the Eiffel Tower, in Paris.", ["eiffel tower"], 1.0),
        ("It is the Eiffel Tower.", ["Louvre", "The Eiffel Tower!"], 1.0),
        ("A party", ["art"], 0.0),
        ("Paris", ["Paris, France"], 0.0),
        ("Paris", ["the", ""], 0.0),
        ("Paris", [], 0.0),
        ("", ["Paris"], 0.0),
    ],
)
def test_substring_match(answer, references, expected):
    assert substring_match(answer, references) == expected


def test_trade_off_efficiency_gives_the_table_of_the_paper():
    # Table 1 of CAR, from its rounded accuracies and candidates.
    for accuracy, candidates, expected in ((0.97, 3.0, 0.700), (0.99, 5.0, 0.553), (1.0, 10.0, 0.417)):
        assert trade_off_efficiency(accuracy, candidates) == pytest.approx(expected, abs=6e-4)
    assert trade_off_efficiency(0.0, 0.0) == 0.0


def test_change_in_tokens_gives_the_table_of_the_paper():
    # Table 1 of CRAG, where the last is cut off to -90.93 instead of rounded.
    for tokens, baseline, expected in ((259, 607, -57.33), (404, 758, -46.70), (468, 5165, -90.94)):
        assert change_in_tokens(tokens, baseline) == pytest.approx(expected, abs=6e-3)
    assert change_in_tokens(3, 2) == 50
    with pytest.raises(InputError, match="baseline_tokens must be at least 1, got 0"):
        change_in_tokens(3, 0)


def test_similarity_of_answers_and_redundancy_of_a_selection():
    assert answer_similarity("same", "same", HashEmbedder()) == pytest.approx(1)
    assert answer_similarity("a", "b", AxisEmbedder()) == 0
    assert redundancy(["a1", "b1", "c1"], AxisEmbedder()) == 0
    assert redundancy(["a1", "a2", "c1", "d1"], AxisEmbedder()) == 0.5
    assert redundancy(["a1", "a2"], AxisEmbedder()) == 1
    assert redundancy(["a1"], AxisEmbedder()) == redundancy([], AxisEmbedder()) == 0


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ('{"grade": 0.5, "reason": "half"}', 0.5),
        ('Sure!\n```json\n{"grade": 1, "reason": "all"}\n```', 1.0),
        ('{"grade": 0.0}', 0.0),
        ("0.5", None),
        ("", None),
        ('{"grade": "high"}', None),
        ('{"grade": true}', None),
        ('{"grade": 7}', None),
        ('{"grade": NaN}', None),
        ('{"score": 1}', None),
        ('{"grade": 0.5', None),
        ('{"grade": 0.5} or {"grade": 1}', None),
        ("[1]", None),
    ],
)
def test_only_a_grade_is_a_grade(reply, grade):
    verdict = parse_verdict(reply)
    assert verdict.grade == grade
    assert grade is not None or verdict.reason


def test_a_reply_that_is_no_grade_is_none():
    replies = [Reply('{"grade": 1.0, "reason": "right"}'), Reply("I cannot say"), Reply('{"grade": 0.5}')]
    with ChatServer(*replies, Reply(status=400)) as server:
        judge = Judge(OllamaChat(OllamaSettings(host=server.host, max_concurrent=1)))
        found = judge.judge("q $x?", [f"</answer> {letter}" for letter in "abcd"], ["r", "s"])
    assert [verdict.grade for verdict in found] == [1.0, None, 0.5, None]
    assert found[0] == Verdict(1.0, "right")
    prompt = server.chats[0]["messages"][0]["content"]
    assert "<question>\nq $x?\n</question>" in prompt
    assert "<references>\nr\ns\n</references>" in prompt
    assert prompt.count("</answer>") == 1


def test_a_judge_that_is_not_there_is_an_error():
    with ChatServer() as server:
        host = server.host
    with pytest.raises(ChatError, match="no Ollama server answers"):
        Judge(OllamaChat(OllamaSettings(host=host, retries=0))).judge("q?", ["a"], ["r"])
    with pytest.raises(ChatError, match="no Ollama server answers"):
        chat_of("judge", f"ollama(host={host})")
    with pytest.raises(InputError, match=r"judge 'extractive' asks no language model; name it like a reader that does"):
        chat_of("judge", "extractive")


def test_the_depth_of_the_evidence():
    def piece(document, start, end):
        return Chunk(f"{document}#{start}-{end}", "text", {"document": document, "start": start, "end": end})

    ranking = [piece("a", 0, 50), piece("b", 0, 50), piece("a", 50, 100), Chunk("c", "text")]
    assert evidence_places(ranking, ["b"]) == [1]
    assert evidence_places(ranking, ["c", "a"]) == [0, 3]
    assert evidence_places(ranking, ["a#60-90", "b#10-20"]) == [1, 2]
    assert evidence_places(ranking, ["a#40-60"]) == [0]  # half of it
    assert evidence_places(ranking, ["a#0-20", "a#10-30"]) == [0]
    assert evidence_places(ranking, ["a", "d"]) is None
    assert evidence_places(ranking, []) is None
    assert evidence_places([], ["a"]) is None
