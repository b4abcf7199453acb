import numpy as np
import pytest

import corag
from corag.errors import InputError, ModelError
from corag.models.minilm import load_bert
from corag.models.trained import AdapterConfig, save_adapter
from corag.rerankers.minilm_cross import FORM, NAME, WINDOW_TOKENS, MiniLMCross
from corag.rerankers.window import LOWEST_LOGIT
from corag.types import Chunk

CHUNKS = [Chunk(str(number), text) for number, text in enumerate(
    ["Goethe was born in Frankfurt.", "He died in Weimar.", "Bananas are yellow.", "word " * 512])]  # fmt: skip
SLOPE, OFFSET = 2.0, -0.5


@pytest.fixture(scope="module")
def weights():
    generator = np.random.default_rng(3)
    return {"head.weight": generator.normal(size=(1, 384)) / 20, "head.bias": np.array([0.3])}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, weights):
    folder = tmp_path_factory.mktemp("cross") / "adapter"
    tensors = {name: value.astype(np.float32) for name, value in weights.items()}
    save_adapter(folder, tensors, AdapterConfig(NAME, FORM, {"slope": SLOPE, "offset": OFFSET}), "")
    return folder


def by_transformers(weights, query, text):
    """The same value by the tokenizer and the model of transformers, question and text as a pair."""
    import torch
    import transformers

    from corag.text.tokens import model_folder

    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder())
    with torch.no_grad():
        state = load_bert()(**tokenizer(query, text, return_tensors="pt")).last_hidden_state[0, 0].numpy()
    return float(SLOPE * (state @ weights["head.weight"][0] + weights["head.bias"][0]) + OFFSET)


def test_the_value_of_an_order_is_that_of_its_joined_text(adapter, weights):
    query, orders = "Where was Goethe born?", [(0, 1), (1, 0), (2,)]
    logits = MiniLMCross(adapter=adapter, output="logit").scorer(query, CHUNKS)(orders)
    expected = [by_transformers(weights, query, "\n\n".join(CHUNKS[row].text for row in order)) for order in orders]
    np.testing.assert_allclose(logits, expected, atol=2e-4)
    assert abs(logits[0] - logits[1]) > 1e-3  # the order matters
    probabilities = MiniLMCross(adapter=adapter).scorer(query, CHUNKS)(orders)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-logits)), rtol=1e-6)


def test_empty_and_long_texts(adapter):
    reranker = MiniLMCross(adapter=adapter)
    assert reranker.score("Where?", ["", " "]).tolist() == [0, 0]
    assert MiniLMCross(adapter=adapter, output="logit").score("Where?", [""]).tolist() == [LOWEST_LOGIT]
    scorer = reranker.scorer("Where?", CHUNKS)
    scorer([(3,)])
    assert scorer.overlong_orders == {(3,)}
    with pytest.raises(InputError, match="window"):
        reranker.score("why " * WINDOW_TOKENS, ["text"])


def test_an_adapter_without_calibration_is_refused(tmp_path):
    save_adapter(tmp_path / "a", {"head.bias": np.zeros(1)}, AdapterConfig(NAME, FORM, {"slope": 1.0}), "")
    with pytest.raises(ModelError):
        MiniLMCross(adapter=tmp_path / "a")


def test_the_shipped_one_prefers_what_is_enough():
    values = corag.reranker("minilm-cross").scorer("Where was Goethe born, and where did he die?", CHUNKS)(
        [(0, 1), (0, 2), (2,)]
    )
    assert values[0] > values[1] > values[2]
