"""The service over HTTP: what clients of rerank servers send and read, what is refused, and what a disconnect stops."""

import http.client
import json
import shlex
import threading
import time
from contextlib import suppress

import httpx
import pytest
from starlette.testclient import TestClient

import corag
from corag.ambient import check_cancelled
from corag.index import ChunkIndex
from corag.registry import SELECTORS
from corag.selectors.raptor.build import update_tree
from corag.selectors.raptor.tree import Node, RaptorTree
from corag.serve.api import AT_ONCE, MAX_BODY, MAX_PENDING, MAX_TEXTS, make_api
from corag.serve.service import Service
from tests.corag.serve.worlds import serving
from tests.corag.test_readme import blocks
from tests.paths import ROOT

QUERY = "How high is Everest, and where is it?"
TEXTS = [
    "Cats sleep a lot.",
    "Mount Everest is 8,849 metres high. It is cold.",
    "Everest lies on the border of Nepal and China.",
]
LOCAL = "http://127.0.0.1:8384"


@pytest.fixture(scope="module")
def api():
    with TestClient(make_api(Service(method="naive(reranker=bm25)", budget=100)), base_url=LOCAL) as client:
        yield client


def rerank(client, **given):
    reply = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS, **given})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_every_document_has_its_score_for_clients_of_rerank_servers(api):
    documents = [TEXTS[0], TEXTS[1], "", TEXTS[2], TEXTS[1]]
    chunks = [corag.Chunk(text, text) for text in TEXTS]
    own = corag.reranker("bm25").scorer(QUERY, chunks)([(0,), (1,), (2,)])
    expected = pytest.approx([own[0], own[1], 0.0, own[2], own[1]], abs=1e-6)
    asked = {"query": QUERY, "documents": documents, "model": "rerank", "top_n": len(documents)}
    reply = api.post("/v1/rerank", json=asked).json()
    # Open WebUI and RAGFlow read the score of each index, RAGFlow the tokens, too.
    scores = {result["index"]: result["relevance_score"] for result in reply["results"]}
    assert len(reply["results"]) == 5 and [scores[index] for index in range(5)] == expected
    assert reply["usage"]["total_tokens"] == sum(corag.tokens().count([QUERY, *TEXTS]))
    # Dify reads the text of each document.
    reply = api.post("/rerank", json={**asked, "top_n": None, "return_documents": True}).json()
    assert [result["index"] for result in reply["results"]] == [1, 4, 3, 0, 2]
    assert all(result["document"]["text"] == documents[result["index"]] for result in reply["results"])
    # XInferenceRerank of RAGFlow sends a string.
    asked = {"query": QUERY, "documents": documents, "return_documents": "true", "return_len": "true"}
    assert api.post("/v1/rerank", json=asked).json()["results"] == reply["results"]


def test_the_form_that_rerank_servers_share(api):
    documents = [TEXTS[0], {"text": TEXTS[1]}, TEXTS[2]]
    reply = rerank(api, documents=documents, max_tokens_per_doc=4096, top_n=None)
    scores = [one["relevance_score"] for one in reply["results"]]
    assert [one["index"] for one in reply["results"]] == [1, 2, 0] and scores == sorted(scores, reverse=True)
    assert reply["id"] and all("document" not in one for one in reply["results"])
    assert [one["index"] for one in rerank(api, top_n=1)["results"]] == [1]
    for path in ("/rerank", "/v2/rerank"):
        assert api.post(path, json={"query": QUERY, "documents": TEXTS}).json()["results"] == rerank(api)["results"]
    assert rerank(api, documents=[])["results"] == [] == rerank(api, documents=[], budget_tokens=9)["results"]
    assert [one["relevance_score"] for one in rerank(api, documents=["", " "])["results"]] == [0, 0]
    spaced = rerank(api, documents=[f"{TEXTS[1]}\n", TEXTS[1], TEXTS[0]])["results"]
    assert [one["index"] for one in spaced] == [0, 1, 2] and spaced[0]["relevance_score"] == spaced[1][
        "relevance_score"
    ]


def test_the_reply_names_what_scored(api):
    for foreign in ("rerank-v3.5", "BAAI/bge-reranker-v2-m3", "jina(", "cross-encoder(model=/tmp)", "", None):
        assert rerank(api, model=foreign)["model"] == "bm25", foreign
    cosine = rerank(api, model="minilm-cosine")
    assert cosine["model"] == "minilm-cosine" and cosine["results"] != rerank(api)["results"]
    assert rerank(api, model="rerank-v3.5", budget_tokens=90)["model"] == "naive"
    # By default the value by which `/v1/select` chooses.
    plain = Service()
    assert plain.rerank(QUERY, TEXTS)["model"] == plain.select(QUERY, TEXTS)["trace"]["reranker"] == "fused"


def test_a_budget_a_unit_and_a_method_of_the_request(api):
    chosen = rerank(api, budget_tokens=16, return_documents=True)
    [result] = chosen["results"]
    assert result == {"index": 1, "relevance_score": result["relevance_score"], "document": {"text": TEXTS[1]}}
    assert chosen["usage"]["total_tokens"] == chosen["selection"]["cost_tokens"] <= 16
    [result] = rerank(api, budget_tokens=10, unit="sentence", return_documents=True)["results"]
    assert result["document"]["text"] == "Mount Everest is 8,849 metres high."
    # Without a reranker, the cosine; without that, the rank.
    scores = [one["relevance_score"] for one in rerank(api, method="top-k", budget_tokens=100)["results"]]
    assert len(scores) == 3 and all(-1 <= score <= 1 for score in scores) and scores == sorted(scores, reverse=True)
    ranks = rerank(api, method="full", budget_tokens=100)["results"]
    assert [one["relevance_score"] for one in ranks] == [1, 1 / 2, 1 / 3]
    # A unit of the request counts in place of the server's.
    sentences = Service(method="full(unit=sentence)")
    assert len(sentences.select(QUERY, TEXTS)["chunks"]) == 4
    assert len(sentences.select(QUERY, TEXTS, unit="passage")["chunks"]) == 3


def test_a_tree_of_the_server_ranks_no_documents(tmp_path):
    node = Node("0", "Everest is a mountain.", 0, (), ("0",))  # the id that the first document has here
    RaptorTree((node,), corag.embedder().embed([node.text]), "minilm").save(tmp_path)
    with TestClient(make_api(Service(method=f"raptor(tree={tmp_path})")), base_url=LOCAL) as client:
        refused = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS, "budget_tokens": 90})
        assert refused.status_code == 400 and "not from the documents" in refused.text
        selected = client.post("/v1/select", json={"query": QUERY, "texts": TEXTS}).json()
        assert [chunk["index"] for chunk in selected["chunks"]] == [None]


def test_a_selection_is_that_of_python(api):
    texts = [{"content": text, "id": f"n{position}", "page": position} for position, text in enumerate(TEXTS)]
    reply = api.post("/v1/select", json={"query": QUERY, "texts": texts, "budget_tokens": 30}).json()
    same = corag.select(QUERY, texts, 30, method="naive", reranker="bm25")
    assert (reply["text"], reply["cost_tokens"], reply["value"]) == (same.text, same.cost_tokens, same.value)
    assert [chunk["id"] for chunk in reply["chunks"]] == list(same.ids)
    for chunk in reply["chunks"]:
        start, end = chunk["span"]
        assert reply["text"][start:end] == chunk["text"] == TEXTS[chunk["index"]]
        assert chunk["metadata"] == {"page": chunk["index"]} and chunk["tokens"] > 0 and 0 <= chunk["value"] <= 1
    assert reply["trace"]["reranker"] == "bm25"
    sentences = api.post("/v1/select", json={"query": QUERY, "texts": TEXTS, "unit": "sentence"}).json()
    assert [chunk["index"] for chunk in sentences["chunks"]].count(1) == 2


def test_without_texts_the_index_is_searched(tmp_path):
    chunks = [corag.Chunk(f"d{position}", text) for position, text in enumerate(TEXTS)]
    index = ChunkIndex.build(tmp_path / "index", chunks, corag.embedder())
    asked = {"query": "Where does Everest lie?"}
    with TestClient(make_api(Service(index=index, method="top-k(k=1)")), base_url=LOCAL) as client:
        reply = client.post("/v1/select", json=asked).json()
        assert [chunk["id"] for chunk in reply["chunks"]] == ["d2"] and reply["chunks"][0]["index"] is None
        # As `corag ask`, it takes the tree beside the index, not one over the candidates, whose texts have no spans.
        update_tree(index, corag.embedder(), corag.summarizer("extractive"))
        reply = client.post("/v1/select", json={**asked, "method": "raptor"}).json()
    assert reply["chunks"] and all(chunk["span"] for chunk in reply["chunks"])


def test_the_description_names_what_is_accepted(api):
    described = api.get("/openapi.json").json()
    for path, fields in (("/v1/rerank", {"documents", "top_n", "budget_tokens"}), ("/v1/select", {"texts", "unit"})):
        reference = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        schema = described["components"]["schemas"][reference.rpartition("/")[2]]
        assert fields <= set(schema["properties"]) and "query" in schema["required"]
        assert all(field["description"] for field in schema["properties"].values())
    assert api.get("/health").json()["status"] == "ok"
    named = [model["id"] for model in api.get("/v1/models").json()["data"]]
    assert "bm25" in named and rerank(api, model="bm25")["model"] == "bm25"


def test_what_the_page_shows(api):
    page = ROOT / "docs" / "serve.md"
    for block in blocks(page, "bash"):
        words = shlex.split(block)
        assert words[1].startswith(f"{LOCAL}/v1/")
        reply = api.post(words[1], content=words[-1], headers={"Content-Type": "application/json"})
        assert reply.status_code == 200, reply.text
    shown = json.loads(blocks(page, "json")[0])
    assert set(shown) == set(rerank(api)) and set(shown["results"][0]) == set(rerank(api)["results"][0])


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/rerank", {"query": QUERY}, "documents"),
        ("/v1/rerank", {"query": QUERY, "documents": [{"title": "a"}]}, "no text"),
        ("/v1/rerank", {"query": QUERY, "documents": TEXTS, "top_n": 0}, "top_n"),
        ("/v1/rerank", {"query": QUERY, "documents": TEXTS, "method": "mmr"}, "send budget_tokens"),
        ("/v1/rerank", {"query": QUERY, "documents": ["a"] * (MAX_TEXTS + 1)}, str(MAX_TEXTS)),
        ("/v1/select", {"query": "a" * 20_000, "texts": TEXTS}, "query"),
        ("/v1/select", {"query": " ", "texts": TEXTS}, "question is empty"),
        ("/v1/select", {"query": QUERY, "texts": TEXTS, "unit": "word"}, "unit"),
        ("/v1/select", {"query": QUERY, "texts": ["\ud800"]}, "surrogate"),
        ("/v1/select", {"query": QUERY, "texts": [{"text": "a", "metadata": {"a": float("nan")}}]}, "finite"),
        ("/v1/select", {"query": QUERY, "texts": [5]}, "body.texts.0: Input should be a valid string;"),
        ("/v1/select", None, "application/json"),
        ("/v1/select", {"query": QUERY}, "--index"),
        ("/v1/select", {"query": QUERY, "texts": TEXTS, "budget": 3}, "budget"),
        # What a file may not name (test_trust.py), a request may not, either.
        ("/v1/select", {"query": QUERY, "texts": TEXTS, "method": "crag(summarizer=ollama)"}, "the request"),
    ],
)
def test_mistakes_are_named(api, path, body, named):
    reply = api.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert reply.status_code == 400 and named in reply.json()["error"]


def test_long_bodies_other_names_and_types_are_refused(api):
    long = json.dumps({"query": QUERY, "texts": ["a" * MAX_BODY]})
    assert api.post("/v1/select", content=long, headers={"content-type": "application/json"}).status_code == 413
    assert api.get("/health", headers={"host": "evil.example"}).status_code == 400
    # What a page of another origin can send without asking.
    plain = json.dumps({"query": QUERY, "texts": TEXTS})
    assert api.post("/v1/select", content=plain, headers={"content-type": "text/plain"}).status_code == 400
    reply = api.get("/v1/nothing")
    assert reply.status_code == 404 and reply.json()["error"]


def test_clients_need_the_key():
    with TestClient(make_api(Service(method="top-k"), key="sk-right"), base_url="http://any.name") as client:
        asked = {"query": QUERY, "texts": TEXTS}
        given = {
            "Bearer sk-right": 200,
            "bearer sk-right": 200,
            "sk-right": 401,
            "Bearer sk-righ": 401,
            "Bearer é": 401,
        }
        for value, status in given.items():
            headers = {"authorization": value.encode("latin-1")}
            assert client.post("/v1/select", json=asked, headers=headers).status_code == status, value
        assert client.post("/v1/select", json=asked).status_code == 401
        assert client.get("/health").status_code == 200


def test_texts_whose_ids_collide_are_both_read(api):
    # The first 48 bits of their SHA-256 are the same.
    body = {"texts": ["K2 note 18703218.", "K2 note 21720953."], "budget_tokens": 60, "method": "full"}
    reply = api.post("/v1/select", json={"query": "K2 note", **body}).json()
    assert [chunk["index"] for chunk in reply["chunks"]] == [0, 1]
    assert len({chunk["id"] for chunk in reply["chunks"]}) == 2


class Endless:
    """A selector that goes on until it is stopped."""

    name = "endless"

    def __init__(self):
        self.begun, self.stopped = threading.Semaphore(0), threading.Semaphore(0)

    def select(self, query, candidates, budget_tokens):
        self.begun.release()
        try:
            while True:
                check_cancelled()
                time.sleep(0.01)
        finally:
            self.stopped.release()

    select_many = aselect = select


@pytest.mark.timeout(60)
def test_a_client_that_goes_frees_its_worker_and_many_are_told_to_come_back(monkeypatch):
    endless = Endless()
    monkeypatch.setitem(SELECTORS.parts, "endless", lambda: endless)
    asked = {"query": QUERY, "texts": TEXTS}
    with serving(make_api(Service(method="naive(reranker=bm25)"))) as url:
        clients = [http.client.HTTPConnection(url.split("/")[2]) for _ in range(MAX_PENDING)]
        for client in clients:
            body = json.dumps({**asked, "method": "endless"})
            client.request("POST", "/v1/select", body, {"Content-Type": "application/json"})
        assert all(endless.begun.acquire(timeout=20) for _ in range(AT_ONCE))
        assert httpx.get(f"{url}health", timeout=20).status_code == 200
        busy = None
        while busy is None or busy.status_code != 503:
            with suppress(httpx.TimeoutException):  # it waits like the others
                busy = httpx.post(f"{url}v1/select", json=asked, timeout=0.5)
        assert "busy" in busy.json()["error"] and busy.headers["retry-after"]
        for client in clients:
            client.close()
        assert all(endless.stopped.acquire(timeout=20) for _ in range(AT_ONCE))
        deadline = time.monotonic() + 20
        while httpx.post(f"{url}v1/select", json=asked, timeout=20).status_code != 200:
            assert time.monotonic() < deadline
