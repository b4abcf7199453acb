"""Tokenizers by the names of models: files, the hub's cache, tiktoken."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import socket
from pathlib import Path

import huggingface_hub
import pytest
import tiktoken
import tiktoken.load
import tiktoken.registry

import corag
from corag.errors import InputError, ModelError, ReaderError
from corag.readers.chat import OllamaReader, OpenAIReader
from corag.text.tokens.models import _encoding, tokens_for_model
from tests.chat_server import ChatServer, Reply
from tests.corag.models.worlds import put_on_hub
from tests.corag.text.tokens.worlds import made_encoding, save_word_tokenizer

TEXTS = ["the river", "", "the the\n\nthe"]


@pytest.fixture
def word_file(tmp_path) -> Path:
    (tmp_path / "model").mkdir()
    return save_word_tokenizer(tmp_path / "model")


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """An empty cache of the hub, without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


# --- Files and the hub ---


def test_a_tokenizer_file_is_counted_whole_and_bare(word_file):
    for part in (word_file, str(word_file), word_file.parent, f"huggingface(model={word_file})"):
        counter = corag.tokens(part)
        assert counter.count(["", "a", "a b c d e f g h i j"]).tolist() == [0, 1, 10] and counter.exact
    assert counter.name == str(word_file)


def test_a_model_without_a_tokenizer_file_is_loaded_by_transformers(hub, tmp_path):
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 2})
    )
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "a"]))
    put_on_hub(hub, "Someone/bert", folder)
    for part in (folder, "Someone/bert"):
        assert corag.tokens(part).count(TEXTS).tolist() == [2, 0, 3]


def test_a_hub_name_that_is_not_here_says_how_to_bring_it(hub):
    with pytest.raises(ModelError, match="hf download Else/where"):
        corag.tokens("Else/where")


def test_an_unknown_tokenizer_says_what_can_be_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("llama3.1:8b", "no/such/tokenizer.json", Path("nothing")):
        with pytest.raises(InputError, match="Qwen/Qwen3-8B"):
            corag.tokens(part)


# --- tiktoken ---


@pytest.fixture
def vocabularies(tmp_path, monkeypatch) -> Path:
    """The folder of tiktoken's vocabularies, empty; encodings that were loaded before are forgotten."""
    folder = tmp_path / "vocabularies"
    folder.mkdir()
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})

    def no_network(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr(socket, "create_connection", no_network)
    monkeypatch.setattr(tiktoken.load, "read_file", no_network)
    _encoding.cache_clear()
    yield folder
    _encoding.cache_clear()


def put_o200k(folder: Path, monkeypatch) -> None:
    """Place a small vocabulary where tiktoken would keep the one of gpt-4o."""
    pieces = made_encoding()._mergeable_ranks.items()
    lines = (f"{base64.b64encode(piece).decode()} {rank}" for piece, rank in pieces)
    name = hashlib.sha1(b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken").hexdigest()
    (folder / name).write_text("\n".join(lines))
    monkeypatch.setattr(tiktoken.load, "check_hash", lambda *_: True)


@pytest.mark.parametrize("part", ["gpt-4o", "tiktoken(model=gpt-4o)", "o3-mini"])
def test_a_model_of_openai_counts_by_its_encoding(vocabularies, monkeypatch, part):
    put_o200k(vocabularies, monkeypatch)
    counter = corag.tokens(part)
    assert counter.name == "tiktoken(encoding=o200k_base)"
    assert counter.count(["the the", "", "<|end|>"]).tolist() == [2, 0, 7]


@pytest.mark.parametrize("part", ["gpt-4o", "tiktoken(encoding=cl100k_base)"])
def test_without_the_vocabulary_and_a_network_the_error_says_what_to_do(vocabularies, part):
    with pytest.raises(ModelError, match="TIKTOKEN_CACHE_DIR"):
        corag.tokens(part)


# --- Models on a server ---


def test_a_served_model_counts_by_its_own_tokenizer_in_the_cache(hub, word_file):
    put_on_hub(hub, "Someone/words", word_file.parent)
    assert tokens_for_model("Someone/words").name == "Someone/words"
    assert tokens_for_model(str(word_file.parent)).exact


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o-mini", "gpt-oss:20b"])
def test_a_served_model_of_openai_counts_by_tiktoken(hub, vocabularies, monkeypatch, name):
    assert tokens_for_model(name) is None
    put_o200k(vocabularies, monkeypatch)
    assert tokens_for_model(name).name.startswith("tiktoken(encoding=o200k_")


def words_of(request):
    """As vLLM and llama.cpp answer, with words for tokens."""
    assert request["prompt"] == request["content"]
    return {"tokens": request["prompt"].split()}


def test_a_server_that_tells_its_tokens_is_asked_for_each_text_once(hub):
    with ChatServer(Reply("Paris"), models=("mine",), tokenizes=words_of) as server:
        counter = OpenAIReader(model="mine", base_url=server.base_url, retries=0).tokens
        assert counter.exact and counter.name == "openai/mine"
        for _ in range(2):
            assert counter.count(["a b", "a b", "c", ""]).tolist() == [2, 2, 1, 0]
        assert counter.count([]).shape == (0,)
        with pytest.raises(InputError, match="surrogate"):
            counter.count(["\ud800"])
    asked = [body["prompt"] for path, body in server.requests if path == "/tokenize"]
    assert sorted(asked) == ["", "a b", "c", "tokens"]
    with pytest.raises(ReaderError, match="mine"):
        counter.count(["new"])


def test_a_served_model_without_a_tokenizer_is_estimated_with_a_warning(hub, caplog):
    with caplog.at_level(logging.WARNING), ChatServer(models=("mine",)) as server:
        readers = OpenAIReader(model="mine", base_url=server.base_url, retries=0), OllamaReader(host=server.host)
        for reader in (*readers, *readers):
            assert (reader.tokens.name, reader.tokens.exact) == ("estimate", False)
    assert caplog.text.count("'mine'") == caplog.text.count("'llama3.1:8b'") == 1 and "--tokenizer" in caplog.text
