"""`corag serve`: CORAG for applications that do not import it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from socket import socket

from corag.budget import AUTO
from corag.checks import check_range
from corag.cli.console import say
from corag.errors import InputError
from corag.index.search import Retrieval
from corag.limits import DEADLINE_S
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling
from corag.optional import needed
from corag.text.chunking import DEFAULT_BUDGET

KEY = "CORAG_API_KEY"
"""The environment variable with the key that clients must send."""


@dataclass(frozen=True)
class ServeConfig(Runtime):
    """Serve selecting and reranking over HTTP, or as tools of an assistant.

    The environment variable CORAG_API_KEY is the key that HTTP clients must send as `Authorization: Bearer KEY`. Away
    from this machine, it is required.

    Attributes:
        index: Folder or URI of an index, for questions that come without texts.
        budget: Token budget of requests that set none.
        method: Selector of requests that name none.
        agent: Agent of method `corag`; see `corag ask`.
        tokenizer: Tokenizer of the answering model; see `corag ask`.
        num_candidates: Number of chunks to retrieve from the index.
        retrieval: How the index finds chunks: vector, text or hybrid.
        host: Address to listen on. Any that others can reach requires the key.
        port: Port; 0 for any free one.
        deadline: Seconds after which a request is stopped, waiting for its turn included.
        mcp: Serve tools of an assistant over standard input and output, by the Model Context Protocol, and no HTTP.
    """

    index: str | None = None
    budget: int = DEFAULT_BUDGET
    method: Spelling = "corag"
    agent: str = "none"
    tokenizer: Spelling = AUTO
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"
    host: str = "127.0.0.1"
    port: int = 8384
    deadline: float = DEADLINE_S
    mcp: bool = False


@in_runtime
def run(config: ServeConfig) -> None:
    """Serve until the process is interrupted."""
    from corag.index import ChunkIndex
    from corag.serve.service import Service

    check_range("deadline", config.deadline, 0.1, 86_400, "typical: 30")
    service = Service(
        method=config.method,
        budget=config.budget,
        tokenizer=config.tokenizer,
        agent=config.agent,
        index=None if config.index is None else ChunkIndex.open(config.index),
        num_candidates=config.num_candidates,
        retrieval=config.retrieval,
    )
    if config.mcp:
        with needed("mcp", "mcp"):
            from corag.serve.tools import make_tools
        make_tools(service, deadline=config.deadline).run()
        return
    with needed("starlette and uvicorn", "serve"):
        from corag.serve.api import make_api
        from corag.serve.http import is_loopback, make_server
    key = os.environ.get(KEY) or None
    if key is None and not is_loopback(config.host):
        raise InputError(f"{config.host} can be reached by others: set a key in the environment variable {KEY}")
    with _announced(config.host, config.port) as sock:
        make_server(make_api(service, host=config.host, key=key, deadline=config.deadline)).run(sockets=[sock])


@contextlib.contextmanager
def _announced(host: str, port: int) -> Iterator[socket]:
    """Yield a socket that listens, and say where; Ctrl-C ends the block."""
    from corag.serve.http import address, listening

    with listening(host, port) as sock, contextlib.suppress(KeyboardInterrupt):
        say(f"service at {address(sock)}; Ctrl-C ends it")
        yield sock
