"""The service over HTTP: `POST /v1/rerank`, in the form of Cohere, Jina and vLLM, and `POST /v1/select`, in JSON.

`GET /openapi.json` describes both, `GET /health` says that it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from types import UnionType
from typing import Any, NamedTuple, get_args
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

import corag
from corag.app.http import JSON_TYPES, Guard, Json, Workers, fields_of
from corag.app.service import Service
from corag.errors import InputError

MAX_BODY = 8 * 2**20
"""Bytes of a request."""
MAX_PENDING = 64
"""Requests that are read, wait or run at once; more are told to come back."""
AT_ONCE = max(2, min(8, os.cpu_count() or 2))
"""Requests that run at once."""
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class Field(NamedTuple):
    """A field of a request: its type, what it is, and whether it must be there."""

    kind: type | UnionType
    does: str
    needed: bool = False


SHARED = {
    "budget_tokens": Field(int | None, "The most tokens of the chosen text; by default the server's."),
    "method": Field(str | None, "Selector, with settings if needed, such as `top-k(k=3)`; by default the server's."),
    "unit": Field(str | None, "What is chosen: `passage`, `sentence` or `window(n)`."),
}
RERANK = {
    "query": Field(str, "The question.", needed=True),
    "documents": Field(list, "Strings, or objects with `text`; best first if they are ranked.", needed=True),
    "top_n": Field(int | None, "The most results."),
    "return_documents": Field(bool | None, "Whether results have the chosen text."),
    "model": Field(str | None, "Returned as it is given; `method` decides."),
    **SHARED,
}
SELECT = {
    "query": Field(str, "The question.", needed=True),
    "texts": Field(
        list | None,
        "Strings, or objects with `text`, `content` or `page_content`, and perhaps `id`, `title`, `similarity`, "
        "`metadata`; best first if they are ranked. Without texts, chunks of the server's index are chosen.",
    ),
    **SHARED,
}


def make_api(service: Service, *, host: str = "127.0.0.1", key: str | None = None) -> Starlette:
    """Return the application.

    Args:
        service: Answers.
        host: Name or address that it is served at.
        key: What clients must send as `Authorization: Bearer KEY`; None for no key.
    """
    workers, pending = Workers(AT_ONCE), set[Request]()

    def posted(call: Callable[..., Any], fields: Mapping[str, Field], *, ignores_others: bool) -> Any:
        needed = {name: field.kind for name, field in fields.items() if field.needed}
        optional = {name: field.kind for name, field in fields.items() if not field.needed}

        async def answered(request: Request) -> Response:
            if len(pending) >= MAX_PENDING:
                return Json({"error": "the server is busy; try again"}, 503, {"Retry-After": "1"})
            pending.add(request)
            try:
                given = await fields_of(request, needed, optional, MAX_BODY, ignores_others=ignores_others)
                set_ = {name: value for name, value in given.items() if value is not None}
                return await workers.run(request, partial(call, **set_))
            finally:
                pending.remove(request)

        return answered

    def rerank(model: str = "corag", **given: Any) -> dict[str, Any]:
        reply = service.rerank(**given)
        usage = {"total_tokens": reply["selection"]["cost_tokens"]}
        return {"id": f"rerank-{uuid4().hex}", "model": model, **reply, "usage": usage}

    async def health(request: Request) -> Response:
        return Json({"status": "ok", "version": corag.__version__})

    async def openapi(request: Request) -> Response:
        return Json(OPENAPI)

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return Json({"error": f"{error.detail}; see /openapi.json"}, error.status_code)
        return Json({"error": str(error) or "client disconnected"}, 400)

    # Clients differ in what they append to the address of the server; other fields of theirs are ignored.
    reranking = posted(rerank, RERANK, ignores_others=True)
    routes = [
        *(Route(path, reranking, methods=["POST"]) for path in ("/v1/rerank", "/v2/rerank", "/rerank")),
        Route("/v1/select", posted(service.select, SELECT, ignores_others=False), methods=["POST"]),
        Route("/health", health),
        Route("/openapi.json", openapi),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, host=host, headers=HEADERS, key=key)],
        exception_handlers=dict.fromkeys((InputError, ClientDisconnect, HTTPException), refused),
    )


def _operation(does: str, returns: str, fields: Mapping[str, Field]) -> dict[str, Any]:
    """Return the description of a call in OpenAPI."""
    properties: dict[str, Any] = {}
    for name, field in fields.items():
        kinds = [JSON_TYPES[kind] for kind in get_args(field.kind) or (field.kind,)]
        properties[name] = {"type": kinds[0] if len(kinds) == 1 else kinds, "description": field.does}
        if "array" in kinds:
            properties[name]["items"] = {"type": ["string", "object"]}
    schema = {
        "type": "object",
        "properties": properties,
        "required": [name for name, field in fields.items() if field.needed],
    }
    replies = {"200": returns, "400": "A field is wrong; `error` says which.", "401": "The key is missing or wrong."}
    replies |= {"403": "Another host or origin.", "503": "Too many requests at once; try again."}
    return {
        "post": {
            "summary": does,
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
            "responses": {
                status: {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}
                for status, text in replies.items()
            },
        }
    }


OPENAPI = {
    "openapi": "3.1.0",
    "info": {"title": "CORAG", "version": corag.__version__, "description": "Chooses text under a token budget."},
    "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    "security": [{"key": []}, {}],
    "paths": {
        "/v1/rerank": _operation(
            "Select documents and rank them.",
            "`results`, best first, each with `index` and `relevance_score`, and `document` if asked for; `selection`.",
            RERANK,
        ),
        "/v1/select": _operation(
            "Select texts for a prompt.",
            "`text` for the prompt; its `chunks` with `index`, `id`, `span`, `citation`, `tokens` and `value`; "
            "`cost_tokens`, `value`, `trace`.",
            SELECT,
        ),
        "/health": {"get": {"summary": "Say that the server runs.", "responses": {"200": {"description": "It runs."}}}},
    },
}
