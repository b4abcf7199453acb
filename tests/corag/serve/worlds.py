"""A real server of an application."""

import threading
import time
from contextlib import contextmanager

from corag.cli.serve import address, listening, make_server


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
