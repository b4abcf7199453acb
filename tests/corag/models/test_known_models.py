"""Rerankers and embedder known by name, on small models of their architectures placed in a cache of the hub."""

import logging
import os
import shutil
import sys
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import torch
import transformers

import corag
from corag.errors import InputError, ModelError
from corag.models.embedders import BgeM3Embedder
from corag.models.engine.checkpoint import code_repositories
from corag.models.engine.engine import quiet
from corag.models.known import KNOWN_RERANKERS, ModelCard, announce
from corag.rerankers.cross_encoder import CrossEncoder
from tests.corag.models.worlds import (
    GTE,
    JINA_V1,
    JINA_V2,
    NEED_CODE,
    change_json,
    put_on_hub,
    save_bert,
    save_causal_lm,
    save_gte,
    save_own_code,
    small_hub,
)

pytestmark = pytest.mark.slow

pytest.importorskip("openvino")

QUESTION = "Which river flows through the capital?"
PASSAGES = ["Berlin is the capital.", "The Spree, a river, flows there!", "Bananas."]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A cache of the hub with a small model under every known name, and others."""
    folder, cache = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("hub")
    with small_hub(folder, cache):
        put_on_hub(cache, "cross-encoder/tiny", save_bert(folder / "bert"))
        yield folder


@pytest.fixture
def no_code_yet(monkeypatch):
    """`OWN_CODE_RAN` is set from here on only by code that comes with a model."""
    monkeypatch.delenv("OWN_CODE_RAN", raising=False)
    for module in [name for name in sys.modules if name.startswith("transformers_modules")]:
        monkeypatch.delitem(sys.modules, module)


@pytest.fixture
def log(caplog):
    announce.cache_clear()
    caplog.set_level(logging.INFO, logger="corag")
    return caplog


def by_transformers(folder, texts, sign=1.0):
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer([QUESTION] * len(texts), texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        return torch.sigmoid(sign * model(**inputs).logits[:, 0]).numpy()


# --- Rerankers by name ---


@pytest.mark.parametrize("name", [name for name in KNOWN_RERANKERS if name not in NEED_CODE])
def test_a_known_reranker_is_built_by_its_name(models, name):
    reranker = corag.reranker(name, backend="torch")
    assert isinstance(reranker, CrossEncoder)
    assert reranker.name == name
    assert reranker.card is KNOWN_RERANKERS[name]
    assert reranker.max_tokens == 62
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(by_transformers(models / "xlm", PASSAGES), abs=1e-5)


@pytest.mark.parametrize("name", NEED_CODE)
def test_code_of_a_known_reranker_runs_only_when_allowed(models, no_code_yet, name):
    with pytest.raises(ModelError, match=rf"{name}' runs only with code .* see https://hugg.*give --trust_remote_code"):
        corag.reranker(name)
    assert "OWN_CODE_RAN" not in os.environ
    reranker = corag.reranker(name, trust_remote_code=True)
    assert os.environ["OWN_CODE_RAN"] == "yes"
    assert (reranker.name, reranker.place.backend, reranker.max_tokens) == (name, "torch", 512)
    # Its code gives the negative of the logit that BERT would give.
    expected = by_transformers(models / "bert", PASSAGES, sign=-1.0)
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-5)


def test_any_name_with_a_slash_and_any_folder_is_a_cross_encoder(models, monkeypatch):
    by_name = corag.reranker("cross-encoder/tiny", backend="torch")
    by_folder = corag.reranker(str(models / "bert"), backend="torch")
    assert (by_name.name, by_folder.name) == ("cross-encoder/tiny", "cross-encoder")
    assert by_name.identity == by_folder.identity
    assert by_name.card.window_tokens == 512
    assert by_name.card.licence == "not known here"
    monkeypatch.chdir(models)
    assert corag.reranker("bert", backend="torch").identity == by_name.identity


@pytest.mark.skipif(not hasattr(transformers, "GteConfig"), reason="this release of transformers has no GTE")
def test_gte_of_transformers_needs_no_code(models, tmp_path, monkeypatch):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path))
    folder = save_gte(tmp_path / "gte")
    reranker = corag.reranker(str(folder), backend="torch")
    assert reranker.max_tokens == 64
    expected = by_transformers(folder, PASSAGES)
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-5)
    assert corag.reranker(str(folder), backend="openvino").score(QUESTION, PASSAGES) == pytest.approx(
        expected, abs=1e-5
    )


@pytest.mark.parametrize("name", ["bge-reranker", "", "Cross-Encoder"])
def test_an_unknown_name_lists_names_and_known_models(name):
    with pytest.raises(InputError) as caught:
        corag.reranker(name)
    assert all(known in str(caught.value) for known in (*corag.RERANKERS.names, *KNOWN_RERANKERS, repr(name)))


def test_an_agent_may_name_a_known_model():
    assert all(corag.RERANKERS.knows(name) for name in (*corag.RERANKERS.names, *KNOWN_RERANKERS))
    assert not any(corag.RERANKERS.knows(name) for name in ("bge-reranker", ""))


def test_the_card_can_narrow_the_window(models, monkeypatch):
    name = "BAAI/bge-reranker-base"
    monkeypatch.setitem(KNOWN_RERANKERS, name, ModelCard(name, window_tokens=40))
    assert corag.reranker(name, backend="torch").max_tokens == 40
    with pytest.raises(InputError, match="max_tokens is 41; the model 'BAAI/bge-reranker-base' takes 1 to 40"):
        corag.reranker(name, backend="torch", max_tokens=41)


def test_window_and_licence_are_logged_once(models, log):
    for _ in range(2):
        corag.reranker("BAAI/bge-reranker-base", backend="torch")
        corag.reranker(JINA_V2, trust_remote_code=True)
    assert [record.message for record in log.records if record.levelname == "INFO"] == [
        "BAAI/bge-reranker-base: window 512 tokens, licence MIT",
        f"{JINA_V2}: window 1024 tokens, licence CC-BY-NC-4.0",
    ]
    (warning,) = [record.message for record in log.records if record.levelname == "WARNING"]
    assert (
        warning
        == f"{JINA_V2} is under CC-BY-NC-4.0, which forbids commercial use; see https://huggingface.co/{JINA_V2}"
    )


def test_cards():
    assert {name: card.window_tokens for name, card in KNOWN_RERANKERS.items()} == {
        JINA_V1: 8192, JINA_V2: 1024, GTE: 8192,
        "BAAI/bge-reranker-v2-m3": 8192, "BAAI/bge-reranker-large": 512, "BAAI/bge-reranker-base": 512,
    }  # fmt: skip
    assert [name for name, card in KNOWN_RERANKERS.items() if "NC" in card.licence] == [JINA_V2]
    assert {name for name, card in KNOWN_RERANKERS.items() if card.needs_own_code} == set(NEED_CODE)
    assert all(card.name == name and card.source.endswith(name) for name, card in KNOWN_RERANKERS.items())


# --- Models by folder, with code of their own ---


@pytest.mark.parametrize("model_type", ["bert", "nobody-knows"])
def test_code_in_a_folder_runs_only_when_allowed(models, no_code_yet, tmp_path, model_type):
    folder = save_own_code(tmp_path / "own", model_type=model_type)
    with pytest.raises(
        ModelError,
        match=r"own code has to run: if you trust it, give --trust_remote_code, or trust_remote_code=True in Python",
    ):
        CrossEncoder(model=folder, backend="torch")
    assert "OWN_CODE_RAN" not in os.environ
    reranker = CrossEncoder(model=folder, trust_remote_code=True)
    assert (os.environ["OWN_CODE_RAN"], reranker.place.backend) == ("yes", "torch")
    expected = by_transformers(models / "bert", PASSAGES, sign=-1.0)
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-5)


def test_code_for_another_transformers_says_so(models, tmp_path):
    folder = save_own_code(tmp_path / "own")
    (folder / "own_reranker.py").write_text("from transformers import NoSuchThing\n")
    with pytest.raises(ModelError, match=r"its own code does not run with transformers \d.*NoSuchThing"):
        CrossEncoder(model=folder, trust_remote_code=True)


def test_code_elsewhere_is_part_of_what_values_depend_on(models, tmp_path):
    reference = {"auto_map": {"AutoModel": "b/code--file.Class", "AutoTokenizer": ["a/code--other.Slow", None]}}
    assert code_repositories(reference) == ["a/code", "b/code"]
    assert code_repositories({"auto_map": {"AutoModel": "file.Class"}}) == code_repositories({}) == []
    by_name = CrossEncoder(model=GTE, trust_remote_code=True).identity
    other = shutil.copytree(models / "gte", tmp_path / "other")
    put_on_hub(Path(huggingface_hub.constants.HF_HUB_CACHE), "Else/new-impl", models / "own")
    change_json(
        other / "config.json",
        auto_map={
            "AutoConfig": "Else/new-impl--own_reranker.OwnConfig",
            "AutoModelForSequenceClassification": "Else/new-impl--own_reranker.OwnReranker",
        },
    )
    assert CrossEncoder(model=other, trust_remote_code=True).identity != by_name


# --- What is not there ---


@pytest.mark.parametrize("build", [corag.reranker, lambda name: BgeM3Embedder(model=name)], ids=["reranker", "bge-m3"])
def test_a_name_out_of_reach_says_how_to_get_it(models, build):
    with pytest.raises(
        ModelError, match=r"'some/model' cannot be loaded; it is not on this .*: hf download some/model"
    ):
        build("some/model")


def test_settings_that_are_not_there(models):
    name = "BAAI/bge-reranker-base"
    with pytest.raises(InputError, match="device 'cuda:99' is not there"):
        corag.reranker(name, device="cuda:99")
    with pytest.raises(InputError, match="precision is 'fp8'; it must be one of auto, fp32, bf16, fp16"):
        corag.reranker(name, backend="torch", precision="fp8")
    with pytest.raises(InputError, match=r"reranker 'BAAI/bge-reranker-base': .*'sise'"):
        corag.reranker(name, sise=3)
    with pytest.raises(InputError, match=r"question has 5000 tokens, which leaves no room .* of 62 tokens"):
        corag.reranker(name, backend="torch").score("river " * 5000, PASSAGES)


def test_a_model_that_generates_text_is_no_reranker(models, tmp_path):
    folder = save_causal_lm(tmp_path / "llama")
    with pytest.raises(ModelError, match=r"lacks 1 of its weights, score.weight .*; use a cross-encoder"):
        CrossEncoder(model=folder, backend="torch")


# --- The embedder ---


@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_bge_m3_by_name(models, backend, monkeypatch, tmp_path):
    monkeypatch.setenv("CORAG_CACHE", str(tmp_path))
    embedder = corag.embedder("bge-m3", backend=backend)
    assert (embedder.name, embedder.dimension) == ("BAAI/bge-m3", 32)
    assert (embedder.card.licence, embedder.card.window_tokens) == ("MIT", 62)
    texts = [*PASSAGES, "", "river " * 100]
    model = transformers.XLMRobertaModel.from_pretrained(models / "m3", add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(models / "m3")
    batch = tokenizer(texts, padding=True, truncation=True, max_length=62, return_tensors="pt")
    with torch.inference_mode():
        states = model(**batch).last_hidden_state
    expected = torch.nn.functional.normalize(states[:, 0], dim=-1).numpy()
    np.testing.assert_allclose(embedder.embed(texts), expected, atol=1e-5)


def test_bge_m3_is_that_of_flag_embedding(models):
    library = pytest.importorskip("FlagEmbedding")
    peer = library.BGEM3FlagModel(
        str(models / "m3"), use_fp16=False, devices="cpu", query_max_length=62, passage_max_length=62
    )
    expected = peer.encode(PASSAGES)["dense_vecs"]
    np.testing.assert_allclose(BgeM3Embedder(model=models / "m3").embed(PASSAGES), expected, atol=1e-5)


@pytest.mark.parametrize("max_tokens", [2, 63])
def test_bge_m3_has_a_window(models, max_tokens):
    with pytest.raises(InputError, match=f"max_tokens is {max_tokens}; the model '.*' takes 3 to 62"):
        BgeM3Embedder(model=models / "m3", max_tokens=max_tokens)
