"""The page over HTTP, and `corag app`: what is refused, what hostile questions do, and what leaves the machine."""

import http.client
import json
import random
import re
import threading
from pathlib import Path

import httpx
import pytest

import corag.app
from corag.app.server import AT_ONCE, MAX_BODY, make_app
from corag.app.session import MAX_QUESTION
from corag.cli.serve import AppConfig
from corag.cli.serve import make_workbench as workbench_of
from corag.errors import InputError, ModelError
from corag.index import ChunkIndex
from corag.types import Answer
from tests.corag.app.worlds import FirstWords, client, make_workbench, serving
from tests.experiments.worlds import write_folder
from tests.fakes import FixedReader, HashEmbedder
from tests.processes import served

STATIC = Path(corag.app.__file__).with_name("static")


@pytest.fixture(scope="module")
def own_index(tmp_path_factory):
    """An index whose chunks are as hostile as the questions."""
    from corag import Chunk

    texts = ["<script>alert(1)</script> the sea", "\x1b[31mred\x00 sea", "\u202eאבג sea", "plain sea water", "x" * 300]
    chunks = [Chunk(f"c{place}<b>", text, {"title": f"<i>{place}</i>"}) for place, text in enumerate(texts)]
    return ChunkIndex.build(tmp_path_factory.mktemp("hostile") / "index", chunks, HashEmbedder())


@pytest.fixture(scope="module")
def page(small_data, own_index):
    with client(make_workbench(small_data, own_index)) as page:
        yield page


def search(page, question, number=None, **given):
    return page.post("/api/search", json={"question": question, "number": number, "given": given})


def test_a_question_of_ones_own_is_searched_in_the_index(page):
    found = search(page, "How salty is the sea?", budget=40).json()
    assert {item["evidence"] for item in found["items"]} == {None}
    assert found["tokens"] <= 40
    assert "\\x1b[31mred\\x00 sea" in {item["text"] for item in found["items"]}
    assert any(item["text"].startswith("\\u202e") for item in found["items"])


def test_a_question_of_the_data_has_its_own_candidates(page):
    listed = page.get("/api/questions", params={"text": "FOUNDED capital"}).json()
    assert listed["total"] == 1
    [question] = listed["questions"]
    found = search(page, question["question"], question["number"]).json()
    assert found["answers"] == ["Ilsa Brandt", "Queen Ilsa Brandt"]
    assert len(found["items"]) == 6
    about = page.get("/api/about").json()
    assert about["questions"] == 12 and about["index"]["chunks"] == 5


def hostile_questions():
    rng = random.Random(7)
    nasty = [
        "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "{{7*7}}", "${7*7}",
        "' OR 1=1 --", "\x00", "\x1b]0;title\x07", "\u202egnp.exe", "\u2066\u2067\u2069", "שלום מה שלומך", "مرحبا",
        "\ud83d", "😀" * 50, "a\u0301" * 200, "\u2028\u2029", "%00%0a", "../../etc/passwd", "\ufeff", "NaN", "null",
        "\r\n\r\nHTTP/1.1 200 OK", "</script><svg/onload=alert(1)>", "\x7f\x80\x9b", "?" * 500, "\U000e0041", "\uffff",
    ]  # fmt: skip
    yield from nasty
    while True:
        yield "".join(rng.choice(nasty) + rng.choice(["", " sea ", "\t"]) for _ in range(rng.randint(1, 9)))


@pytest.mark.slow
def test_hostile_questions(page):
    for place, question in zip(range(80), hostile_questions(), strict=False):
        body = json.dumps({"question": question, "number": None, "given": {"budget": 40, "iterations": 1 + place % 5}})
        answer = page.post("/api/search", content=body, headers={"content-type": "application/json"})
        text = answer.content.decode("utf-8")
        assert answer.headers["content-type"] == "application/json"
        # Nothing of it reaches the page as it is: no control character, no half of a character.
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", text)
        if question.strip():
            assert answer.status_code == (200 if len(question) <= MAX_QUESTION else 400)
            assert answer.json()["tokens"] <= 40
        else:
            assert answer.status_code == 400 and "question is empty" in answer.json()["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"[]", b"{", b"[" * MAX_BODY,
        b'{"question": "%s", "number": null, "given": {}}' % (b"a" * (MAX_QUESTION + 1)),
        b"\xff\xfe", b'{"question": "sea", "number": null}',
        b'{"question": "sea", "number": true, "given": {}}', b'{"question": "sea", "number": null, "given": []}',
        b'{"question": "sea", "number": null, "given": {"budget": 1e99}}',
        b'{"question": "sea", "number": null, "given": {"cost_weight": NaN}}',
        b'{"question": "sea", "number": null, "given": {"unit": {"a": []}}}',
    ],
)  # fmt: skip
def test_broken_requests_are_refused(page, body):
    answer = page.post("/api/search", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": ""}, 403),
        ({"host": "localhost:9"}, 200),
        ({"host": "[::1]:8383"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://127.0.0.1:8383"}, 200),
    ],
)
def test_other_names_and_origins_and_forms_of_other_sites_are_refused(page, headers, status):
    assert page.get("/api/about", headers=headers).status_code == status
    assert page.post("/api/search", content=b"{}", headers={"content-type": "text/plain", **headers}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/api/about", "/nowhere"])
def test_every_answer_keeps_scripts_and_connections_here(page, path):
    headers = page.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_the_page_names_no_other_address_and_makes_no_markup():
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|\bon\w+=\"", text)


def test_a_fault_is_reported_without_its_traceback(small_data, caplog):
    bench = make_workbench(small_data, reader=FixedReader(ZeroDivisionError()))
    asked = {"question": bench.source.queries[0].question, "number": 0, "given": {}}
    answer = client(bench).post("/api/answer", json=asked)
    assert "error" in answer.json() and "ZeroDivision" not in answer.text
    assert "ZeroDivisionError" in caplog.text


class Writer(FirstWords):
    """Writes its answer word by word."""

    def stream(self, query, context):
        if "broken" in query:
            yield "The "
            raise ModelError("the server went away")
        yield from ("The\x1b ", "sea.")
        return Answer("The sea.", None)


def heard(page, question):
    body = {"question": question, "number": None, "given": {"budget": 40}}
    with page.stream("POST", "/api/answer", json=body) as answer:
        return answer, [json.loads(line) for line in answer.iter_lines()]


def test_an_answer_is_heard_while_it_is_written(small_data, own_index):
    with client(make_workbench(small_data, own_index, reader=Writer())) as page:
        answer, lines = heard(page, "How salty is the sea?")
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert lines[:2] == [{"piece": "The\\x1b "}, {"piece": "sea."}]
        [last] = lines[2:]
        assert last["answer"] == "The sea."
        # What was read before is not written again.
        assert [line.get("piece") for line in heard(page, "How salty is the sea?")[1]] == [None]


def test_what_goes_wrong_while_an_answer_is_written_is_its_last_line(small_data, own_index):
    with client(make_workbench(small_data, own_index, reader=Writer())) as page:
        _, lines = heard(page, "broken sea?")
        assert lines == [{"piece": "The "}, {"error": "the server went away"}]
        assert heard(page, " ")[1][0]["error"]
        assert page.post("/api/answer", json={"question": "sea"}).status_code == 400


class Silent:
    """Begins an answer, and is silent until it may end."""

    name = "silent"

    def __init__(self):
        self.begun, self.may_end, self.closed = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)

    def answer(self, query, context):
        raise NotImplementedError

    def stream(self, query, context):
        try:
            self.begun.release()
            assert self.may_end.wait(60)
            for _ in range(100):
                yield "word "
            return Answer("word", None)
        finally:
            self.closed.release()


@pytest.mark.timeout(60)
def test_silent_models_and_closed_pages_keep_nobody_waiting(small_data, own_index):
    reader = Silent()
    given = {"number": None, "given": {"budget": 40}}
    with serving(make_app(make_workbench(small_data, own_index, reader=reader))) as url:
        for number in range(2 * AT_ONCE):
            # Each page is closed while the model is silent, and leaves its place to the next.
            closed = http.client.HTTPConnection(url.split("/")[2])
            body = json.dumps({"question": f"How salty is sea {number}?", **given})
            closed.request("POST", "/api/answer", body, {"Content-Type": "application/json"})
            assert reader.begun.acquire(timeout=10)
            closed.close()
        about = httpx.get(f"{url}api/about", timeout=10)
        found = httpx.post(f"{url}api/search", json={"question": "How salty is sea 0?", **given}, timeout=10)
        assert (about.status_code, found.status_code) == (200, 200)
        reader.may_end.set()
        # An answer that nobody waits for is given up.
        assert all(reader.closed.acquire(timeout=10) for _ in range(2 * AT_ONCE))


def test_a_page_for_others_answers_to_its_own_names(small_data):
    with client(make_workbench(small_data), host="box") as page:
        for host, status in (("evil.example:8383", 403), ("192.168.0.7:8383", 200), ("box", 200)):
            assert page.get("/api/about", headers={"host": host}).status_code == status


def test_questions_without_candidates_need_an_index(tmp_path):
    write_folder(tmp_path, [{"id": "a", "text": "sea"}], [{"id": "q", "question": "sea?"}])
    with pytest.raises(InputError, match="corag index --data"):
        workbench_of(AppConfig(data=str(tmp_path)))


@pytest.mark.slow
def test_the_page_is_served_until_it_is_stopped(small_data):
    with served("app", "--data", small_data) as server:
        assert server.said.startswith("page at http://127.0.0.1:")
        assert httpx.get(f"{server.url}api/about", timeout=60).json()["questions"] == 12
    assert server.said.count("\n") == 1
