"""The service over HTTP: `POST /v1/rerank`, in the form of Cohere, Jina and vLLM, and `POST /v1/select`, in JSON.

`GET /openapi.json` describes both.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from hmac import compare_digest
from typing import Annotated, Any

import anyio
from anyio import from_thread, to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

import corag
from corag.ambient import checking
from corag.errors import CoragError
from corag.registry import RERANKERS
from corag.serve.service import Service, wrong_fields
from corag.text.visible import to_json
from corag.untrusted import DEADLINE_S

logger = logging.getLogger(__name__)

MAX_BODY = 8 * 2**20
"""Bytes of a request."""
MAX_TEXTS = 1_000
"""Texts of a request."""
MAX_PENDING = 64
"""Requests that wait or run at once; more are told to come back."""
AT_ONCE = max(2, min(8, os.cpu_count() or 2))
"""Requests that run at once."""
LOCAL = ["127.0.0.1", "localhost", "[::1]", "::1"]
"""Names of this machine."""

Texts = Annotated[list[str | dict[str, JsonValue]], Field(max_length=MAX_TEXTS)]


class Question(BaseModel):  # type: ignore[misc]  # pydantic's types are skipped
    """What both calls take."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    query: str = Field(max_length=10_000, description="The question.")
    budget_tokens: int | None = Field(None, description="The most tokens of the chosen text.")
    method: str | None = Field(None, max_length=1000, description="Selector, such as `top-k(k=3)`; else the server's.")
    unit: str | None = Field(None, max_length=100, description="What is chosen: `passage`, `sentence` or `window(n)`.")


class Rerank(Question):
    """Documents to score or, with a budget, to choose from; other fields of rerank clients are ignored."""

    model_config = ConfigDict(extra="ignore")

    documents: Texts = Field(description="Strings, or objects with `text`; best first if they are ranked.")
    top_n: int | None = Field(None, ge=1, description="The most results.")
    return_documents: bool | str | None = Field(None, description="Whether results have the text.")
    model: str | None = Field(
        None, max_length=1000, description="Without a budget: a reranker that ships, such as `bm25`; else the server's."
    )


class Select(Question):
    """Texts to choose from."""

    texts: Texts | None = Field(
        None,
        description="Strings, or objects with `text`, `content` or `page_content`, and perhaps `id`, `title`, "
        "`similarity`, `metadata`; best first if they are ranked. Without texts, the server's index is searched.",
    )


def make_api(service: Service, *, key: str | None = None, deadline: float = DEADLINE_S) -> FastAPI:
    """Return the application.

    Clients send a `key` as `Authorization: Bearer KEY`, except to `/health`. Without one, only requests by a name of
    this machine are answered: a page whose name is pointed at it has another (DNS rebinding). A request that is not
    done after `deadline` seconds is stopped.
    """

    def authorize(given: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]) -> None:
        if key is not None and (given is None or not compare_digest(given.credentials.encode(), key.encode())):
            raise HTTPException(401, "the key is missing or wrong; send the header Authorization: Bearer KEY")

    app = FastAPI(
        title="CORAG",
        description="Chooses text under a token budget.",
        version=corag.__version__,
        docs_url=None,
        redoc_url=None,
        max_body_size=MAX_BODY,
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOCAL if key is None else ["*"])
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def answered(request: Request, asked: Question, call: Callable[..., dict[str, Any]]) -> Response:
        """Return the answer of a call in a thread, where it stops if the client disconnects, or after the deadline."""
        under_way = limiter.statistics()
        if under_way.borrowed_tokens + under_way.tasks_waiting >= MAX_PENDING:
            raise HTTPException(503, "the server is busy; try again", {"Retry-After": "1"})
        async with anyio.create_task_group() as group:
            group.cancel_scope.deadline = anyio.current_time() + deadline
            group.start_soon(_cancel_on_disconnect, request, group.cancel_scope)
            response = await to_thread.run_sync(_answer_of, asked, call, limiter=limiter)
            group.cancel_scope.cancel()
            return response
        remedy = "ask for less, or raise the server's --deadline"
        raise HTTPException(504, f"the request was not done after {deadline:g} seconds; {remedy}")

    @app.post("/v1/rerank", dependencies=[Depends(authorize)])
    @app.post("/v2/rerank", dependencies=[Depends(authorize)], include_in_schema=False)
    @app.post("/rerank", dependencies=[Depends(authorize)], include_in_schema=False)
    async def rerank(request: Request, asked: Rerank) -> Response:
        """Score documents, or select them under a budget."""
        return await answered(request, asked, service.rerank)

    @app.post("/v1/select", dependencies=[Depends(authorize)])
    async def select(request: Request, asked: Select) -> Response:
        """Select texts for a prompt."""
        return await answered(request, asked, service.select)

    @app.get("/v1/models", dependencies=[Depends(authorize)])
    async def models() -> dict[str, Any]:
        """List the rerankers that `model` may name, in the form of OpenAI."""
        named = [{"id": name, "object": "model", "owned_by": "corag"} for name in RERANKERS.local]
        return {"object": "list", "data": named}

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Say that the server runs."""
        return {"status": "ok", "version": corag.__version__}

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _json({"error": f"{wrong_fields(error.errors()[:5])}; send application/json as in /openapi.json"}, 400)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        return _json({"error": str(error.detail)}, error.status_code, error.headers)

    return app


def _json(content: dict[str, Any], status: int = 200, headers: Any = None) -> Response:
    return Response(to_json(content, allow_nan=False), status, headers, "application/json")


def _answer_of(asked: Question, call: Callable[..., dict[str, Any]]) -> Response:
    """Return what a call returns, or the error that it raises, from a thread that can be cancelled."""
    try:
        with checking(from_thread.check_cancelled):
            return _json(call(**asked.model_dump(exclude_none=True)))
    except CoragError as error:
        return _json({"error": str(error)}, 400)
    except Exception:
        logger.exception("a request failed")
        return _json({"error": "internal error; see the terminal of the server"}, 500)


async def _cancel_on_disconnect(request: Request, scope: anyio.CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
