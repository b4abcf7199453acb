"""A page over the small data folder, with parts that need no model."""

import threading
import time
from contextlib import contextmanager

from starlette.testclient import TestClient

from corag.app.http import address, listening, make_server
from corag.app.server import make_app
from corag.app.session import Workbench
from corag.app.source import Source
from corag.errors import InputError
from corag.text.data import DataFolder
from corag.types import Answer
from tests.fakes import HashEmbedder

LOCAL = "http://127.0.0.1:8383"


class FirstWords:
    """Answers with the first two words of the context, and says where they stand."""

    name = "first-words"

    def answer(self, query, context):
        if "unreadable" in query:
            raise InputError("the question leaves no room for a context")
        words = " ".join(context.split("\n")[0].split()[:2])
        return Answer(words, 0.5 if words else None, ((0, len(words)),) if words else ())


def make_workbench(data, index=None, **settings):
    """A page whose agent is none and whose rerankers are cheap; `data` and `index` are opened already."""
    folder = None if data is None else DataFolder.open(data)
    source = Source(index, folder, HashEmbedder(), num_candidates=6)
    given = {
        "reader": FirstWords(),
        "agent": "none",
        "reranker": "bm25",
        "methods": ("top-k", "naive", "full", "upper(max_orders=1)"),
    }
    return Workbench(source, **{**given, **settings})


def client(workbench, host="127.0.0.1"):
    return TestClient(make_app(workbench, host=host), base_url=LOCAL)


@contextmanager
def serving(app):
    """The address of a real server, while the block runs."""
    with listening("127.0.0.1", 0) as sock:
        server = make_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield address(sock)
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
