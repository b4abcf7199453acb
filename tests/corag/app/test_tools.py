"""`corag serve --mcp`, asked by the client of the official package over standard input and output."""

import json
import sys

import anyio
import pytest

import corag
from corag.index import ChunkIndex
from tests.paths import ROOT
from tests.processes import environment

TEXTS = ["Cats sleep a lot.", "Mount Everest is 8,849 metres high.", "Everest lies on the border of Nepal and China."]

WRONG = [
    ("select_context", {"question": " "}),
    *(("select_context", {"question": question, "texts": TEXTS}) for question in (None, 3, ["q?"], "a" * 10**5)),
    *(("select_context", {"question": "q?", "texts": texts}) for texts in (5, "text", [5], {"a": "b"}, ["a"] * 10**4)),
    *(("select_context", {"question": "q?", "texts": TEXTS, "budget_tokens": n}) for n in ("many", 1.5, 0, -1, 10**30)),
    *(("search_index", {"question": "q?", "num_results": number}) for number in ("x", 0, 2.5, 10**9)),
    *(("search_index", given) for given in ({}, {"query": "q?"})),
    ("no_tool", {"question": "q?"}),
]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_assistant_selects_and_searches(tmp_path):
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    chunks = [corag.Chunk(f"d{position}", text) for position, text in enumerate(TEXTS)]
    ChunkIndex.build(tmp_path / "index", chunks, corag.embedder())
    command = ["-m", "corag.cli.main", "serve", "--mcp", "--index", str(tmp_path / "index"), "--budget", "30"]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment(), cwd=str(ROOT))
    question = "How high is Everest?"

    async def asked():
        async with Client(stdio_client(server)) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"select_context", "search_index"} and tools["select_context"].description
            replies = []
            for name, given in (
                ("select_context", {"question": question, "texts": TEXTS, "budget_tokens": 12}),
                ("select_context", {"question": question}),
                ("search_index", {"question": question, "num_results": 2}),
                *WRONG,
                ("search_index", {"question": question}),
            ):
                replies.append(await client.call_tool(name, given))
            return replies

    chosen, from_index, found, *wrong, after = anyio.run(asked)
    assert chosen.structured_content["text"] == TEXTS[1]
    assert from_index.structured_content["cost_tokens"] <= 30 and TEXTS[1] in from_index.structured_content["text"]
    results = found.structured_content["result"]
    assert len(results) == 2 and results[0]["id"] == "d1" and json.dumps(results)
    assert all(reply.is_error for reply in wrong) and not after.is_error
    assert "question is empty" in wrong[0].content[0].text
