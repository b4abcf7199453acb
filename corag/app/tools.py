"""The service as tools of an assistant, by the Model Context Protocol (MCP) over standard input and output."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import corag
from corag.app.http import in_thread
from corag.app.service import Service
from corag.errors import CoragError
from corag.limits import DEADLINE_S

T = TypeVar("T")


def make_tools(service: Service, *, deadline: float = DEADLINE_S) -> MCPServer[Any]:
    """Return the MCP server; a call that is not done after `deadline` seconds is stopped."""
    server: MCPServer[Any] = MCPServer("corag", version=corag.__version__)

    @server.tool()
    async def select_context(
        question: str, texts: list[str] | None = None, budget_tokens: int | None = None
    ) -> dict[str, Any]:
        """Choose what a prompt should contain to answer a question, under a token budget.

        Args:
            question: The question.
            texts: The texts to choose from; leave them out to choose from the server's index.
            budget_tokens: The most tokens of the chosen text.

        Returns:
            `text` for the prompt, and its `chunks` with `id`, `citation` and `span`.
        """
        return await called(partial(service.select, question, texts, budget_tokens=budget_tokens))

    @server.tool()
    async def search_index(question: str, num_results: int = 10) -> list[dict[str, Any]]:
        """Find the chunks of the server's index that are most similar to a question, best first.

        Args:
            question: The question.
            num_results: How many.
        """
        return await called(partial(service.search, question, num_results))

    async def called(call: Callable[[], T]) -> T:
        try:
            return await in_thread(call, deadline)
        except CoragError as error:  # an assistant sees the message
            raise ToolError(str(error)) from error

    return server
