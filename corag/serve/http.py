"""The service over HTTP: who may ask, how much, how many at once and for how long, and errors as JSON."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping
from functools import cached_property
from hmac import compare_digest
from ipaddress import ip_address
from typing import Any, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from corag.ambient import checking
from corag.checks import check_count
from corag.errors import CoragError, InputError
from corag.text.visible import to_json

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_DRAINED = 16 * 2**20
"""Bytes of a request over its limit that are read, so that its sender gets the reason for the refusal."""
PYTHON_TYPES = {
    "string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None),
}  # fmt: skip
MAX_BODY_S = 60
"""Seconds in which a request must arrive."""


class Json(JSONResponse):
    """JSON with letters of all scripts as they are; halves of characters are escaped."""

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        return to_json(content, allow_nan=False, separators=(",", ":")).encode()


class DeadlineError(CoragError):
    """A request took too long."""


class Workers:
    """Runs calls in threads, at most `at_once`, and answers with their results as JSON.

    If a client disconnects while its call waits, or the call is not done after `deadline` seconds, waiting included,
    the call never starts; one that runs stops at its next `corag.ambient.checkpoint`.
    """

    def __init__(self, at_once: int, deadline: float) -> None:
        self._at_once, self._deadline = at_once, deadline

    @cached_property
    def _limiter(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self._at_once)  # belongs to an event loop

    async def run(self, request: Request, call: Callable[[], Any]) -> Response:
        """Return the response to a request: what `call` returns, or its error."""
        response: Response = Json({"error": "client disconnected"}, 400)
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_on_disconnect, request.receive, group.cancel_scope)
            try:
                # A long reply is rendered there, too: the event loop answers others meanwhile.
                response = await in_thread(lambda: Json(call()), self._deadline, limiter=self._limiter)
            except DeadlineError as error:
                response = Json({"error": str(error)}, 504)
            except CoragError as error:
                response = Json({"error": str(error)}, 400)
            except Exception:
                logger.exception("a request failed")
                response = Json({"error": "internal error; see the terminal of the server"}, 500)
            group.cancel_scope.cancel()
        return response


async def in_thread(call: Callable[[], T], deadline: float, **how: Any) -> T:
    """Return what a call returns from a thread, where it can be stopped; `how` goes to `anyio.to_thread.run_sync`.

    Raises:
        DeadlineError: It was not done after `deadline` seconds, and has stopped.
    """

    def checked() -> T:
        with checking(anyio.from_thread.check_cancelled):
            return call()

    with anyio.move_on_after(deadline):
        return await anyio.to_thread.run_sync(checked, **how)
    raise DeadlineError(
        f"the request was not done after {deadline:g} seconds; ask for less: fewer or shorter texts, or another method "
        "(the server's --deadline sets the limit)"
    )


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def fields_of(request: Request, schema: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """Return the fields of the JSON object that a request sends, as far as an object schema of one level names them.

    An `InputError` says that the body is too long or no JSON object, or that a field is missing, of another type or,
    unless `additionalProperties` are allowed, unknown.
    """
    body = await _body(request, max_bytes)
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not valid JSON ({error})") from error
    properties, required = schema["properties"], schema["required"]
    if not isinstance(given, dict):
        raise InputError(f"the body is not a JSON object; send one with the fields {', '.join(required)}")
    if missing := [name for name in required if name not in given]:
        raise InputError(f"the field {missing[0]!r} is missing; send {', '.join(required)}")
    others = [name for name in given if name not in properties]
    if others and not schema.get("additionalProperties"):
        raise InputError(f"the field {others[0]!r:.80} is unknown; the fields are {', '.join(properties)}")
    fields = {name: value for name, value in given.items() if name in properties}
    for name, value in fields.items():
        kinds = properties[name]["type"]
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if type(value) not in [PYTHON_TYPES[kind] for kind in kinds]:
            raise InputError(f"{name} must be of type {' or '.join(kinds)}, got {type(value).__name__}")
    return fields


async def _body(request: Request, max_bytes: int) -> bytes:
    read, size = bytearray(), 0
    with anyio.move_on_after(MAX_BODY_S) as scope:
        async for piece in request.stream():
            size += len(piece)
            if size <= max_bytes:
                read += piece
            if size > max_bytes + MAX_DRAINED:
                break
    if scope.cancelled_caught:
        raise InputError(f"the request did not arrive within {MAX_BODY_S} seconds")
    if size > max_bytes:
        raise InputError(f"the request has more than {max_bytes:,} bytes; send less")
    return bytes(read)


class Guard:
    """Refuses requests without the key, by a foreign name (DNS rebinding) or from another origin, and sets headers.

    Without a key, a server on a loopback address answers only to the names of that; any other to addresses and its own
    name. With a key, which clients send as `Authorization: Bearer KEY` except to `/health`, any name will do: a page
    that is pointed at the server does not know the key.
    """

    def __init__(self, app: ASGIApp, host: str, headers: Mapping[str, str], key: str | None = None) -> None:
        self._app, self._loopback, self._key = app, is_loopback(host), key
        own = () if self._loopback else (host, socket.gethostname(), socket.getfqdn())
        self._names = {"localhost", *map(str.lower, own)}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        request = Request(scope)
        app = self._app
        if not self._has_key(request):
            reason = "the key is missing or wrong; send the header Authorization: Bearer KEY"
            app = Json({"error": reason}, 401, {"WWW-Authenticate": "Bearer"})
        elif (refusal := self._refusal(request)) is not None:
            app = Json({"error": refusal}, 403)
        await app(scope, receive, with_headers)

    def _has_key(self, request: Request) -> bool:
        if self._key is None or request.url.path == "/health":
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and compare_digest(given.strip().encode("latin-1"), self._key.encode())

    def _refusal(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if self._key is None and self._loopback and not is_loopback(name):
            return "this server answers only to localhost and 127.0.0.1; use one of these names"
        if self._key is None and not is_address(name) and name.lower() not in self._names:
            return "this server answers only to its address and its own name; use these, or set its name with --host"
        origin = request.headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return "requests from pages of other origins are refused"
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "POST" and content_type != "application/json":
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


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; an `InputError` says that the address cannot be used."""
    check_count("port", port, "0 is any free port", least=0, most=65535)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise InputError(
            f"cannot serve at {host}, port {port} ({error}); choose another port with --port, or 0 for any free one"
        ) from error


def address(sock: socket.socket) -> str:
    """Return the URL of what is served at a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server of an application, to be run with a socket."""
    # h11 bounds the headers of a request.
    config = uvicorn.Config(app, http="h11", ws="none", log_level="warning", log_config=None, access_log=False)
    return uvicorn.Server(config)
