"""The switch: every backend and precision gives the same ranking, and what is not there says so."""

import itertools
import os

import numpy as np
import pytest

import corag
from corag import Candidate, Chunk
from corag.errors import InputError
from corag.models.engine import openvino
from corag.models.engine.checkpoint import Checkpoint
from corag.models.engine.engine import Source
from corag.models.engine.openvino import openvino_forward
from corag.models.engine.pytorch import torch_forward
from corag.models.minilm import minilm_encoder
from corag.models.runtime import place
from corag.rerankers.cosine import MiniLMCosine
from tests.corag.models.worlds import save_bert

pytestmark = pytest.mark.slow

pytest.importorskip("openvino")

QUESTIONS = ["Which river flows through Berlin?", "What do bananas look like?", "Where is the capital of Germany?"]
CHUNKS = [
    Chunk(f"c{rank}", text)
    for rank, text in enumerate(
        [
            "Berlin is the capital of Germany. It lies on the river Spree.",
            "The Rhine is a river that flows through Cologne, not through Berlin.",
            "Bananas are yellow when they are ripe, and green before.",
            "The capital of Germany was Bonn, too, from 1949 to 1990; the Rhine flows there.",
            "The Spree flows through Berlin.",
        ]
    )
]
ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(range(5), size)]
SETTINGS = list(itertools.product(["torch", "openvino"], ["fp32", "bf16"]))


def loaded(backend, precision):
    try:
        return MiniLMCosine(backend=backend, precision=precision)
    except InputError as error:
        pytest.skip(str(error))


def values_of(reranker):
    """Values of all orders, `[questions, orders]`."""
    return np.array([reranker.scorer(question, CHUNKS)(ORDERS) for question in QUESTIONS])


def rank_correlation(one, other):
    """Spearman's, for values without ties."""
    ranks = [np.argsort(np.argsort(values.ravel())) for values in (one, other)]
    return np.corrcoef(*ranks)[0, 1]


@pytest.fixture(scope="module")
def exact():
    return values_of(MiniLMCosine(backend="torch", precision="fp32"))


@pytest.mark.parametrize(("backend", "precision"), SETTINGS)
def test_backends_rank_alike(exact, backend, precision):
    values = values_of(loaded(backend, precision))
    assert rank_correlation(exact, values) > 0.999
    for found, expected in zip(values, exact, strict=True):
        assert rank_correlation(found, expected) > 0.999
    assert np.abs(values - exact).max() < (1e-5 if precision == "fp32" else 1e-2)


@pytest.mark.parametrize(("backend", "precision"), SETTINGS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_backends_select_alike(backend, precision, question):
    candidates = [Candidate(chunk, 1 - 0.1 * rank) for rank, chunk in enumerate(CHUNKS)]
    exact = corag.selector("corag", reranker=MiniLMCosine(backend="torch")).select(question, candidates, 40)
    selection = corag.selector("corag", reranker=loaded(backend, precision)).select(question, candidates, 40)
    assert selection.ids == exact.ids


def test_torch_rounds_the_layers_and_not_the_head(tmp_path):
    checkpoint = Checkpoint(save_bert(tmp_path))
    source = Source("none", checkpoint.sha256, checkpoint.inputs, checkpoint.load)
    ids = np.random.default_rng(0).integers(1000, 20000, (64, 20))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    exact, rounded = (torch_forward(source, precision, "cpu")(inputs)[:, 0] for precision in ("fp32", "bf16"))
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.ptp(exact)
    # Logits rounded to bf16 would tie, and have 16 zero bits at their end.
    assert len(np.unique(rounded)) == 64 and (rounded.view(np.uint32) & 0xFFFF).any()


def test_precisions_are_kept_apart():
    loaded("openvino", "bf16")
    one, other = minilm_encoder("openvino", "fp32"), minilm_encoder("openvino", "bf16")
    assert one is minilm_encoder() is not other
    assert [encoder.place.values_depend_on for encoder in (one, other)] == ["openvino fp32 cpu", "openvino bf16 cpu"]
    ids = one.tokenize(["Berlin"]).ids
    assert 0 < np.abs(one.sentence_embeddings(ids) - other.sentence_embeddings(ids)).max() < 0.02


def test_a_precision_that_the_cpu_lacks(monkeypatch):
    import openvino

    from corag.models import devices

    class OlderCore(openvino.Core):
        def get_property(self, device, name):
            return ["FP32", "INT8"] if name == "OPTIMIZATION_CAPABILITIES" else super().get_property(device, name)

    monkeypatch.setattr(openvino, "Core", OlderCore)
    devices.openvino_has.cache_clear()
    try:
        with pytest.raises(InputError, match=r"in bf16 only on a CPU with instructions .*; use precision='fp32', or"):
            openvino_forward(Source("none", "0" * 64, (), pytest.fail), "bf16")
        assert place("reranker", device="cpu", precision="bf16").backend == "torch"
        assert place("reranker", device="cpu").backend == "openvino"
    finally:
        devices.openvino_has.cache_clear()


@pytest.mark.parametrize(("given", "seen"), [(None, "8"), ("99", "99")])
def test_little_is_kept_of_the_shapes_of_batches(monkeypatch, given, seen):
    variable, found = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", []
    if given is None:
        monkeypatch.delenv(variable, raising=False)
    else:
        monkeypatch.setenv(variable, given)
    monkeypatch.setattr(
        openvino, "_compiled", lambda _, __, settings: found.append((settings, os.environ.get(variable)))
    )
    openvino_forward(Source("none", "0" * 64, (), pytest.fail), "fp32")
    [(settings, inside)] = found
    assert (settings["CPU_RUNTIME_CACHE_CAPACITY"], inside) == (256, seen)
    # PyTorch has a oneDNN of its own.
    assert os.environ.get(variable) == given
