"""`corag app`, a local page that shows the search, and `corag serve`, CORAG for applications that do not import it."""

from __future__ import annotations

import contextlib
import os
import webbrowser
from collections.abc import Iterator
from dataclasses import dataclass
from socket import socket
from typing import TYPE_CHECKING

from corag.budget import AUTO
from corag.checks import check_range
from corag.cli.console import say, stderr
from corag.errors import InputError
from corag.index.search import Retrieval
from corag.limits import DEADLINE_S
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling, Spellings
from corag.optional import needed
from corag.text.chunking import DEFAULT_BUDGET

if TYPE_CHECKING:
    from corag.app.session import Workbench
    from corag.index import ChunkIndex

KEY = "CORAG_API_KEY"
"""The environment variable with the key that clients must send."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig(Runtime):
    """What the page and the service share.

    Attributes:
        index: Folder or URI of an index, for questions that come without texts.
        agent: Agent of method `corag`; see `corag ask`.
        tokenizer: Tokenizer of the answering model; see `corag ask`.
        num_candidates: Number of chunks to retrieve from the index.
        retrieval: How the index finds chunks: vector, text or hybrid.
        host: Address to listen on. Anyone who can reach the page can ask questions; the service requires a key unless
            it listens on this machine only.
    """

    index: str | None = None
    agent: str = "default"
    tokenizer: Spelling = AUTO
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"
    host: str = "127.0.0.1"


@dataclass(frozen=True)
class AppConfig(ServerConfig):
    """Show the search on a local page: candidates, policy tree, selection, answer, and all methods side by side.

    Attributes:
        data: Data folder, or its name, with questions to pick from; known evidence is marked. Questions without
            candidates of their own are searched in the index.
        split: Split of the data folder; by default all.
        budget: Initial token budget; see `corag ask`.
        reranker: Initial reranker; by default the agent's, if there is one.
        methods: Methods that are compared, separated by commas; by default all that need no further setting.
        reader: Reader that answers from the context.
        embedder: Embedder of the questions; by default the index's own.
        port: Port; 0 for any free one.
        open: Open the page in a browser.
    """

    data: str | None = None
    split: str | None = None
    budget: int = DEFAULT_BUDGET
    reranker: str | None = None
    methods: Spellings | None = None
    reader: Spelling = "minilm-reader"
    embedder: Spelling | None = None
    port: int = 8383
    open: bool = False


@dataclass(frozen=True)
class ServeConfig(ServerConfig):
    """Serve selecting and reranking over HTTP, or as tools of an assistant.

    The environment variable CORAG_API_KEY is the key that HTTP clients must send as `Authorization: Bearer KEY`. Away
    from this machine, it is required.

    Attributes:
        budget: Token budget of requests that set none.
        method: Selector of requests that name none.
        port: Port; 0 for any free one.
        deadline: Seconds after which a request is stopped, waiting for its turn included.
        mcp: Serve tools of an assistant over standard input and output, by the Model Context Protocol, and no HTTP.
    """

    budget: int = DEFAULT_BUDGET
    method: Spelling = "corag"
    port: int = 8384
    deadline: float = DEADLINE_S
    mcp: bool = False


@in_runtime
def run_app(config: AppConfig) -> None:
    """Serve the page until it is stopped."""
    with needed("starlette and uvicorn", "app"):
        from corag.app.http import address, is_loopback, make_server
        from corag.app.server import make_app

    workbench = make_workbench(config)
    with _announced("page", config.host, config.port) as sock:
        if not is_loopback(config.host):
            say(f"everybody who can reach {config.host} can ask and read; leave out --host to keep it to you", stderr())
        if config.open:
            webbrowser.open(address(sock))
        make_server(make_app(workbench, host=config.host)).run(sockets=[sock])


@in_runtime
def run_service(config: ServeConfig) -> None:
    """Serve until the process is interrupted."""
    from corag.app.service import Service

    check_range("deadline", config.deadline, 0.1, 86_400, "typical: 30")
    index = _opened(config.index)
    service = Service(
        method=config.method,
        budget=config.budget,
        tokenizer=config.tokenizer,
        agent=config.agent,
        index=index,
        num_candidates=config.num_candidates,
        retrieval=config.retrieval,
    )
    if config.mcp:
        with needed("mcp", "mcp"):
            from corag.app.tools import make_tools
        make_tools(service, deadline=config.deadline).run()
        return
    with needed("starlette and uvicorn", "app"):
        from corag.app.api import make_api
        from corag.app.http import is_loopback, make_server
    key = os.environ.get(KEY) or None
    if key is None and not is_loopback(config.host):
        raise InputError(f"{config.host} can be reached by others: set a key in the environment variable {KEY}")
    with _announced("service", config.host, config.port) as sock:
        make_server(make_api(service, host=config.host, key=key, deadline=config.deadline)).run(sockets=[sock])


def make_workbench(config: AppConfig) -> Workbench:
    """Return what computes the page."""
    from corag.app.session import ALL_METHODS, Workbench
    from corag.app.source import Source
    from corag.checks import check_count
    from corag.naming import split_parts
    from corag.text.data import DataFolder

    check_count("num_candidates", config.num_candidates, "typical: 10-50", most=200)
    data = None if config.data is None else DataFolder.open(config.data)
    return Workbench(
        Source(_opened(config.index), data, config.embedder, config.split, config.num_candidates, config.retrieval),
        reader=config.reader,
        tokens=config.tokenizer,
        agent=config.agent,
        reranker=config.reranker,
        budget=config.budget,
        methods=tuple(split_parts(config.methods)) or ALL_METHODS,
    )


def _opened(index: str | None) -> ChunkIndex | None:
    from corag.index import ChunkIndex

    return None if index is None else ChunkIndex.open(index)


@contextlib.contextmanager
def _announced(what: str, host: str, port: int) -> Iterator[socket]:
    """Yield a socket that listens, and say where; Ctrl-C ends the block."""
    from corag.app.http import address, listening

    with listening(host, port) as sock, contextlib.suppress(KeyboardInterrupt):
        say(f"{what} at {address(sock)}; Ctrl-C ends it")
        yield sock
