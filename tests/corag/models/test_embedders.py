"""Embedders on real models: the packaged MiniLM, and tiny random ones saved by a fixture."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import corag
from corag.errors import InputError, ModelError
from corag.models.embedders import BgeM3Embedder, MiniLMEmbedder, SentenceTransformerEmbedder
from corag.text.tokens import model_folder
from corag.types import Embedder

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEXTS = ["Berlin is the capital of Germany.", "", "rivers " * 200, "漢字 👩‍👩‍👧"]
SIZES = {
    "vocab_size": 30522, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 64,
}  # fmt: skip


def save_tiny(folder: Path, config: object, model_class: type) -> Path:
    """Save a random model beside MiniLM's tokenizer."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model_class(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(model_folder() / name, folder / name)
    return folder


def save_sentence_transformer(folder: Path) -> Path:
    """Save a random sentence-transformers model, and return its folder."""
    library = pytest.importorskip("sentence_transformers")
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    bert = save_tiny(folder / "bert", transformers.BertConfig(**SIZES), transformers.BertModel)
    parts = [modules.Transformer(str(bert)), modules.Pooling(SIZES["hidden_size"])]
    library.SentenceTransformer(modules=parts, device="cpu").save(str(folder / "whole"))
    return folder / "whole"


@pytest.fixture(scope="module")
def tiny_sentence_transformer(tmp_path_factory) -> Path:
    return save_sentence_transformer(tmp_path_factory.mktemp("sentence-transformer"))


@pytest.fixture(scope="module")
def tiny_m3(tmp_path_factory) -> Path:
    config = transformers.XLMRobertaConfig(**SIZES)
    return save_tiny(tmp_path_factory.mktemp("m3"), config, transformers.XLMRobertaModel)


@pytest.fixture(scope="module", params=["minilm", "sentence-transformers", "bge-m3"])
def embedder(request) -> Embedder:
    if request.param == "minilm":
        return MiniLMEmbedder()
    if request.param == "sentence-transformers":
        model = request.getfixturevalue("tiny_sentence_transformer")
        return SentenceTransformerEmbedder(model=str(model), device="cpu", batch_tokens=64)
    return BgeM3Embedder(model=str(request.getfixturevalue("tiny_m3")), backend="torch", max_tokens=60)


# --- What every embedder does ---


def test_one_unit_vector_per_text(embedder):
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert isinstance(embedder, Embedder)


def test_no_text_gives_no_vector(embedder):
    vectors = embedder.embed([])
    assert (vectors.shape, vectors.dtype) == ((0, embedder.dimension), np.float32)


def test_neighbours_and_order_do_not_matter(embedder):
    together = embedder.embed(TEXTS)
    np.testing.assert_allclose(np.concatenate([embedder.embed([text]) for text in TEXTS]), together, atol=1e-5)
    np.testing.assert_allclose(embedder.embed(TEXTS[::-1])[::-1], together, atol=1e-5)


def test_a_tuple_is_as_good_as_a_list(embedder):
    np.testing.assert_allclose(embedder.embed(tuple(TEXTS[:2])), embedder.embed(TEXTS[:2]), atol=1e-6)


# --- Each one ---


def test_minilm_is_the_default():
    assert (corag.embedder().name, corag.embedder().dimension) == ("minilm", 384)
    assert isinstance(corag.embedder(), MiniLMEmbedder)
    with pytest.raises(InputError, match="backend is 'cuda'; it must be one of"):
        corag.embedder("minilm", backend="cuda")


def test_a_sentence_transformer_folder_is_loaded_by_its_path(tiny_sentence_transformer):
    embedder = corag.embedder(str(tiny_sentence_transformer), device="cpu")
    assert isinstance(embedder, SentenceTransformerEmbedder)
    assert (embedder.name, embedder.dimension) == (str(tiny_sentence_transformer), 16)
    library = pytest.importorskip("sentence_transformers")
    plain = library.SentenceTransformer(str(tiny_sentence_transformer), device="cpu")
    expected = plain.encode(TEXTS, show_progress_bar=False)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder.embed(TEXTS), expected, atol=1e-5)


def test_minilm_through_sentence_transformers_is_the_same_model():
    texts = [text for text in TEXTS if len(text) < 100]
    other = SentenceTransformerEmbedder(model=str(model_folder()), device="cpu")
    np.testing.assert_allclose(other.embed(texts), MiniLMEmbedder().embed(texts), atol=1e-4)


# --- What cannot be loaded ---


@pytest.mark.parametrize("name", ["nobody/no-such-model", "not a name!"])
def test_an_unknown_name_without_a_network_names_the_remedy(name):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelError, match=rf"(?s)'{name}' cannot be loaded; .*local folder.*'minilm', which needs no"):
        corag.embedder(name)


def test_an_empty_name_is_no_name():
    with pytest.raises(InputError, match="embedder '' is unknown; the names are minilm, "):
        corag.embedder("")


@pytest.mark.parametrize("kept_bytes", [0, 4, 1000])
def test_damaged_weights_are_a_model_error(tiny_sentence_transformer, tmp_path, kept_bytes):
    copy = tmp_path / "damaged"
    shutil.copytree(tiny_sentence_transformer, copy)
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept_bytes])
    with pytest.raises(ModelError, match="cannot be loaded"):
        SentenceTransformerEmbedder(model=str(copy))


def test_an_empty_folder_is_a_model_error(tmp_path):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ModelError, match="cannot be loaded"):
        corag.embedder(str(tmp_path))
