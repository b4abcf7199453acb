"""The page over HTTP: its files, and the calls of `Workbench` as JSON.

The page is for the person at this machine. It loads nothing from elsewhere, and other sites cannot use it: scripts,
styles and connections are limited to this address; for foreign names and origins, see `corag.app.http.Guard`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio.from_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from corag.app.http import Guard, Json, Workers, fields_of
from corag.app.session import MAX_QUESTION, Workbench
from corag.app.view import visible_data
from corag.errors import InputError

STATIC = Path(__file__).with_name("static")
MAX_BODY = 64 * 1024
"""Bytes of a request; a question of `MAX_QUESTION` characters, each escaped, has fewer."""
AT_ONCE = 4
"""Requests that are computed at once, and as many again that wait for a reader."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class VisibleJson(Json):
    """JSON in which control characters of texts are visible."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return super().render(visible_data(content))


def make_app(workbench: Workbench, *, host: str = "127.0.0.1") -> Starlette:
    """Return the application, which is served at a name or an address, `host`."""
    # A reader may be silent for minutes, which delays no other call.
    workers, readers = Workers(AT_ONCE, VisibleJson, abandon=True), Workers(AT_ONCE, VisibleJson, abandon=True)

    async def given(request: Request, **types: str) -> dict[str, Any]:
        fields = {"question": {"type": "string"}, "number": {"type": ["integer", "null"]}}
        fields |= {name: {"type": kind} for name, kind in types.items()}
        return await fields_of(request, {"properties": fields, "required": list(fields)}, MAX_BODY)

    def posted(call: Callable[..., Any], by: Workers, **types: str) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            return await by.run(request, partial(call, **await given(request, **types)))

        return answered

    async def answer(request: Request) -> Response:
        call = partial(workbench.answer, **await given(request, given="object"))
        return StreamedAnswer(lambda on_token: readers.run(request, partial(call, on_token=on_token)))

    async def questions(request: Request) -> Response:
        text, start = request.query_params.get("text", ""), request.query_params.get("start", "0")
        if len(text) > MAX_QUESTION or not start.isdecimal() or len(start) > 9:
            raise InputError("text is too long, or start is not a number")
        return await workers.run(request, partial(workbench.source.listed, text, int(start)))

    async def about(request: Request) -> Response:
        return await workers.run(request, workbench.about)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def refused(request: Request, error: Exception) -> Response:
        return VisibleJson({"error": str(error) or "client disconnected"}, 400)

    handlers: dict[Any, Any] = dict.fromkeys((InputError, ClientDisconnect), refused)
    routes = [
        Route("/", page),
        Route("/api/about", about),
        Route("/api/questions", questions),
        Route("/api/search", posted(workbench.search, workers, given="object"), methods=["POST"]),
        Route("/api/answer", answer, methods=["POST"]),
        Route("/api/agent", posted(workbench.agent, workers, budget="integer"), methods=["POST"]),
        Route("/api/method", posted(workbench.method, readers, budget="integer", name="string"), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    guard = Middleware(Guard, host=host, headers=HEADERS)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)


class StreamedAnswer(Response):
    """Lines of JSON: the pieces of an answer as they are written, then what `Workbench.answer` returns, or an error.

    `answer` gets a function to call with each piece, from another thread. If the client disconnects, the reader stops
    at its next piece.
    """

    media_type = "application/x-ndjson"

    def __init__(self, answer: Callable[[Callable[[str], None]], Awaitable[Response]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines."""

        async def line(content: bytes, *, more: bool) -> None:
            await send({"type": "http.response.body", "body": content + b"\n", "more_body": more})

        def piece(text: str) -> None:
            anyio.from_thread.check_cancelled()
            anyio.from_thread.run(partial(line, bytes(VisibleJson({"piece": text}).body), more=True))

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        answer = await self._answer(piece)
        await line(bytes(answer.body), more=False)
