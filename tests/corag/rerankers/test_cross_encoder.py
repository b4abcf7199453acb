"""The cross-encoder against transformers itself, on small models with random weights."""

import itertools
import re
import shutil

import numpy as np
import pytest
import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st

import corag
from corag.errors import InputError
from corag.models.engine import quiet
from corag.rerankers.cross_encoder import CrossEncoder
from corag.text.documents import SEPARATOR
from tests.corag.models.worlds import BYTES, change_json, save_bert, save_xlm_roberta
from tests.experiments.worlds import write_folder
from tests.fakes import chunks_of
from tests.paths import ROOT

pytestmark = pytest.mark.slow

QUESTION = "Which river flows through the capital?"
PASSAGES = [
    "Berlin is the capital.",
    "The Spree, a river, flows there!\nSlowly.",
    "Bananas.",
    "e\u0301 漢 [SEP] <mask> ",
]
ORDERS = [order for size in (1, 2, 3) for order in itertools.permutations(range(4), size)]
TEXTS = st.lists(st.sampled_from(PASSAGES) | st.text(max_size=15), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One model for each way of tokenising; the tokens of the last do not join."""
    folder = tmp_path_factory.mktemp("models")
    bytewise = save_bert(folder / "bytes")
    (bytewise / "vocab.txt").unlink()
    shutil.copy(BYTES, bytewise / "tokenizer.json")
    change_json(bytewise / "tokenizer_config.json", tokenizer_class="TokenizersBackend")
    return {
        "bert": save_bert(folder / "bert"), "xlm-roberta": save_xlm_roberta(folder / "xlm"), "bytes": bytewise
    }  # fmt: skip


@pytest.fixture(scope="module")
def rerankers(folders):
    return {name: CrossEncoder(model=folder, max_tokens=60) for name, folder in folders.items()}


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "bytes"])
def test_values_are_those_of_transformers(folders, rerankers, name):
    with quiet():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folders[name])
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folders[name]).eval()

    def logit(text):
        inputs = tokenizer(QUESTION, text, truncation="only_second", max_length=60, return_tensors="pt")
        with torch.inference_mode():
            return model(**inputs).logits[0, 0].item()

    joined = [SEPARATOR.join(PASSAGES[index] for index in order) for order in ORDERS]
    logits = np.array([logit(text) for text in joined])
    fits = [len(tokenizer(QUESTION, text)["input_ids"]) <= 60 for text in joined]
    values = rerankers[name].scorer(QUESTION, chunks_of(PASSAGES))(ORDERS)
    assert values[fits] == pytest.approx(1 / (1 + np.exp(-logits[fits])), abs=1e-5) and np.ptp(values) > 0.01
    assert rerankers[name].score(QUESTION, joined)[fits] == pytest.approx(values[fits], abs=1e-5)
    as_logits = CrossEncoder(model=folders[name], max_tokens=60, output="logit")
    assert as_logits.score(QUESTION, joined)[fits] == pytest.approx(logits[fits], abs=1e-4)


@settings(max_examples=20)
@given(texts=TEXTS, query=st.sampled_from([QUESTION, "", "漢?"]))
@example(texts=["\x1b"], query=QUESTION)  # no token, but no white space, either
def test_an_order_is_worth_its_joined_text_whatever_stands_beside_it(rerankers, texts, query):
    for name in ("bert", "bytes"):
        reranker = rerankers[name]
        orders = [order for order in ORDERS if max(order) < len(texts)]
        scorer = reranker.scorer(query, chunks_of(texts))
        joined = [SEPARATOR.join(texts[index] for index in order) for order in orders]
        values = scorer(orders)
        assert values == pytest.approx(reranker.score(query, joined), abs=1e-5)
        assert values[:1] == pytest.approx(reranker.score(query, joined[:1]), abs=1e-5)
        lengths = map(len, reranker.join([[text] for text in joined]))
        overlong = {order for order, length in zip(orders, lengths, strict=True) if length > scorer.window_tokens}
        assert scorer.overlong_orders == overlong


def test_outputs(folders):
    bert = folders["bert"]
    plain, logits = (CrossEncoder(model=bert, output=output) for output in ("probability", "logit"))
    assert str(corag.reranker(f"cross-encoder(model={bert}, output=logit)")).endswith("output=logit)")
    with pytest.raises(InputError, match="output"):
        CrossEncoder(model=bert, output="score")
    with pytest.raises(InputError, match="max_tokens"):
        CrossEncoder(model=bert, max_tokens=60.5)
    assert plain.score(QUESTION, ["", " \n", "river"]).tolist()[:2] == [0.0, 0.0]
    empty, text = logits.score(QUESTION, [" \n", "river"])
    assert empty == pytest.approx(np.log(2.0**-53)) and text > empty
    assert logits.scorer(QUESTION, chunks_of(["", " "]))([(0,), (1, 0)]).tolist() == [empty, empty]
    for reranker in (plain, logits):
        assert reranker.score(QUESTION, []).shape == reranker.scorer(QUESTION, [])([]).shape == (0,)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_one_that_is_trained_as_the_page_shows_is_a_reranker(folders, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    [code] = list(re.findall(r"^```python skip\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    rows = [
        {
            "id": f"q{number}",
            "question": f"Which river is number {number}?",
            "gold": [f"p{number}"],
            "candidates": [f"p{(number + one) % 20}" for one in range(6)],
            "split": "train",
        }
        for number in range(20)
    ]
    write_folder(
        tmp_path / "my-folder", [{"id": f"p{n}", "title": "River", "text": f"This is {n}."} for n in range(20)], rows
    )
    monkeypatch.chdir(tmp_path)
    names = {"corag": corag}
    exec(code.replace("cross-encoder/ms-marco-MiniLM-L6-v2", str(folders["bert"])), names)  # noqa: S102
    values = names["reranker"].score("Which river is number 1?", ["River\nThis is 1.", ""])
    assert 0 < values[0] < 1 and values[1] == 0
    before = CrossEncoder(model=folders["bert"]).score("Which river is number 1?", ["River\nThis is 1."])
    assert values[0] != before[0]
