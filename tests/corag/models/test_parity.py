"""The shipped models through PyTorch, on the CPU and on a GPU where there is one, against what the CPU does."""

import itertools

import numpy as np
import pytest

import corag
from corag import Chunk
from corag.models.engine.engine import Source
from corag.models.engine.pytorch import forward_of, lower_precision
from corag.rerankers.evidence.parts import EvidenceParts
from tests.corag.models.worlds import save_bert

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
pytest.importorskip("openvino")

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"))
PASSAGES = [
    "Lake Baikal\nLake Baikal is a rift lake in Siberia. It is the deepest lake in the world.",
    "Angara\nThe Angara is the only river that flows out of Lake Baikal. It joins the Yenisei.",
    "Yenisei\nThe Yenisei flows into the Kara Sea. It is 3,487 kilometres long.",
    "Banana\nBananas are yellow when they are ripe, and green before.",
    "Irkutsk\nIrkutsk lies on the Angara, 72 kilometres below Lake Baikal.",
]
CHUNKS = [Chunk(f"c{row}", text) for row, text in enumerate(PASSAGES)]
QUESTIONS = ["Which river leaves the deepest lake of the world?", "How long is the Yenisei?", "Where does Irkutsk lie?"]
ORDERS = [order for size in (1, 2) for order in itertools.permutations(range(5), size)]
RERANKERS = (
    "minilm-cosine", "minilm-maxsim", "minilm-softsim", "minilm-pooled", "minilm-multihop", "minilm-factoid",
    "minilm-longform",
    "minilm-sentence",
)  # fmt: skip


def values(name, **runtime):
    with corag.runtime(**runtime):
        reranker = corag.reranker(name)
        return np.array([reranker.scorer(question, CHUNKS)(ORDERS) for question in QUESTIONS])


def through_torch(name, **settings):
    reranker = corag.reranker(name, backend="torch", **settings)
    return np.array([reranker.scorer(question, CHUNKS)(ORDERS) for question in QUESTIONS])


@pytest.fixture(scope="module")
def exact():
    """Values by name, as OpenVINO and NumPy give them."""
    return {name: values(name, device="cpu", precision="fp32") for name in RERANKERS}


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu", GPU])
@pytest.mark.parametrize("name", RERANKERS)
def test_rerankers_in_fp32(exact, name, device):
    np.testing.assert_allclose(through_torch(name, device=device, precision="fp32"), exact[name], atol=2e-4)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("name", RERANKERS)
def test_rerankers_in_bf16(exact, name, device):
    found = through_torch(name, device=device, precision="bf16")
    assert 0 < np.abs(found - exact[name]).max() < 0.05
    for one, other in zip(found, exact[name], strict=True):
        assert np.corrcoef(one, other)[0, 1] > 0.999


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu", GPU])
def test_embeddings(device):
    one = corag.embedder("minilm", device="cpu").embed(PASSAGES)
    other = corag.embedder("minilm", backend="torch", device=device).embed(PASSAGES)
    np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_reader(device, precision):
    exact = corag.reader("minilm-reader", device="cpu", precision="fp32")
    other = corag.reader("minilm-reader", backend="torch", device=device, precision=precision)
    contexts = ["\n\n".join(PASSAGES)] * len(QUESTIONS)
    for one, two in zip(exact.answer_many(QUESTIONS, contexts), other.answer_many(QUESTIONS, contexts), strict=True):
        assert one.text == two.text
        assert one.confidence == pytest.approx(two.confidence, abs=1e-4 if precision == "fp32" else 0.05)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_the_network_of_the_evidence_rerankers(device):
    network = EvidenceParts.load(corag.models.trained.shipped_adapter("minilm-multihop")).network
    features = np.random.default_rng(0).normal(size=(500, network.num_features)) * network.scale + network.mean
    there = network._through_torch(device)
    np.testing.assert_allclose(there(features), network(features), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["cpu", "gpu-like", GPU])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layers_in_a_lower_precision_leave_the_head_exact(tmp_path, kind, dtype):
    from corag.models.engine.checkpoint import Checkpoint

    checkpoint = Checkpoint(save_bert(tmp_path))
    device = "cuda" if kind == "cuda" else "cpu"
    ids = np.random.default_rng(0).integers(1000, 20000, (64, 20))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    exact = forward_of(checkpoint.load())(inputs)[:, 0]
    module = checkpoint.load().to(device)
    if kind == "gpu-like":
        lowered_as_on_a_gpu(module, dtype)
    else:
        lower_precision(module, dtype, kind)
    rounded = forward_of(module, device)(inputs)[:, 0]
    assert 0 < np.abs(rounded - exact).max() < 0.05 * np.ptp(exact)
    # Logits rounded to 16 bits would tie.
    assert len(np.unique(rounded)) == 64
    assert module.classifier.weight.dtype == torch.float32


def lowered_as_on_a_gpu(module, dtype):
    """What `lower_precision` does on a GPU, on the CPU."""
    autocast = torch.autocast
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "autocast", lambda kind, **settings: autocast("cpu", **settings))
        lower_precision(module, dtype, "cuda")


def test_a_source_is_loaded_onto_every_device(tmp_path):
    from corag.models.engine.backends import load_replicas
    from corag.models.engine.checkpoint import Checkpoint
    from corag.models.runtime import place

    checkpoint, loads = Checkpoint(save_bert(tmp_path)), []

    def load():
        loads.append(1)
        return checkpoint.load()

    source = Source("none", checkpoint.sha256, checkpoint.inputs, load)
    replicas = load_replicas(source, place("reranker", device="cpu,cpu", backend="torch"))
    assert len(loads) == len(replicas.models) == 2
