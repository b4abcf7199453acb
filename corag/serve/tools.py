"""The service as tools of an assistant, by the Model Context Protocol (MCP) over standard input and output.

A reply is one text, and all of it is within the caller's budget: the chosen text with its citations, and then a line
for each text that was left out, with the id by which `fetch` returns it.
"""

from __future__ import annotations

import hashlib
import textwrap
from bisect import bisect
from itertools import islice
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

import corag
from corag.budget import choose_within
from corag.errors import CoragError, InputError
from corag.memory import LRU
from corag.reply import Reply
from corag.serve.service import Service, wrong_fields
from corag.text.documents import SEPARATOR, body, citation
from corag.text.tokens import token_counts
from corag.text.units import chosen_parts, source_of
from corag.text.visible import one_line
from corag.types import Chunk

LEFT_OUT = "Left out (fetch by id):"
STUB_SHARE = 8
"""An eighth of the budget is kept for stubs, if a text fits into the rest."""
STUB_CHARACTERS = 80
ID_DIGITS = 8
MOST_READ, MOST_NAMED = 2000, 20
"""Chunks of the index that are read for the instructions, and documents that they name."""
MEMORY_BYTES = 64 * 10**6
"""Of the texts that `fetch` returns; the least recently listed are forgotten first."""


class Replies:
    """The tools; what they say of themselves, an assistant reads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._texts: LRU[str, str] = LRU(MEMORY_BYTES)

    def select_context(self, question: str, texts: list[str] | None = None, budget_tokens: int | None = None) -> str:
        """Choose what a prompt should contain to answer a question, under a token budget for the whole reply.

        Passages begin with their [id]. What was left out is listed by id, as far as the budget allows; `fetch` returns
        it.

        Args:
            question: The question.
            texts: The texts to choose from; leave them out to choose from the server's index.
            budget_tokens: The most tokens of the reply.
        """
        budget = self._service.budget if budget_tokens is None else budget_tokens

        def shown(chunk: Chunk, text: str, joint: str) -> str:
            # Texts of the caller have no source but the caller.
            return f"[{self._id_of(chunk)}] {f'{citation(chunk)}{joint}' if texts is None else ''}{text}"

        def chosen(left: int) -> tuple[Reply, str]:
            reply = self._service.chosen(question, texts, budget_tokens=left)
            parts = chosen_parts(reply.selection.chunks) if reply.selection.spans else []
            text = SEPARATOR.join(shown(part.chunk, part.text, "\n") for part in parts)
            return reply, text or reply.selection.text

        for share in (budget - budget // STUB_SHARE, budget):
            found = choose_within(share, chosen, lambda one: self._count(one[1]))
            if found is not None and found[1]:
                break
        if found is None:
            raise InputError(f"budget_tokens is {budget}, too few for a text and its id; give more")
        reply, text = found
        text = text or f"Nothing chosen: {reply.selection.trace.reason}"
        others = {self._id_of(one.candidate.chunk): one.candidate.chunk for one in reply.left_out}
        chosen_ids = {self._id_of(source_of(chunk)) for chunk in reply.selection.chunks}
        stubs = [
            shown(chunk, textwrap.shorten(body(chunk), STUB_CHARACTERS, placeholder=" ..."), " | ")
            for name, chunk in others.items()
            if name not in chosen_ids and chunk.text.strip()
        ]
        # As many as fit; of those that do not, how many there are.

        def with_stubs(number: int) -> str:
            more = [f"and {len(stubs) - number} more"] if number < len(stubs) else []
            return "\n".join([f"{text}{SEPARATOR}{LEFT_OUT}", *stubs[:number], *more]) if number else text

        numbers = range(len(stubs) + 1)
        if not (too_many := bisect(numbers, False, key=lambda number: self._count(with_stubs(number)) > budget)):
            raise InputError(f"budget_tokens is {budget}, too few for a reply; give more. {text}")
        return with_stubs(too_many - 1)

    def fetch(self, id: str, budget_tokens: int | None = None) -> str:  # noqa: A002 - the name that assistants see
        """Return a whole text that `select_context` showed in part or listed.

        Args:
            id: The id of the text.
            budget_tokens: The most tokens of the reply.
        """
        budget = self._service.budget if budget_tokens is None else budget_tokens
        name = id.strip().strip("[]")
        text = self._texts.get([name]).get(name)
        if text is None:
            raise InputError(f"no text has the id {id!r:.80}; give one that select_context lists, or call it again")
        if (tokens := self._count(text)) > budget:
            raise InputError(f"budget_tokens is {budget}, too few for the text, which has {tokens}; give more")
        return text

    def _id_of(self, chunk: Chunk) -> str:
        """Return the id by which `fetch` finds a text: the same text has the same one in every session."""
        name = hashlib.sha256(chunk.text.encode("utf-8", "replace")).hexdigest()[:ID_DIGITS]
        self._texts.put({name: chunk.text})
        return name

    def _count(self, text: str) -> int:
        return int(token_counts(self._service.tokens, [text])[0])


def instructions(service: Service) -> str:
    """Return what an assistant reads of the server: what its tools choose from."""
    said = "Call select_context before answering from documents: it returns the text to answer from, under a budget."
    if service.index is None:
        return f"{said} This server has no index: give the texts to choose from."
    named = dict.fromkeys(
        one_line(str(chunk.metadata.get("document") or chunk.metadata.get("title") or chunk.id))[:STUB_CHARACTERS]
        for chunk in islice(service.index.chunks(), MOST_READ)
    )
    among = f"{', '.join(islice(named, MOST_NAMED))}{' and others' if len(named) > MOST_NAMED else ''}"
    return f"{said} Without texts it chooses from an index of {len(service.index):,} chunks, from: {among}."


class _Server(MCPServer[Any]):
    """An MCP server whose errors are in words for an assistant: what is wrong, or which argument."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            if isinstance(cause, ValidationError):
                raise ToolError(wrong_fields(cause.errors())) from error
            if isinstance(cause, CoragError):
                raise ToolError(str(cause)) from error
            raise


def make_tools(service: Service) -> MCPServer[Any]:
    """Return the MCP server."""
    server: MCPServer[Any] = _Server("corag", version=corag.__version__, instructions=instructions(service))
    replies = Replies(service)
    for tool in (replies.select_context, replies.fetch):
        server.add_tool(tool, structured_output=False)
    return server
