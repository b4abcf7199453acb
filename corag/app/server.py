"""The page over HTTP: files of its own, and the calls of `Workbench` as JSON.

The page is for the person at this machine. It loads nothing from elsewhere, and other sites cannot use it: scripts,
styles and connections are limited to this address, calls from other origins are refused, and no foreign name can be
pointed at it (DNS rebinding): a server on a loopback address answers only to the names of that, any other to addresses
and its own name.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corag.app.session import MAX_QUESTION, Workbench
from corag.app.view import visible_data
from corag.checks import check_count
from corag.errors import CoragError, InputError
from corag.text.visible import to_json

logger = logging.getLogger(__name__)

STATIC = Path(__file__).with_name("static")
MAX_BODY = 64 * 1024
"""Bytes of a request; a question of `MAX_QUESTION` characters, each escaped, has fewer."""
DRAINED = 16 * 2**20
"""Bytes of a longer request that are read, so that its sender hears why it is refused."""
AT_ONCE = 4
"""Requests that are computed at once, and as many again that wait for a reader; others wait for these."""
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


class Json(JSONResponse):
    """JSON in which control characters of texts are visible."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return to_json(visible_data(content), allow_nan=False, separators=(",", ":")).encode()


def make_app(workbench: Workbench, *, host: str = "127.0.0.1") -> Starlette:
    """Return the application.

    Args:
        workbench: Computes what is shown.
        host: Name or address that it is served at.
    """
    # A limiter belongs to an event loop. A reader may be silent for minutes, which keeps no other call waiting.
    limiters = cache(lambda reads: anyio.CapacityLimiter(AT_ONCE))

    async def computed(request: Request, call: Callable[[], Any], *, reads: bool = False) -> Response:
        answer: Response = Json({"error": "client disconnected"}, 400)
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_disconnect, request.receive, group.cancel_scope)
            try:
                answer = Json(await anyio.to_thread.run_sync(call, limiter=limiters(reads), abandon_on_cancel=True))
            except CoragError as error:
                answer = Json({"error": str(error)}, 400)
            except Exception:
                logger.exception("the page could not be answered")
                answer = Json({"error": "something broke; the terminal that runs corag app says what"}, 500)
            group.cancel_scope.cancel()
        return answer

    def posted(call: Callable[..., Any], *, reads: bool = False, **wanted: type) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            try:
                given = _arguments(await _body(request), {"question": str, "number": int, **wanted})
            except InputError as error:
                return Json({"error": str(error)}, 400)
            return await computed(request, lambda: call(**given), reads=reads)

        return answered

    async def streamed(request: Request) -> Response:
        try:
            given = _arguments(await _body(request), {"question": str, "number": int, "given": dict})
        except InputError as error:
            return Json({"error": str(error)}, 400)
        return StreamedAnswer(
            lambda on_token: computed(request, lambda: workbench.answer(**given, on_token=on_token), reads=True)
        )

    async def questions(request: Request) -> Response:
        text, start = request.query_params.get("text", ""), request.query_params.get("start", "0")
        if len(text) > MAX_QUESTION or not start.isdecimal() or len(start) > 9:
            return Json({"error": "text is too long, or start is no number"}, 400)
        return await computed(request, lambda: workbench.source.listed(text, int(start)))

    async def about(request: Request) -> Response:
        return await computed(request, workbench.about)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    routes = [
        Route("/", page),
        Route("/api/about", about),
        Route("/api/questions", questions),
        Route("/api/search", posted(workbench.search, given=dict), methods=["POST"]),
        Route("/api/answer", posted(workbench.answer, reads=True, given=dict), methods=["POST"]),
        Route("/api/stream", streamed, methods=["POST"]),
        Route("/api/agent", posted(workbench.agent, budget=int), methods=["POST"]),
        Route("/api/method", posted(workbench.method, reads=True, budget=int, name=str), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, host=host)])


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class StreamedAnswer(Response):
    """Lines of JSON: the pieces of an answer as they are written, then what `Workbench.answer` returns, or an error.

    Args:
        answer: Answers, given what is to be called with each piece, from another thread. If the client disconnects, the
            reader stops at its next piece.
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
            anyio.from_thread.run(partial(line, bytes(Json({"piece": text}).body), more=True))

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        answer = await self._answer(piece)
        await line(bytes(answer.body), more=False)


class Guard:
    """Refuses requests that come by a foreign name or from another origin, and sets headers.

    Args:
        app: What answers the others.
        host: Name or address that it is served at.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app, self._loopback = app, is_loopback(host)
        own = () if self._loopback else (host, socket.gethostname(), socket.getfqdn())
        self._names = {"localhost", *map(str.lower, own)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *known]
            await send(message)

        if (reason := self._refusal(Request(scope))) is not None:
            await Json({"error": reason}, 403)(scope, receive, sending)
        else:
            await self._app(scope, receive, sending)

    def _refusal(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        if self._loopback and not is_loopback(_name(host)):
            return "this page answers only to localhost and 127.0.0.1; open it by one of these names"
        if not is_address(_name(host)) and _name(host).lower() not in self._names:
            return "this page answers only to its address and its own name; open it by these, or serve it with --host"
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return "calls from other pages are refused"
        if request.method == "POST" and request.headers.get("content-type") != "application/json":
            return "the body must be application/json"
        return None


def is_address(name: str) -> bool:
    """Return whether a text is an IP address, which needs no name server."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Return whether a name or an address is of this machine alone."""
    return name.lower() == "localhost" or (is_address(name) and ip_address(name).is_loopback)


def _name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


async def _body(request: Request) -> bytes:
    read, size = bytearray(), 0
    async for piece in request.stream():
        size += len(piece)
        if size <= MAX_BODY:
            read += piece
        if size > DRAINED:
            break
    if size > MAX_BODY:
        raise InputError(
            f"the request has more than {MAX_BODY:,} bytes; a question may have at most {MAX_QUESTION:,} characters"
        )
    return bytes(read)


def _arguments(body: bytes, wanted: dict[str, type]) -> dict[str, Any]:
    """Return the fields of a JSON object; raise `InputError` where one is missing, unknown or of a wrong type."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError("the request is no JSON") from error
    if not isinstance(given, dict):
        raise InputError("the request must be a JSON object")
    if given.keys() != wanted.keys():
        raise InputError(f"the request must have the fields {', '.join(wanted)}")
    for name, kind in wanted.items():
        value = given[name]
        if (value is None and name == "number") or (isinstance(value, kind) and not isinstance(value, bool)):
            continue
        raise InputError(f"{name} must be a {kind.__name__}, got a {type(value).__name__}")
    return given


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; 0 stands for any free port.

    Raises:
        InputError: The address cannot be used.
    """
    check_count("port", port, "0 stands for any that is free", least=0, most=65535)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"the page cannot be served at {host}, port {port} ({error}); choose another with --port, or 0 for any"
        ) from error


def address(sock: socket.socket) -> str:
    """Return the URL of a page that is served at a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"
