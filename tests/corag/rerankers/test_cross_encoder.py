"""The cross-encoder against transformers itself, on small models with random weights."""

import itertools
import shutil
from functools import cache

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from corag import Chunk
from corag.errors import InputError, ModelError
from corag.models.engine.engine import quiet
from corag.rerankers.cross_encoder import CrossEncoder
from corag.text.documents import SEPARATOR
from tests.corag.models.worlds import byte_level, change_json, save_bert, save_xlm_roberta

pytestmark = pytest.mark.slow

pytest.importorskip("openvino")

QUESTION = "Which river flows through the capital?"
PASSAGES = [
    "Berlin is the capital.",
    "The Spree, a river, flows there!\nSlowly.",
    "Bananas.",
    "e\u0301 漢 [SEP] <mask> ",
]
ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(range(4), size)]
TEXTS = st.lists(st.sampled_from(PASSAGES) | st.text(max_size=15), min_size=1, max_size=3)


@pytest.fixture(scope="module", autouse=True)
def own_cache_folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORAG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def folders(tmp_path_factory, bert):
    """One model for each way of tokenising; the ids of the last do not join."""
    folder = tmp_path_factory.mktemp("models")
    bytewise = save_bert(folder / "bytes")
    (bytewise / "vocab.txt").unlink()
    byte_level().save(str(bytewise / "tokenizer.json"))
    change_json(bytewise / "tokenizer_config.json", tokenizer_class="TokenizersBackend")
    return {"bert": bert, "xlm-roberta": save_xlm_roberta(folder / "xlm"), "bytes": bytewise}


@pytest.fixture(scope="module", params=["bert", "xlm-roberta", "bytes"])
def folder(request, folders):
    return folders[request.param]


@pytest.fixture(scope="module")
def reference(folder):
    """Scores one text at a time with nothing but transformers."""
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def score(query, text, max_tokens=60):
        inputs = tokenizer(query, text, truncation="only_second", max_length=max_tokens, return_tensors="pt")
        with torch.inference_mode():
            return torch.sigmoid(model(**inputs).logits[0, 0]).item()

    return score


def chunks_of(texts):
    return [Chunk(str(rank), text) for rank, text in enumerate(texts)]


def variant(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "variant")


@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_values_are_those_of_transformers(folder, reference, backend):
    reranker = CrossEncoder(model=folder, backend=backend, max_tokens=60)
    expected = [reference(QUESTION, text) for text in PASSAGES]
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-5)
    joined = [reference(QUESTION, SEPARATOR.join(PASSAGES[index] for index in order)) for order in ORDERS]
    assert reranker.scorer(QUESTION, chunks_of(PASSAGES))(ORDERS) == pytest.approx(joined, abs=1e-5)
    assert np.ptp(joined) > 0.01


@settings(max_examples=25)
@given(texts=TEXTS, query=st.sampled_from([QUESTION, "", "漢?"]))
def test_an_order_is_worth_its_joined_text(folders, texts, query):
    for folder in folders.values():
        reranker = loaded(folder)
        orders = [order for order in ORDERS if max(order) < len(texts)]
        scorer = reranker.scorer(query, chunks_of(texts))
        joined = [SEPARATOR.join(texts[index] for index in order) for order in orders]
        assert scorer(orders) == pytest.approx(reranker.score(query, joined), abs=1e-5)
        ids = reranker.tokenize(joined)
        assert [row.tolist() for row in scorer._joined(orders)] == [row.tolist() for row in ids]
        room = reranker._tokenizer.question(query).room
        assert scorer.num_truncated == sum(len(row) > room for row in ids)


@cache
def loaded(folder):
    return CrossEncoder(model=folder, backend="torch", max_tokens=60)


def test_which_models_join_ids(folders):
    assert {name: loaded(folder).joins_ids for name, folder in folders.items()} == {
        "bert": True,
        "xlm-roberta": True,
        "bytes": False,
    }


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_backends_rank_alike(bert, backend, precision):
    exact = CrossEncoder(model=bert, backend="torch").scorer(QUESTION, chunks_of(PASSAGES))(ORDERS)
    try:
        reranker = CrossEncoder(model=bert, backend=backend, precision=precision)
    except InputError as error:
        pytest.skip(str(error))
    values = reranker.scorer(QUESTION, chunks_of(PASSAGES))(ORDERS)
    ranks = [np.argsort(np.argsort(column)) for column in (exact, values)]
    # Random weights put orders much closer together than trained ones do, so bf16 swaps more of them.
    assert np.corrcoef(*ranks)[0, 1] > (0.999 if precision == "fp32" else 0.98)
    assert np.abs(values - exact).max() < (1e-5 if precision == "fp32" else 0.02)


@pytest.mark.parametrize("backend", ["torch", "openvino"])
def test_logits_are_those_of_transformers(folder, backend):
    reranker = CrossEncoder(model=folder, backend=backend, max_tokens=60, output="logit")
    probabilities = CrossEncoder(model=folder, backend=backend, max_tokens=60)
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = [
        tokenizer(QUESTION, text, truncation="only_second", max_length=60, return_tensors="pt") for text in PASSAGES
    ]
    with torch.inference_mode():
        expected = [model(**one).logits[0, 0].item() for one in inputs]
    assert reranker.score(QUESTION, PASSAGES) == pytest.approx(expected, abs=1e-4)
    chunks = chunks_of(PASSAGES)
    logits, shares = (one.scorer(QUESTION, chunks)(ORDERS) for one in (reranker, probabilities))
    assert shares == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)


def test_an_output_of_its_own_has_an_identity_of_its_own(bert):
    plain, logits = (CrossEncoder(model=bert, backend="torch", output=output) for output in ("probability", "logit"))
    assert plain.identity == CrossEncoder(model=bert, backend="torch").identity != logits.identity
    assert str(corag.reranker(f"cross-encoder(model={bert}, output=logit)")).endswith("output=logit)")
    with pytest.raises(InputError, match="output is 'score'; it must be one of probability, logit"):
        CrossEncoder(model=bert, output="score")


def test_as_a_logit_no_token_is_worth_less_than_any_text(bert):
    reranker = CrossEncoder(model=bert, backend="torch", output="logit")
    empty, text = reranker.score(QUESTION, [" \n", "river"])
    assert empty == pytest.approx(np.log(2.0**-53)) and text > empty
    assert 1 / (1 + np.exp(-empty)) < np.finfo(float).eps
    scorer = reranker.scorer(QUESTION, chunks_of(["", " "]))
    assert scorer([(0,), (1, 0)]).tolist() == [empty, empty]


@pytest.mark.parametrize("policy", ["windows", "truncate"])
def test_windows_of_negative_logits_keep_their_best(bert, policy):
    chunks = chunks_of(["x y z", "bananas and more of them"])
    reranker = CrossEncoder(model=bert, backend="torch", max_tokens=20, output="logit")
    probabilities = CrossEncoder(model=bert, backend="torch", max_tokens=20)
    logits, shares = (one.scorer(QUESTION, chunks).under(policy)([(0,), (1, 0)]) for one in (reranker, probabilities))
    assert 1 / (1 + np.exp(-logits)) == pytest.approx(shares, abs=1e-6)
    assert min(logits) < 0


def test_an_order_that_may_not_be_has_the_lowest_logit(bert):
    reranker = CrossEncoder(model=bert, backend="torch", max_tokens=12, output="logit")
    scorer = reranker.scorer("river " * 5, chunks_of(["x y", "z " * 3])).under("forbid")
    fits, too_long = scorer([(0,), (0, 1)])
    assert too_long == reranker.lowest < fits


def test_no_token_is_worth_nothing(bert):
    reranker = loaded(bert)
    assert reranker.score(QUESTION, ["", " \n", "river"]).tolist()[:2] == [0.0, 0.0]
    assert reranker.scorer(QUESTION, chunks_of(["", " "]))([(0,), (1, 0)]).tolist() == [0.0, 0.0]
    assert reranker.score(QUESTION, []).shape == (0,)
    assert reranker.scorer(QUESTION, [])([]).shape == (0,)


def test_only_the_text_is_cut_and_only_counted_once(bert):
    scorer = CrossEncoder(model=bert, backend="torch", max_tokens=12).scorer("river " * 5, chunks_of(["x y", "z " * 3]))
    # 12 less [CLS], five words, and twice [SEP] leave room for four tokens.
    assert scorer.num_truncated == 0
    scorer([(0,), (1,)])
    assert scorer.num_truncated == 0
    scorer([(0, 1), (1, 0), (0, 1)])
    scorer([(1, 0)])
    assert (scorer.num_truncated, scorer.overlong_orders) == (2, {(0, 1), (1, 0)})
    reranker = CrossEncoder(model=bert, backend="torch", max_tokens=12)
    long, cut = reranker.score("river " * 5, ["x y z z z", "x y z z"])
    assert long == cut


def test_a_question_that_fills_the_window(bert):
    with pytest.raises(InputError, match=r"the question has 600 tokens, .* window of 512 tokens; shorten the question"):
        CrossEncoder(model=bert, backend="torch").score("river " * 600, ["Berlin"])


def test_settings_and_the_registry(folders):
    reranker = corag.reranker("cross-encoder", model=str(folders["xlm-roberta"]), backend="torch", max_tokens=30)
    assert (reranker.name, reranker.max_tokens, reranker.place.backend) == ("cross-encoder", 30, "torch")
    # 64 positions, of which the first two stand for padding.
    assert CrossEncoder(model=folders["xlm-roberta"], backend="torch").max_tokens == 62
    assert CrossEncoder(model=folders["bert"], backend="torch").max_tokens == 512
    with pytest.raises(InputError, match=r"reranker 'cross-encoder': missing a required .*'model'"):
        corag.reranker("cross-encoder")


def test_identities_differ_where_values_may(bert, tmp_path):
    other = variant(bert, tmp_path)
    change_json(other / "config.json", layer_norm_eps=1e-6)
    identities = {
        CrossEncoder(model=model, backend=backend, precision=precision, max_tokens=size).identity
        for model, backend, precision, size in [
            (bert, "torch", "fp32", None),
            (other, "torch", "fp32", None),
            (bert, "openvino", "fp32", None),
            (bert, "torch", "bf16", None),
            (bert, "torch", "fp32", 511),
        ]
    }
    assert len(identities) == 5
    assert CrossEncoder(model=bert, backend="torch").identity in identities


def test_a_window_is_told_or_given(bert, tmp_path):
    for size in (0, 513):
        with pytest.raises(InputError, match=rf"max_tokens is {size}; the model '.*' takes 1 to 512"):
            CrossEncoder(model=bert, backend="torch", max_tokens=size)
    folder = variant(bert, tmp_path)
    change_json(folder / "tokenizer_config.json", model_max_length=int(1e30))
    assert CrossEncoder(model=folder, backend="torch").max_tokens == 512


# What does not work


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def change(**changes):
    return lambda folder: change_json(folder / "config.json", **changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("config.json"), "cannot be loaded; give a local folder"),
        (remove("model.safetensors"), "cannot be loaded; give a local folder, or .*no file named model.safetensors"),
        (remove("tokenizer.json", "vocab.txt"), "comes with no tokenizer .* save one beside it, as"),
        (write("config.json", b"{"), "cannot be loaded; .* not a valid JSON"),
        (write("tokenizer.json", b"{"), "cannot be loaded"),
        (write("model.safetensors", b"\x00" * 99), "cannot be loaded"),
        (change(id2label={"0": "a", "1": "b"}), "has 2 labels; a reranker has one"),
        (change(num_hidden_layers=3), "lacks 16 of its weights, bert.encoder.layer.2"),
        (change(vocab_size=100), "has a tokenizer of 30522 tokens, but embeddings for 100"),
        (change(hidden_size=64), "cannot be loaded"),
        (
            change(model_type="weird", auto_map={"AutoConfig": "theirs.Config"}),
            "cannot be loaded; its own code has to run: if you trust it, give --trust_remote_code",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Passing `generation_config`")
def test_a_broken_model_says_what_is_wrong(bert, tmp_path, damage, message):
    folder = variant(bert, tmp_path)
    damage(folder)
    with pytest.raises(ModelError, match=f"(?s)the model '.*variant' {message}"):
        CrossEncoder(model=folder, backend="torch")


@pytest.mark.parametrize("model", ["no/such/folder", ""])
def test_a_missing_model_says_so(model):
    with pytest.raises(ModelError, match=f"(?s)the model '{model}' cannot be loaded; give a local folder, or a name"):
        CrossEncoder(model=model)


def test_cuda_where_there_is_none(bert):
    with pytest.raises(InputError, match="device 'cuda:99' is not there"):
        CrossEncoder(model=bert, device="cuda:99")
