"""The switch: every backend and precision gives the same ranking, and what is not there says so."""

import itertools

import numpy as np
import pytest

import corag
from corag import Candidate, Chunk
from corag.errors import InputError
from corag.models.engine.backends import batch_tokens, load_forward, resolve_backend
from corag.models.engine.checkpoint import Checkpoint
from corag.models.engine.engine import Source
from corag.models.minilm import minilm_encoder
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
    exact, rounded = (load_forward(source, "torch", precision)(inputs)[:, 0] for precision in ("fp32", "bf16"))
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.ptp(exact)
    # Logits rounded to bf16 would tie, and have 16 zero bits at their end.
    assert len(np.unique(rounded)) == 64 and (rounded.view(np.uint32) & 0xFFFF).any()


def test_precisions_are_kept_apart():
    loaded("openvino", "bf16")
    one, other = minilm_encoder("openvino", "fp32"), minilm_encoder("openvino", "bf16")
    assert one is minilm_encoder() is not other
    assert [(encoder.backend, encoder.precision) for encoder in (one, other)] == [
        ("openvino", "fp32"),
        ("openvino", "bf16"),
    ]
    ids = one.tokenize(["Berlin"]).ids
    assert 0 < np.abs(one.sentence_embeddings(ids) - other.sentence_embeddings(ids)).max() < 0.02


def test_bf16_where_the_cpu_lacks_it(monkeypatch):
    import openvino

    class OlderCore(openvino.Core):
        def get_property(self, device, name):
            return ["FP32", "INT8"] if name == "OPTIMIZATION_CAPABILITIES" else super().get_property(device, name)

    monkeypatch.setattr(openvino, "Core", OlderCore)
    source = Source("none", "0" * 64, (), pytest.fail)
    with pytest.raises(InputError, match=r"'bf16' needs a CPU that computes in bfloat16 .*; use precision='fp32'"):
        load_forward(source, "openvino", "bf16")


def test_what_auto_stands_for():
    assert resolve_backend("auto") == "openvino"
    assert resolve_backend("auto", "cuda:1") == "torch"
    assert batch_tokens("cuda:1") == batch_tokens("cuda") > batch_tokens("cpu")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "jax"}, "backend 'jax' is unknown; use 'auto', 'openvino' or 'torch'"),
        ({"backend": "torch", "precision": "fp16"}, "precision 'fp16' is unknown; use 'fp32' or 'bf16'"),
        ({"backend": "auto", "device": "gpu"}, "device 'gpu' is unknown; use 'cpu', 'cuda' or 'cuda:N'"),
        ({"backend": "auto", "device": None}, "device None is unknown"),
        ({"backend": "openvino", "device": "cuda"}, "backend 'openvino' runs on the CPU, not on 'cuda'; use backend="),
        (
            {"backend": "torch", "device": "cuda:99"},
            r"device 'cuda:99' is not there: PyTorch .* sees \d+ CUDA devices; use",
        ),
    ],
)
def test_what_is_not_there_says_so(settings, message):
    with pytest.raises(InputError, match=message):
        load_forward(Source("none", "0" * 64, (), pytest.fail), **settings)
