"""`corag serve`: CORAG for applications that do not import it."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import Any

from common.checks import check_count, check_range
from corag.budget import AUTO
from corag.cli.console import say
from corag.errors import InputError
from corag.models.runtime import Runtime, in_runtime
from corag.optional import needed
from corag.text.chunking import DEFAULT_BUDGET
from corag.untrusted import DEADLINE_S

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
        method: Selector of requests that name none, such as `corag(agent=FOLDER)`.
        tokenizer: Tokenizer of the answering model; see `corag ask`.
        num_candidates: Number of chunks to retrieve from the index.
        host: Address to listen on. Any that others can reach requires the key.
        port: Port; 0 for any free one.
        deadline: Seconds after which a request is stopped, waiting for its turn included.
        mcp: Serve tools of an assistant over standard input and output, by the Model Context Protocol, and no HTTP.
    """

    index: str | None = None
    budget: int = DEFAULT_BUDGET
    method: str = "corag"
    tokenizer: str = AUTO
    num_candidates: int = 20
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
        index=None if config.index is None else ChunkIndex.open(config.index),
        num_candidates=config.num_candidates,
    )
    if config.mcp:
        with needed("mcp", "mcp"):
            from corag.serve.tools import make_tools
        make_tools(service).run()
        return
    with needed("fastapi and uvicorn", "serve"):
        from corag.serve.api import LOCAL, make_api
    key = os.environ.get(KEY) or None
    if key is None and config.host not in LOCAL:
        raise InputError(f"{config.host} can be reached by others: set a key in the environment variable {KEY}")
    with listening(config.host, config.port) as sock, contextlib.suppress(KeyboardInterrupt):
        say(f"service at {address(sock)}; Ctrl-C ends it")
        make_server(make_api(service, key=key, deadline=config.deadline)).run(sockets=[sock])


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; an `InputError` says that the address cannot be used."""
    check_count("port", port, "0 is any free port", least=0, most=65535)
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise InputError(
            f"cannot serve at {host}, port {port} ({error}); choose another port with --port, or 0 for any free one"
        ) from error


def address(sock: socket.socket) -> str:
    """Return the URL of what is served at a socket."""
    host, port = sock.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def make_server(app: Any) -> Any:
    """Return a uvicorn server of an application, to be run with a socket."""
    import uvicorn

    # h11 bounds the headers of a request.
    return uvicorn.Server(uvicorn.Config(app, http="h11", ws="none", log_level="warning", log_config=None))
