"""Tokenizers by the names of models: files, the hub's cache, tiktoken."""

import logging

import huggingface_hub
import pytest
import tiktoken

import corag
from corag.errors import ModelError
from corag.readers.chat import OllamaReader, OpenAIReader
from corag.text.tokens import _encoding, tokens_for_model
from tests.chat_server import ChatServer
from tests.corag.models.worlds import put_on_hub
from tests.corag.text.tokens.worlds import ASKING, made_encoding


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_tokenizer_file_is_counted_whole_and_bare():
    for part in (ASKING, str(ASKING), ASKING.parent, f"model(model={ASKING})"):
        counter = corag.tokens(part)
        assert counter.count(["", "a", "a b c d e f g h i j"]).tolist() == [0, 1, 10] and counter.exact
    assert counter.name == str(ASKING)


def test_a_folder_without_a_tokenizer_file_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        corag.tokens(tmp_path)


@pytest.mark.parametrize("name", ["gpt-4o", "openai/gpt-4o-mini", "gpt-oss:20b"])
def test_a_model_of_openai_counts_by_its_encoding(monkeypatch, name):
    monkeypatch.setattr(tiktoken, "get_encoding", made_encoding)
    _encoding.cache_clear()
    counter = tokens_for_model(name)
    assert counter.name.startswith("tiktoken(encoding=o200k_")
    assert counter.count(["the the", "", "<|end|>"]).tolist() == [2, 0, 7]
    _encoding.cache_clear()


def test_a_served_model_counts_by_its_own_tokenizer_in_the_cache(hub):
    put_on_hub(hub, "Someone/words", ASKING.parent)
    assert tokens_for_model("Someone/words").name == "Someone/words"
    assert tokens_for_model(str(ASKING.parent)).exact


def test_a_served_model_without_a_tokenizer_is_estimated_with_a_warning(hub, caplog):
    with caplog.at_level(logging.WARNING), ChatServer(models=("mine",)) as server:
        readers = OpenAIReader(model="mine", base_url=server.base_url, retries=0), OllamaReader(host=server.host)
        for reader in (*readers, *readers):
            assert (reader.tokens.name, reader.tokens.exact) == ("estimate", False)
    assert caplog.text.count("'mine'") == caplog.text.count("'llama3.1:8b'") == 1 and "--tokenizer" in caplog.text
