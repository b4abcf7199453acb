"""The page over HTTP: files of its own, and the calls of `Workbench` as JSON.

The page is for the person at this machine. It loads nothing from elsewhere, and other sites cannot use it: scripts,
styles and connections are limited to this address, calls from other origins are refused, and a server on a loopback
address answers only to the names of that, so that no foreign name can be pointed at it (DNS rebinding).
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
"""Requests that are computed at once; others wait."""
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
        host: Address that it is served at; a loopback address answers only to names of loopback.
    """
    limiter: list[anyio.CapacityLimiter] = []

    async def computed(call: Callable[[], Any]) -> Response:
        if not limiter:
            limiter.append(anyio.CapacityLimiter(AT_ONCE))
        try:
            return Json(await anyio.to_thread.run_sync(call, limiter=limiter[0]))
        except CoragError as error:
            return Json({"error": str(error)}, 400)
        except Exception:
            logger.exception("the page could not be answered")
            return Json({"error": "something broke; the terminal that runs corag app says what"}, 500)

    def posted(call: Callable[..., Any], **wanted: type) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            try:
                given = _arguments(await _body(request), {"question": str, "number": int, **wanted})
            except InputError as error:
                return Json({"error": str(error)}, 400)
            return await computed(lambda: call(**given))

        return answered

    async def streamed(request: Request) -> Response:
        try:
            given = _arguments(await _body(request), {"question": str, "number": int, "given": dict})
        except InputError as error:
            return Json({"error": str(error)}, 400)
        return StreamedAnswer(request, lambda on_token: computed(lambda: workbench.answer(**given, on_token=on_token)))

    async def questions(request: Request) -> Response:
        text, start = request.query_params.get("text", ""), request.query_params.get("start", "0")
        if len(text) > MAX_QUESTION or not start.isdecimal() or len(start) > 9:
            return Json({"error": "text is too long, or start is no number"}, 400)
        return await computed(lambda: workbench.source.listed(text, int(start)))

    async def about(request: Request) -> Response:
        return await computed(workbench.about)

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    routes = [
        Route("/", page),
        Route("/api/about", about),
        Route("/api/questions", questions),
        Route("/api/search", posted(workbench.search, given=dict), methods=["POST"]),
        Route("/api/answer", posted(workbench.answer, given=dict), methods=["POST"]),
        Route("/api/stream", streamed, methods=["POST"]),
        Route("/api/agent", posted(workbench.agent, budget=int), methods=["POST"]),
        Route("/api/method", posted(workbench.method, budget=int, name=str), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, loopback=is_loopback(host))])


class StreamedAnswer(Response):
    """Lines of JSON: the pieces of an answer as they are written, then what `Workbench.answer` returns, or an error.

    Args:
        request: What is answered; where its sender is gone, the reader stops.
        answer: Answers it, given what is to be called with each piece, from another thread.
    """

    media_type = "application/x-ndjson"

    def __init__(self, request: Request, answer: Callable[[Callable[[str], None]], Awaitable[Response]]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._request, self._answer = request, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines."""

        async def line(content: bytes, *, more: bool) -> None:
            await send({"type": "http.response.body", "body": content + b"\n", "more_body": more})

        async def piece(text: str) -> None:
            if await self._request.is_disconnected():
                raise InputError("client disconnected")
            await line(bytes(Json({"piece": text}).body), more=True)

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        answer = await self._answer(lambda text: anyio.from_thread.run(piece, text))
        await line(bytes(answer.body), more=False)


class Guard:
    """Refuses requests that come by a foreign name or from another origin, and sets headers.

    Args:
        app: What answers the others.
        loopback: Whether only names of loopback are answered to.
    """

    def __init__(self, app: ASGIApp, loopback: bool) -> None:
        self._app, self._loopback = app, loopback

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
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return "calls from other pages are refused"
        if request.method == "POST" and request.headers.get("content-type") != "application/json":
            return "the body must be application/json"
        return None


def is_loopback(name: str) -> bool:
    """Return whether a name or an address is of this machine alone."""
    if name.lower() == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


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
