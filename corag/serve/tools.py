"""The service as tools of an assistant, by the Model Context Protocol (MCP) over standard input and output.

A reply is one text, and all of it is within the caller's budget: the chosen text with its citations, the trace if it is
asked for, and then a line for each text that was left out, with the id by which `fetch` returns it.
"""

from __future__ import annotations

import hashlib
import textwrap
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import corag
from corag.budget import choose_within
from corag.checks import check_budget
from corag.errors import CoragError, InputError
from corag.memory import LRU
from corag.serve.service import Service
from corag.text.chunking import cut_to_tokens
from corag.text.documents import SEPARATOR, body, citation
from corag.text.tokens import token_counts
from corag.text.units import chosen_parts, source_of
from corag.text.visible import one_line, to_json
from corag.types import Candidate, Chunk, Selection

LEFT_OUT = "Left out (fetch by id):"
STUB_SHARE, STUBS_FROM = 8, 256
"""An eighth of the budget is kept for stubs, if it has at least 256 tokens: an eighth of less is hardly one stub."""
STUB_CHARACTERS = 80
ID_DIGITS = 8
MOST_READ, MOST_NAMED, MAX_NAME = 2000, 20, 80
"""Chunks of the index that are read for the instructions, documents that they name, and characters of a name."""
MEMORY_BYTES = 64 * 10**6
"""Of the texts that `fetch` returns; the least recently listed are forgotten first."""


class Replies:
    """The tools; what they say of themselves, an assistant reads."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._texts: LRU[str, str] = LRU(MEMORY_BYTES)

    def select_context(
        self, question: str, texts: list[str] | None = None, budget_tokens: int | None = None, trace: bool = False
    ) -> str:
        """Choose what a prompt should contain to answer a question, under a token budget for the whole reply.

        Passages begin with their [id]. What was left out is listed by id, as far as the budget allows; `fetch` returns
        it.

        Args:
            question: The question.
            texts: The texts to choose from; leave them out to choose from the server's index.
            budget_tokens: The most tokens of the reply.
            trace: Whether the reply says how the text was chosen.
        """
        budget = self._checked(budget_tokens)
        cited = texts is None  # texts of the caller have no source but the caller

        def chosen(left: int) -> tuple[list[Candidate], Selection, str]:
            candidates, selection = self._service.chosen(question, texts, budget_tokens=left)
            parts = chosen_parts(selection.chunks) if selection.spans else []
            shown = SEPARATOR.join(self._head(part.chunk, "\n" if cited else "") + part.text for part in parts)
            return candidates, selection, shown or selection.text

        for share in (budget - (budget // STUB_SHARE if budget >= STUBS_FROM else 0), budget):
            found = choose_within(share, chosen, lambda one: self._count(one[2]))
            if found is not None and found[2]:
                break
        if found is None:
            raise InputError(f"budget_tokens is {budget}, too few for a text and its id; give more")
        candidates, selection, text = found
        reply = text or self._with("", f"Nothing chosen: {selection.trace.reason}", budget)
        if trace:
            reply = self._with(reply, f"trace: {to_json(selection.trace.to_dict())}", budget)
        shown = {self._id_of(source_of(chunk)) for chunk in selection.chunks}
        others = {self._id_of(one.chunk): one.chunk for one in candidates if one.chunk.text.strip()}
        stubs = [self._stub(chunk, cited=cited) for name, chunk in others.items() if name not in shown]
        # As many as fit; of those that do not, how many there are.
        numbers = range(1, len(stubs) + 1)
        number = bisect(numbers, False, key=lambda number: self._with(reply, _listed(stubs, number), budget) == reply)
        reply = self._with(reply, _listed(stubs, number), budget) if number else reply
        if not reply:
            raise InputError(f"budget_tokens is {budget}, too few for any reply: {selection.trace.reason}")
        return reply

    def fetch(self, id: str, budget_tokens: int | None = None) -> str:  # noqa: A002 - the name that assistants see
        """Return a whole text that `select_context` showed in part or listed.

        Args:
            id: The id of the text.
            budget_tokens: The most tokens of the reply; a longer text ends with the id of its rest.
        """
        budget = self._checked(budget_tokens)
        name, _, start = id.strip().strip("[]").partition("+")
        text = self._texts.get([name]).get(name)
        if text is None or not (start or "0").isdecimal() or len(start) > 9:
            raise InputError(f"no text has the id {id!r:.80}; give one that select_context lists, or call it again")
        rest = text[min(int(start or 0), len(text)) :]
        if self._count(rest) <= budget:
            return rest
        at = len(text) - len(rest)
        note = "\n[the rest: fetch {}+{}]"
        end = len(cut_to_tokens(rest, self._service.tokens, budget - self._count(note.format(name, len(text)))))
        reply = rest[:end] + note.format(name, at + end)
        if not end or self._count(reply) > budget:
            raise InputError(
                f"budget_tokens is {budget}, too few for a part of the text and the id of its rest; give more"
            )
        return reply

    def _head(self, chunk: Chunk, end: str) -> str:
        """Return a text's id and, before an `end`, where it comes from."""
        return f"[{self._id_of(chunk)}] " + (f"{citation(chunk)}{end}" if end else "")

    def _stub(self, chunk: Chunk, *, cited: bool) -> str:
        text = textwrap.shorten(body(chunk), STUB_CHARACTERS, placeholder=" ...")
        return self._head(chunk, " | " if cited else "") + text

    def _id_of(self, chunk: Chunk) -> str:
        """Return the id by which `fetch` finds a text: the same text has the same one in every session."""
        name = hashlib.sha256(chunk.text.encode("utf-8", "replace")).hexdigest()[:ID_DIGITS]
        self._texts.put({name: chunk.text})
        return name

    def _with(self, reply: str, part: str, budget: int) -> str:
        longer = f"{reply}{SEPARATOR}{part}" if reply else part
        return longer if self._count(longer) <= budget else reply

    def _checked(self, budget_tokens: int | None) -> int:
        budget = self._service.budget if budget_tokens is None else budget_tokens
        check_budget(budget)
        return budget

    def _count(self, text: str) -> int:
        return int(token_counts(self._service.tokens, [text])[0])


def _listed(stubs: Sequence[str], number: int) -> str:
    """Return a list of this many stubs."""
    more = [f"and {len(stubs) - number} more"] if number < len(stubs) else []
    return "\n".join([LEFT_OUT, *stubs[:number], *more])


def instructions(service: Service) -> str:
    """Return what an assistant reads of the server: what its tools choose from."""
    said = "Call select_context before answering from documents: it returns the text to answer from, under a budget."
    if service.index is None:
        return f"{said} This server has no index: give the texts to choose from."
    documents = (str(chunk.metadata.get("document") or chunk.metadata.get("title") or chunk.id)
                 for chunk in islice(service.index.chunks(), MOST_READ))  # fmt: skip
    named = list(dict.fromkeys(one_line(name)[:MAX_NAME] for name in documents))
    among = f"{', '.join(named[:MOST_NAMED])}{' and others' if len(named) > MOST_NAMED else ''}"
    return f"{said} Without texts it chooses from an index of {len(service.index):,} chunks, from: {among}."


def make_tools(service: Service) -> MCPServer[Any]:
    """Return the MCP server."""
    server: MCPServer[Any] = MCPServer("corag", version=corag.__version__, instructions=instructions(service))
    replies = Replies(service)

    def explained(reply: Callable[..., str]) -> Callable[..., str]:
        @wraps(reply)
        def called(*args: Any, **given: Any) -> str:
            try:
                return reply(*args, **given)
            except CoragError as error:  # an assistant sees the message
                raise ToolError(str(error)) from error

        return called

    for tool in (replies.select_context, replies.fetch):
        server.add_tool(explained(tool), structured_output=False)
    return server
