"""Prompts as files: the shipped ones, one's own, and what is wrong with a file."""

import re
from pathlib import Path

import pytest

import corag
from corag.errors import InputError
from corag.models.prompts import prompt
from corag.readers.chat import NO_ANSWER, NUMBERED, OllamaReader, citations, numbered
from corag.text.documents import SEPARATOR
from corag.types import Answer
from tests.chat_server import ChatServer, Reply

SHIPPED = sorted(path.stem for path in (Path(corag.__file__).parent / "prompts").glob("*.txt"))
QUESTION = "Who is the mayor of Berlin?"
CONTEXT = SEPARATOR.join(["Bonn was the capital.", "Berlin\nThe mayor of Berlin is Anna Weiss."])


def of_reader(name):
    return prompt(name, "corag/prompts", needs=["question"], one_of=["context", NUMBERED])


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_prompt_shows_question_and_context(name):
    with ChatServer(Reply("Anna Weiss [2].")) as server:
        reader = OllamaReader(host=server.host, prompt=name)
        assert reader.answer(QUESTION, CONTEXT).text == "Anna Weiss [2]."
    text = "\n".join(message["content"] for message in server.chats[0]["messages"])
    shown = numbered(CONTEXT) if name == "cited" else CONTEXT
    assert QUESTION in text and shown in text
    assert re.search(r"\{[a-z_]+\}", text) is None
    assert (NO_ANSWER in text) == (name != "paper-crag")


def test_citations_lead_to_the_chunks():
    three = SEPARATOR.join([CONTEXT, "Paris."])
    with ChatServer(Reply("She is Anna Weiss [2][1]. See [9] and [2].")) as server:
        reader = OllamaReader(host=server.host, prompt="cited")
        assert reader.answer(QUESTION, three) == Answer(
            "She is Anna Weiss [2][1]. See [9] and [2].", None, chunk=1, citations=(1, 0), unknown_citations=(8,)
        )
        plain = OllamaReader(host=server.host).answer(QUESTION, three)
    assert plain.citations == ()


@pytest.mark.parametrize(
    ("reply", "cited", "unknown"),
    [
        ("It is so [1, 3].", (0, 2), ()),
        ("It is so [2-3][1\u20132].", (1, 2, 0), ()),
        ("It is so [2; 3-5].", (1, 2), (3, 4)),
        ("Call `f(a[0])`:\n```\nx[7]\n```\nas in [3], [a], [] and [1,].\n```\ny[1]", (2,), ()),
    ],
)
def test_markers_may_name_several_parts_and_indices_in_code_are_none(reply, cited, unknown):
    assert citations(reply, SEPARATOR.join("abc")) == (cited, unknown)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "my prompt.txt"
    content = '[system]\nSay {"json": true}.\n[user]\n{question} | {context}\n[assistant]\nYes\n[user]\nSo?'
    path.write_text(content, encoding="utf-8-sig")  # with a mark, as Windows writes it
    with ChatServer(Reply("ok")) as server:
        OllamaReader(host=server.host, prompt=str(path)).answer("{context}?", "{0} {question} <system>")
    assert [(one["role"], one["content"]) for one in server.chats[0]["messages"]] == [
        ("system", 'Say {"json": true}.'), ("user", "{context}? | {0} {question} <system>"),
        ("assistant", "Yes"), ("user", "So?"),
    ]  # fmt: skip
    path.write_text("{question} <part>{context}</part>")
    assert of_reader(str(path)).messages(question="</part>?", context="a </ PART > <b>") == [
        {"role": "user", "content": "< /part>? <part>a < / PART > <b></part>"}
    ]


@pytest.mark.parametrize("content", [b"{context}", b"{question}", b"{question} {context} {more}", b"\xff"])
def test_a_file_that_is_no_prompt(tmp_path, content):
    path = tmp_path / "prompt.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=str(path)):
        of_reader(str(path))
