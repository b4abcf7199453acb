"""Embedders on servers, over real HTTP: unit vectors in order, or one clear error."""

import re
import shlex

import numpy as np
import pytest

import corag
from corag.cli.main import main
from corag.errors import ModelError
from corag.models.embedders import OllamaEmbedder, OpenAIEmbedder
from corag.registry import EMBEDDERS
from corag.types import Embedder
from corag.untrusted import check_untrusted
from tests.chat_server import EMBEDDINGS, ChatServer
from tests.experiments.worlds import write_folder

TEXTS = ["The Spree flows.", "", "e" * 7, "Berlin"]


@pytest.fixture(params=["ollama", "openai"])
def embedder_for(request):
    if request.param == "ollama":
        return lambda server, **settings: OllamaEmbedder(host=server.host, **{"model": "tiny", **settings})
    return lambda server, **settings: OpenAIEmbedder(
        base_url=server.base_url, retries=0, **{"model": "tiny", **settings}
    )


def test_each_text_gets_its_unit_vector(embedder_for):
    with ChatServer(models=("tiny",)) as server:
        embedder = embedder_for(server, batch=3)
        vectors = embedder.embed(TEXTS)
        assert isinstance(embedder, Embedder) and embedder.dimension == 3
        assert embedder.embed([]).shape == (0, 3)
    asked = [body["input"] for path, body in server.requests if path in EMBEDDINGS]
    assert asked == [["dimension"], ["The Spree flows.", " ", "e" * 7], ["Berlin"]]
    expected = np.array([[16, 3, 2], [1, 0, 2], [7, 7, 2], [6, 1, 2]], dtype=float)
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    assert vectors.dtype == np.float32


def test_a_server_on_this_machine_is_asked_without_the_proxy(embedder_for, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with ChatServer(models=("tiny",)) as server:
        assert embedder_for(server).embed(["Spree"]).shape == (1, 3)


def test_an_index_remembers_the_model_and_is_searched_by_it(embedder_for, tmp_path):
    chunks = [corag.Chunk(str(row), text) for row, text in enumerate(["Spree e", "Havel", "eeee e e"])]
    with ChatServer(models=("tiny",)) as server:
        embedder = embedder_for(server)
        index = corag.ChunkIndex.build(tmp_path / "index", chunks, embedder)
        assert index.manifest.embedder_name == embedder.name
        [found, *_] = index.retrieve("eeee e e", embedder.embed(["eeee e e"])[0], 2, "vector")
        assert found.chunk.id == "2"
    # A file may name no server: who opens the index says where it is.
    with pytest.raises(ModelError, match="the index"):
        check_untrusted(EMBEDDERS, index.manifest.embedder_name, "the index")


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    data, index = str(write_folder(tmp_path / "data")), str(tmp_path / "index")
    with ChatServer(models=("tiny",)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert main(["index", "--data", data, "--out", index, "--embedder", "openai(model=tiny)", "--quiet"]) == 0
        hint = re.search("ask it with: corag (.*)", capsys.readouterr().out)[1]
        assert main(["ask", "Who?", "--index", index]) == 2
        assert "may not choose a part that asks a server; if you trust it, give the embedder" in capsys.readouterr().err
        assert main(shlex.split(hint)) == 0, capsys.readouterr().err
        server.requests.clear()
        command = ["evaluate", "--data", data, "--split", "dev", "--pool", "corpus", "--embedder", "openai(model=tiny)"]
        command += ["--methods", "top-k", "--budget", "64", "--reader", "none", "--latency_questions", "0", "--quiet"]
        assert main(command) == 0, capsys.readouterr().err
        sizes = [len(body["input"]) for path, body in server.requests if path in EMBEDDINGS]
    # The corpus is one request.
    assert max(sizes) > 3 and len(sizes) <= 5
