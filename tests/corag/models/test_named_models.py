"""Models that users name: by folder and by name on the hub, with code of their own, and what cannot be loaded."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import corag
from corag.errors import ModelError
from corag.models.encoders import encoder_named
from corag.models.engine import quiet
from corag.models.runtime import resolve_device
from corag.rerankers.cross_encoder import CrossEncoder
from corag.testing import EmbedderContract
from tests.corag.models.worlds import (
    BGE,
    NEED_CODE,
    change_json,
    put_on_hub,
    save_bert,
    save_sentence_transformer,
    small_hub,
)

pytestmark = pytest.mark.slow

QUESTION = "Which river flows through the capital?"
PASSAGES = ["Berlin is the capital.", "The Spree, a river, flows there!", "Bananas."]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A cache of the hub with a small model under every known name, and others."""
    folder, cache = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("hub")
    with small_hub(folder, cache):
        put_on_hub(cache, "cross-encoder/tiny", save_bert(folder / "bert"))
        save_sentence_transformer(folder / "mean")
        yield folder


def test_a_model_is_an_encoder_by_its_folder(models):
    folder = str(models / "mean" / "whole")
    encoder = encoder_named(folder, resolve_device("embedder", backend="torch"))
    expected = corag.embedder(folder).embed(PASSAGES)
    np.testing.assert_allclose(encoder.vectors(PASSAGES), expected, atol=1e-5)
    np.testing.assert_allclose([text.vector for text in encoder.encoded(PASSAGES)], expected, atol=1e-5)
    values = corag.reranker("late", encoder=Path(folder)).score(QUESTION, [QUESTION, *PASSAGES])
    assert values.argmax() == 0
    assert values[0] == pytest.approx(1)


def by_transformers(folder, texts, sign=1.0):
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer([QUESTION] * len(texts), texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        return torch.sigmoid(sign * model(**inputs).logits[:, 0]).numpy()


@pytest.mark.parametrize("name", BGE)
def test_a_known_reranker_is_built_by_its_name(models, name):
    reranker = corag.reranker(name)
    assert isinstance(reranker, CrossEncoder)
    assert (reranker.name, reranker.max_tokens) == (name, 62)
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(by_transformers(models / "xlm", PASSAGES), abs=1e-5)


@pytest.mark.parametrize("name", NEED_CODE)
def test_code_of_a_known_reranker_runs_only_when_allowed(models, monkeypatch, name):
    # Only code that comes with a model sets it from here on.
    monkeypatch.delenv("OWN_CODE_RAN", raising=False)
    for module in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ModelError, match="trust_remote_code"):
        corag.reranker(name)
    assert "OWN_CODE_RAN" not in os.environ
    reranker = corag.reranker(name, trust_remote_code=True)
    assert os.environ["OWN_CODE_RAN"] == "yes"
    # Its code gives the negative of the logit that BERT would give.
    expected = by_transformers(models / "bert", PASSAGES, sign=-1.0)
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"\x00" * 99),
        ("config.json", b"{"),
        ("config.json", {"id2label": {"0": "a", "1": "b"}}),
        ("config.json", {"hidden_size": 64}),
        ("config.json", {"architectures": ["BertModel"]}),
    ],
)
@pytest.mark.filterwarnings("ignore:Passing `generation_config`")
def test_a_broken_model_says_which(models, tmp_path, file, content):
    broken = shutil.copytree(models / "bert", tmp_path / "variant") / file
    if isinstance(content, bytes):
        broken.write_bytes(content)
    else:
        change_json(broken, **content)
    with pytest.raises(ModelError, match="variant"):
        CrossEncoder(model=tmp_path / "variant")


@pytest.mark.parametrize("build", [corag.reranker, corag.embedder])
def test_a_name_out_of_reach_says_how_to_get_it(models, build):
    with pytest.raises(ModelError, match="hf download some/model"):
        build("some/model")


class TestEmbedders(EmbedderContract):
    @pytest.fixture(params=["minilm", "a folder", "bge-m3"])
    def embedder(self, models, request):
        return corag.embedder(str(models / "mean" / "whole") if request.param == "a folder" else request.param)


def test_of_a_pickle_only_tensors_are_read(models, tmp_path):
    folder = shutil.copytree(models / "m3", tmp_path / "evil")
    torch.save({"weight": Path("made by a pickle")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="evil"):
        corag.embedder(str(folder))


def test_flag_embedding_gives_the_same_values(models):
    library = pytest.importorskip("FlagEmbedding")
    with quiet():
        m3 = library.BGEM3FlagModel(str(models / "m3"), use_fp16=False, devices="cpu")
        vectors = m3.encode(PASSAGES, max_length=62)["dense_vecs"]
        cross = library.FlagReranker(str(models / "xlm"), use_fp16=False, devices="cpu", max_length=62)
        values = cross.compute_score([(QUESTION, text) for text in PASSAGES], normalize=True)
    np.testing.assert_allclose(corag.embedder("bge-m3").embed(PASSAGES), vectors, atol=1e-5)
    np.testing.assert_allclose(corag.reranker("BAAI/bge-reranker-v2-m3").score(QUESTION, PASSAGES), values, atol=1e-5)
