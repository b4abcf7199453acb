"""Clients that send too much, too slowly or all at once, to the page and to the service, over real sockets."""

import http.client
import json
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

import httpx
import pytest

from corag.app import http as shared
from corag.app.api import MAX_PENDING, make_api
from corag.app.server import make_app
from corag.app.service import Service
from tests.corag.app.worlds import make_workbench, serving
from tests.experiments.worlds import QUERIES
from tests.paths import ROOT
from tests.processes import environment

pytestmark = pytest.mark.slow

NUM_CONNECTIONS = 500
SEARCH = {"question": QUERIES[0]["question"], "number": 0, "given": {"budget": 40}}
SELECT = {"query": "How salty is the sea?", "texts": ["The sea is salty."]}
SERVED = {"page": ("/api/search", SEARCH), "service": ("/v1/select", SELECT)}


@pytest.fixture(params=SERVED)
def served(request, small_data):
    """The path to post to, what to post, and the host and port."""
    page = request.param == "page"
    app = make_app(make_workbench(small_data)) if page else make_api(Service(method="naive(reranker=bm25)"))
    with serving(app) as url:
        yield (*SERVED[request.param], url.split("/")[2])


def connected(place):
    host, port = place.split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def head(path, place, *headers):
    lines = [f"POST {path} HTTP/1.1", f"Host: {place}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(connection):
    """Return the status of the reply, None if the server has hung up without one."""
    reply = http.client.HTTPResponse(connection)
    try:
        reply.begin()
    except (ConnectionError, http.client.BadStatusLine):
        return None
    return reply.status


def answers(served):
    path, body, place = served
    return httpx.post(f"http://{place}{path}", json=body, timeout=30).status_code == 200


HEADERS = {
    "a long header": [b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 2**20 + b"\r\n\r\n"],
    "many headers": [b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 2**18 + b"\r\n"],
    "a long address": [b"GET /" + b"x" * 2**20 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"],
    "an endless line": [b"x" * 2**16] * 200,
    "no HTTP": [b"\x16\x03\x01" + bytes(400)],
    "a length that is no number": [b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: many\r\n\r\n"],
}


@pytest.mark.parametrize("headers", HEADERS)
def test_headers_have_a_bound(served, headers):
    with connected(served[2]) as connection:
        status = None
        with suppress(ConnectionError):
            for piece in HEADERS[headers]:
                connection.sendall(piece)
            status = status_of(connection)
        assert status in (None, 400, 431)
    assert answers(served)


def test_bodies_have_a_bound_whatever_length_they_claim(served):
    path, _, place = served
    for header, piece in (("Content-Length: 1000000000000", b"x" * 2**20), ("Transfer-Encoding: chunked", None)):
        piece = piece or b"100000\r\n" + b"x" * 2**20 + b"\r\n"
        with connected(place) as connection:
            connection.sendall(head(path, place, header))
            sent, refused = 0, False
            while not refused:
                assert sent < 64 * 2**20
                try:
                    connection.sendall(piece)
                    sent += len(piece)
                except OSError:  # it is no longer read
                    refused = True
                else:
                    connection.settimeout(0.001)
                    with suppress(TimeoutError):
                        refused = connection.recv(12) in (b"HTTP/1.1 400", b"")
                    connection.settimeout(30)
    assert answers(served)


def test_slow_senders_are_given_up(served, monkeypatch):
    monkeypatch.setattr(shared, "MAX_BODY_S", 1.0)
    path, _, place = served
    with ExitStack() as stack:
        slow = [stack.enter_context(connected(place)) for _ in range(MAX_PENDING)]
        for connection in slow:
            connection.sendall(head(path, place, "Content-Length: 100") + b'{"q')
        assert {status_of(connection) for connection in slow} == {400}
    assert answers(served)


def test_many_connections_keep_nobody_waiting(served):
    path, body, place = served
    with ExitStack() as stack:
        held = [stack.enter_context(connected(place)) for _ in range(NUM_CONNECTIONS)]
        for connection in held[::2]:
            connection.sendall(head(path, place, "Content-Length: 9")[:-2])
        assert answers(served)
        # All at once: some are told to come back.
        for connection in held[1::2]:
            content = json.dumps(body).encode()
            connection.sendall(head(path, place, f"Content-Length: {len(content)}") + content)
        statuses = [status_of(connection) for connection in held[1::2]]
        assert set(statuses) <= {200, 503} and statuses[0] == 200
    assert answers(served)


@pytest.mark.timeout(120)
def test_the_key_of_the_command_is_nowhere():
    secret = "sk-PLANTED"
    command = [sys.executable, "-m", "corag.cli.main", "serve", "--host", "0.0.0.0", "--port", "0"]
    settings = environment(CORAG_API_KEY=secret, PYTHONUNBUFFERED="1")
    process = subprocess.Popen(
        [*command, "--method", "naive(reranker=bm25)"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=settings,
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        place = f"127.0.0.1:{line.split(';')[0].rstrip('/').rpartition(':')[2]}"
        statuses = []
        for key in (secret, secret[:-1], f"{secret}x", "\xff"):
            headers = {"Authorization": f"Bearer {key}".encode("latin-1")}
            reply = httpx.post(f"http://{place}/v1/select", json=SELECT, headers=headers, timeout=60)
            statuses.append(reply.status_code)
            assert secret not in reply.text
        assert statuses == [200, 401, 401, 401]
        with connected(place) as connection:  # no HTTP
            connection.sendall(secret.encode() + b"\r\n\r\n")
            assert status_of(connection) == 400
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and secret not in line + said


def test_keys_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(shared, "compare_digest", lambda *keys: compared.append(keys) or False)
    with serving(make_api(Service(method="top-k"), key="sk-right")) as url:
        reply = httpx.post(f"{url}v1/select", json=SELECT, headers={"Authorization": "Bearer sk-right"})
    assert reply.status_code == 401 and compared == [(b"sk-right", b"sk-right")]
