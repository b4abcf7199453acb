"""`corag app`: a local page that shows the search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from corag.budget import AUTO
from corag.index.search import Retrieval
from corag.models.runtime import Runtime, in_runtime
from corag.naming import Spelling, Spellings

if TYPE_CHECKING:
    from corag.app.session import Workbench


@dataclass(frozen=True)
class AppConfig(Runtime):
    """Show the search on a local page: candidates, policy tree, selection, answer, and all methods side by side.

    Attributes:
        index: Folder or URI of an index, for questions of your own.
        data: Data folder, or its name, with questions to pick from; known evidence is marked. Questions without
            candidates of their own are searched in the index.
        split: Split of the data folder; by default all.
        budget: Initial token budget of the context.
        reranker: Initial reranker; by default the agent's, if there is one.
        agent: Agent of method `corag`; see `corag ask`.
        methods: Methods that are compared, separated by commas; by default all that need no further setting.
        reader: Reader that answers from the context.
        tokenizer: Tokenizer of the answering model; see `corag ask`.
        embedder: Embedder of the questions; by default the index's own.
        num_candidates: Number of chunks to retrieve.
        retrieval: How the index finds chunks: vector, text or hybrid.
        host: Address that the page is served at. Whoever can reach it can ask.
        port: Port; 0 for any free one.
        open: Open the page in a browser.
    """

    index: str | None = None
    data: str | None = None
    split: str | None = None
    budget: int = 256
    reranker: str | None = None
    agent: str = "default"
    methods: Spellings | None = None
    reader: Spelling = "minilm-reader"
    tokenizer: Spelling = AUTO
    embedder: Spelling | None = None
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"
    host: str = "127.0.0.1"
    port: int = 8383
    open: bool = False


@in_runtime
def run(config: AppConfig) -> None:
    """Serve the page until it is stopped."""
    import contextlib
    import webbrowser

    from corag.cli.console import say, stderr
    from corag.optional import needed

    with needed("starlette and uvicorn", "app"):
        from corag.app.http import address, is_loopback, listening, run_server
        from corag.app.server import make_app

    workbench = make_workbench(config)
    index = workbench.source.index
    with (
        listening(config.host, config.port) as sock,
        contextlib.nullcontext() if index is None else index.stored_states(),
        contextlib.suppress(KeyboardInterrupt),
    ):
        say(f"page at {address(sock)}; Ctrl-C ends it")
        if not is_loopback(config.host):
            say(f"everybody who can reach {config.host} can ask and read; leave out --host to keep it to you", stderr())
        if config.open:
            webbrowser.open(address(sock))
        run_server(make_app(workbench, host=config.host), sock)


def make_workbench(config: AppConfig) -> Workbench:
    """Return what computes the page."""
    from corag.app.session import ALL_METHODS, Workbench
    from corag.app.source import Source
    from corag.checks import check_count
    from corag.index import ChunkIndex
    from corag.models.cached import CachedEmbedder
    from corag.naming import split_parts
    from corag.registry import EMBEDDERS, trusted
    from corag.text.data import DataFolder

    check_count("num_candidates", config.num_candidates, "10 to 50 are usual", most=200)
    index = None if config.index is None else ChunkIndex.open(config.index)
    embedder = config.embedder or "minilm"
    if index is not None and config.embedder is None:
        embedder = trusted(EMBEDDERS, index.embedder_name, f"the index at {index.uri}")
    source = Source(
        index,
        None if config.data is None else DataFolder.open(config.data),
        CachedEmbedder(embedder),
        config.split,
        config.num_candidates,
        config.retrieval,
    )
    return Workbench(
        source,
        reader=config.reader,
        tokens=config.tokenizer,
        agent=config.agent,
        reranker=config.reranker,
        budget=config.budget,
        methods=tuple(split_parts(config.methods)) or ALL_METHODS,
    )
