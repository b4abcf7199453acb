"""The service over HTTP: `POST /v1/rerank`, in the form of Cohere, Jina and vLLM, and `POST /v1/select`, in JSON.

`openapi.json` describes both; requests are checked by its schemas, and `GET /openapi.json`, or `GET /`, returns it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import corag
from corag.errors import InputError
from corag.limits import DEADLINE_S
from corag.registry import RERANKERS
from corag.serve.http import Guard, Json, Workers, fields_of
from corag.serve.service import Service

MAX_BODY = 8 * 2**20
"""Bytes of a request."""
MAX_PENDING = 64
"""Requests that are read, wait or run at once; more are told to come back."""
AT_ONCE = max(2, min(8, os.cpu_count() or 2))
"""Requests that run at once."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def make_api(
    service: Service, *, host: str = "127.0.0.1", key: str | None = None, deadline: float = DEADLINE_S
) -> Starlette:
    """Return the application, which is served at a name or an address, `host`.

    See `Guard` for the `key`. A request that is not done after `deadline` seconds is stopped.
    """
    workers, pending = Workers(AT_ONCE, deadline), set[Request]()
    description = json.loads(Path(__file__).with_name("openapi.json").read_text(encoding="utf-8"))
    description["info"]["version"] = corag.__version__
    schemas = description["components"]["schemas"]

    def posted(call: Callable[..., Any], schema: dict[str, Any]) -> Callable[[Request], Any]:
        async def answered(request: Request) -> Response:
            if len(pending) >= MAX_PENDING:
                return Json({"error": "the server is busy; try again"}, 503, {"Retry-After": "1"})
            pending.add(request)
            try:
                given = await fields_of(request, schema, MAX_BODY)
                set_ = {name: value for name, value in given.items() if value is not None}
                return await workers.run(request, partial(call, **set_))
            finally:
                pending.remove(request)

        return answered

    def rerank(**given: Any) -> dict[str, Any]:
        return {"id": f"rerank-{uuid4().hex}", **service.rerank(**given)}

    async def health(request: Request) -> Response:
        return Json({"status": "ok", "version": corag.__version__})

    async def models(request: Request) -> Response:
        named = [{"id": name, "object": "model", "owned_by": "corag"} for name in RERANKERS.local]
        return Json({"object": "list", "data": named})

    async def openapi(request: Request) -> Response:
        return Json(description)

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return Json({"error": f"{error.detail}; see /openapi.json"}, error.status_code)
        return Json({"error": str(error) or "client disconnected"}, 400)

    # Clients differ in what they append to the address of the server; other fields of theirs are ignored.
    reranking = posted(rerank, schemas["rerank"])
    routes = [
        *(Route(path, reranking, methods=["POST"]) for path in ("/v1/rerank", "/v2/rerank", "/rerank")),
        Route("/v1/select", posted(service.select, schemas["select"]), methods=["POST"]),
        Route("/v1/models", models),
        Route("/health", health),
        Route("/openapi.json", openapi),
        Route("/", openapi),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, headers=HEADERS, key=key)],
        exception_handlers=dict.fromkeys((InputError, ClientDisconnect, HTTPException), refused),
    )
