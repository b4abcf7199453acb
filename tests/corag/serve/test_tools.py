"""The tools of `corag serve --mcp`: all of a reply is within the budget, and what was left out can be fetched.

The command is asked by the client of the official package over standard input and output.
"""

import random
import re
import sys
from functools import cache

import anyio
import pytest

import corag
from corag.errors import InputError
from corag.index import ChunkIndex
from corag.serve.service import Service
from corag.serve.tools import LEFT_OUT, Replies
from tests.effort import CAMPAIGN, FULL
from tests.paths import ROOT
from tests.processes import environment

TEXTS = ["Cats sleep a lot.", "Mount Everest is 8,849 metres high.", "Everest lies on the border of Nepal and China."]
QUESTION = "How high is Everest?"

WRONG = [
    ("select_context", {"question": " "}),
    *(("select_context", {"question": question, "texts": TEXTS}) for question in (None, 3, ["q?"])),
    *(("select_context", {"question": "q?", "texts": texts}) for texts in (5, "text", [5], {"a": "b"})),
    *(("select_context", {"question": "q?", "texts": TEXTS, "budget_tokens": n}) for n in ("many", 1.5, 0, -1, 10**30)),
    ("select_context", {"query": "q?"}),
    *(("fetch", given) for given in ({}, {"id": "nothing"}, {"id": ""}, {"id": 5.5}, {"id": "a+b"})),
    ("no_tool", {"question": "q?"}),
]


def replies(method="top-k(k=1)", **settings):
    return Replies(Service(method=method, **settings))


def test_a_reply_is_the_chosen_text_and_a_line_for_each_that_was_left_out():
    tools = replies()
    reply = tools.select_context(QUESTION, [TEXTS[1], TEXTS[0], "", TEXTS[2], TEXTS[0]], 100)
    chosen, listed = reply.split(f"\n\n{LEFT_OUT}\n")
    assert re.fullmatch(rf"\[[0-9a-f]{{8}}\] {re.escape(TEXTS[1])}", chosen)
    stubs = dict(re.findall(r"^\[(\w+)\] (.*)$", listed, re.MULTILINE))
    assert list(stubs.values()) == [TEXTS[2], TEXTS[0]]  # best first
    assert [tools.fetch(name) for name in stubs] == [TEXTS[2], TEXTS[0]]
    assert tools.fetch(chosen[:10]) == TEXTS[1]


def test_stubs_that_do_not_fit_are_counted_and_texts_are_fetched_whole():
    long = [f"Text {number} begins. " + f"It goes on about {number}. " * 60 for number in range(9)]
    tools = replies()
    reply = tools.select_context("What is text 0?", [TEXTS[1], *long], 150)
    number = len(re.findall(r"^\[\w+\] Text", reply, re.MULTILINE))
    assert 1 < number < 9 and reply.endswith(f"and {9 - number} more")
    name = re.search(r"\[(\w+)\] Text 0", reply)[1]
    assert tools.fetch(name, 1000) == long[0]
    with pytest.raises(InputError, match="too few"):
        tools.fetch(name, 100)


WORDS = [*TEXTS, TEXTS[2] * 9, "# Title\n\n- a: b\n- c", "", "é中", "[0a1b2] ", "\n\n", " \t", "|:+0", "Everest. "]
METHODS = ("naive(reranker=bm25)", "top-k", "top-k(order=ends)", "full(unit=sentence)", "none")


@cache
def served(method, tokenizer):
    return Replies(Service(method=method, tokenizer=tokenizer))


def one_call(rng):
    """Call both tools of a drawn server, and check that replies cost at most what the caller allows."""
    tokenizer = rng.choice(("minilm", "estimate"))
    counter, tools = corag.tokens(tokenizer), served(rng.choice(METHODS), tokenizer)
    texts = ["".join(rng.choices(WORDS, k=rng.randint(0, 4))) for _ in range(rng.randint(0, 12))]
    budget = rng.choice((rng.randint(1, 30), rng.randint(1, 400)))
    try:
        reply = tools.select_context("Where is Everest?", texts, budget)
    except InputError as error:
        assert "too few" in str(error)
        return False
    assert reply and counter.count([reply])[0] <= budget
    for name in re.findall(r"^\[([0-9a-f]{8})\] ", reply, re.MULTILINE)[:3]:
        most = rng.randint(1, 120)
        try:
            assert counter.count([tools.fetch(name, most)])[0] <= most
        except InputError as error:
            assert "too few" in str(error) or name == "0a1b2"
    return True


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(100 if CAMPAIGN else 1))
def test_no_reply_costs_more_than_the_caller_allows(part):
    numbers = range(10_000 * part, 10_000 * (part + 1) if CAMPAIGN else 1000 if FULL else 100)
    assert sum(one_call(random.Random(number)) for number in numbers) > len(numbers) / 2


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_assistant_selects_and_fetches(tmp_path):
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    chunks = [corag.Chunk(f"d{position}", text) for position, text in enumerate(TEXTS)]
    ChunkIndex.build(tmp_path / "index", chunks, corag.embedder())
    command = ["-m", "corag.cli.main", "serve", "--mcp", "--index", str(tmp_path / "index"), "--budget", "30"]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment(), cwd=str(ROOT))

    async def asked():
        async with Client(stdio_client(server)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "an index of 3 chunks, from: d0, d1, d2" in client.instructions
            assert set(tools) == {"select_context", "fetch"} and all(tool.description for tool in tools.values())
            replies = [
                await client.call_tool(name, given)
                for name, given in (
                    ("select_context", {"question": QUESTION, "texts": TEXTS, "budget_tokens": 20}),
                    ("select_context", {"question": QUESTION, "budget_tokens": 90}),
                    *WRONG,
                )
            ]
            name = re.search(r"\[(\w+)\] d0", replies[1].content[0].text)[1]
            return [*replies, await client.call_tool("fetch", {"id": name})]

    chosen, from_index, *wrong, fetched = anyio.run(asked)
    for reply in (chosen, from_index, fetched):
        assert reply.structured_content is None and len(reply.content) == 1 and not reply.is_error
    assert chosen.content[0].text.endswith(TEXTS[1]) and len(chosen.content[0].text) < 50
    assert re.search(rf"^\[\w+\] d1\n{re.escape(TEXTS[1])}", from_index.content[0].text)
    assert fetched.content[0].text == TEXTS[0]
    assert all(reply.is_error and "pydantic" not in reply.content[0].text for reply in wrong)
    assert "question is empty" in wrong[0].content[0].text
