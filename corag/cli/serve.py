"""`corag serve`: CORAG for applications that do not import it, over HTTP or as tools of an assistant."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corag.errors import InputError
from corag.index.search import Retrieval
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling
from corag.text.chunking import DEFAULT_BUDGET

if TYPE_CHECKING:
    from corag.app.service import Service

KEY = "CORAG_API_KEY"
"""The environment variable with the key that clients must send."""


@dataclass(frozen=True)
class ServeConfig(Runtime):
    """Serve selecting and reranking over HTTP, or as tools of an assistant.

    The environment variable CORAG_API_KEY is the key that HTTP clients must send as `Authorization: Bearer KEY`. Away
    from this machine, it is required.

    Attributes:
        index: Folder or URI of an index, for requests without texts.
        budget: Token budget of requests that set none.
        method: Selector of requests that name none.
        agent: Agent of method `corag`; see `corag ask`.
        tokenizer: Tokenizer of the answering model: a model on the hub, such as Qwen/Qwen3-8B, or of OpenAI, such as
            gpt-4o; a folder or a tokenizer.json; minilm, also by the name auto; estimate.
        num_candidates: Number of chunks to retrieve from the index.
        retrieval: How the index finds chunks: vector, text or hybrid.
        host: Address to serve at.
        port: Port; 0 for any free one.
        mcp: Serve tools of an assistant over standard input and output, by the Model Context Protocol, and no HTTP.
    """

    index: str | None = None
    budget: int = DEFAULT_BUDGET
    method: Spelling = "corag"
    agent: str = "default"
    tokenizer: Spelling = "auto"
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"
    host: str = "127.0.0.1"
    port: int = 8384
    mcp: bool = False


@in_runtime
def run(config: ServeConfig) -> None:
    """Serve until the process is interrupted."""
    from corag.app.service import Service
    from corag.index import ChunkIndex
    from corag.optional import needed

    index = None if config.index is None else ChunkIndex.open(config.index)
    service = Service(
        method=config.method,
        budget=config.budget,
        tokenizer=config.tokenizer,
        agent=config.agent,
        index=index,
        num_candidates=config.num_candidates,
        retrieval=config.retrieval,
    )
    with contextlib.nullcontext() if index is None else index.stored_states():
        if config.mcp:
            with needed("mcp", "mcp"):
                from corag.app.tools import make_tools

            make_tools(service).run()
        else:
            _serve_http(service, config.host, config.port)


def _serve_http(service: Service, host: str, port: int) -> None:
    from corag.cli.console import say
    from corag.optional import needed

    with needed("starlette and uvicorn", "app"):
        from corag.app.api import make_api
        from corag.app.http import address, is_loopback, listening, run_server

    key = os.environ.get(KEY) or None
    if key is None and not is_loopback(host):
        raise InputError(f"others can reach {host}: set a key for them in the environment variable {KEY}")
    with listening(host, port) as sock, contextlib.suppress(KeyboardInterrupt):
        say(f"service at {address(sock)}; Ctrl-C ends it")
        run_server(make_api(service, host=host, key=key), sock)
