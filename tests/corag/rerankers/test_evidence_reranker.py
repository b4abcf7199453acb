"""The reranker as a whole: what search and selectors rely on, and what adapters it takes."""

import json
from dataclasses import replace

import numpy as np
import pytest

import corag
from corag.errors import InputError, ModelError
from corag.models.trained import AdapterConfig, load_adapter, save_adapter
from corag.rerankers.cached import CachedReranker
from corag.rerankers.evidence.parts import FORM, EvidenceParts
from corag.rerankers.evidence.reranker import EvidenceReranker
from corag.rerankers.evidence.values import Weights
from corag.selectors.corag.search import search_config
from corag.selectors.corag.selector import Corag
from corag.types import Candidate, Chunk, Reranker
from tests.corag.rerankers.evidence_worlds import WordEncoder, linear_parts

QUESTION = "When was the maker of Sky Ark born?"
TEXTS = [
    "Sky Ark\nSky Ark was made by Ann Lee.",
    "Rome\nRome is a city.",
    "Ann Lee\nAnn Lee was born in 1950.",
    "Blue\nBlue is the sky.",
]
CHUNKS = [Chunk(str(row), text) for row, text in enumerate(TEXTS)]
WEIGHTS = Weights(sequence=0.02)


def reranker_of(**settings):
    given = {"bias": -3.0, "maxsim": 6.0, "link": 8.0, "reading_order": {"link": 2.0}, "weights": WEIGHTS}
    return EvidenceReranker(adapter=linear_parts(**{**given, **settings}), encoder=WordEncoder())


@pytest.fixture
def adapter(tmp_path):
    """A valid adapter folder."""
    parts = linear_parts(maxsim=1.0, reading_order={"link": 2.0})
    save_adapter(tmp_path / "toy", parts.tensors(), AdapterConfig("toy", FORM, parts.settings()), "a card")
    return tmp_path / "toy"


# --- Values ---


def test_it_prefers_the_pair_that_answers_over_one_of_it_and_over_distractors():
    scorer = reranker_of().scorer(QUESTION, CHUNKS)
    values = dict(zip(orders := [(0, 2), (0,), (2,), (1, 3), (0, 1), (0, 2, 1)], scorer(orders), strict=True))
    assert max(values, key=values.get) == (0, 2)
    assert values[(0, 2)] > values[(0, 2, 1)] > values[(0, 1)]


def test_what_names_a_chunk_is_read_before_it():
    scorer = reranker_of().scorer(QUESTION, CHUNKS)
    assert scorer.order_matters
    forward, backward = scorer([(0, 2), (2, 0)])
    assert forward > backward


def test_it_is_a_reranker_with_values_from_0_to_1():
    reranker = reranker_of()
    assert isinstance(reranker, Reranker)
    assert reranker.max_tokens == 510
    scorer = reranker.scorer(QUESTION, CHUNKS)
    values = scorer([(i, j) for i in range(4) for j in range(4) if i != j])
    assert ((values > 0) & (values < 1)).all()


def test_a_search_finds_the_evidence():
    candidates = [Candidate(chunk, 0.9 - row / 10) for row, chunk in enumerate(CHUNKS)]
    selection = Corag(reranker=reranker_of()).select(QUESTION, candidates, 64)
    assert selection.ids == ("0", "2")
    assert selection.value == pytest.approx(reranker_of().scorer(QUESTION, CHUNKS)([(0, 2)])[0])


def test_it_names_the_search_that_suits_it():
    assert search_config(reranker_of()).policy == "beam"
    assert search_config(reranker_of(), given={"policy": "paper"}).policy == "paper"


def test_cached_values_equal_uncached_ones():
    reranker, fresh = reranker_of(), reranker_of()
    orders = [(0,), (2, 0), (1, 2, 3)]
    reranker.scorer("another question about Rome", CHUNKS[1:])
    np.testing.assert_array_equal(reranker.scorer(QUESTION, CHUNKS)(orders), fresh.scorer(QUESTION, CHUNKS)(orders))


def test_renaming_candidates_renames_the_values():
    given = reranker_of()
    values = given.scorer(QUESTION, CHUNKS)([(0, 2), (1,), (3, 0)])
    turned = given.scorer(QUESTION, CHUNKS[::-1])([(3, 1), (2,), (0, 3)])
    np.testing.assert_allclose(turned, values, rtol=1e-6)


def test_equal_chunks_are_worth_the_same():
    scorer = reranker_of(rank=0.0).scorer(QUESTION, [CHUNKS[0], replace(CHUNKS[0], id="twin"), CHUNKS[2]])
    values = scorer([(0,), (1,), (0, 2), (1, 2)])
    assert values[0] == pytest.approx(values[1], rel=1e-9)
    assert values[2] == pytest.approx(values[3], rel=1e-9)


def test_a_text_is_scored_as_if_it_stood_alone():
    reranker = reranker_of()
    together = reranker.score(QUESTION, TEXTS)
    alone = [reranker.score(QUESTION, [text])[0] for text in TEXTS]
    np.testing.assert_array_equal(together, alone)
    assert together.argmax() == 0
    assert together[1] == together.min()
    assert reranker.score(QUESTION, []).shape == (0,)


def test_empty_texts_and_no_candidates():
    reranker = reranker_of()
    scorer = reranker.scorer(QUESTION, [Chunk("a", ""), *CHUNKS])
    values = scorer([(0,), (1,), (1, 0), (0, 3)])
    assert np.isfinite(values).all()
    assert values[0] < values[1]
    assert reranker.scorer(QUESTION, [])([]).shape == (0,)


def test_chunks_beyond_the_window_are_counted():
    scorer = reranker_of().scorer("word", [Chunk("a", "word " * 600), CHUNKS[0]])
    scorer([(0,), (1,), (1, 0)])
    assert scorer.num_truncated == 2


def test_with_single_hypotheses_pairs_are_not_looked_at():
    scorer = reranker_of(max_size=1).scorer(QUESTION, CHUNKS)
    assert not scorer.order_matters
    assert all(members.sum() == 1 for members in scorer._members)


def test_its_values_depend_on_the_pool_so_they_are_not_stored(tmp_path):
    with pytest.raises(InputError, match="no `identity`"):
        CachedReranker(reranker_of(), tmp_path / "values")


# --- Adapters ---


def test_an_adapter_holds_what_was_saved(adapter):
    parts = EvidenceParts.load(adapter)
    assert parts.name == EvidenceReranker(adapter=adapter).name == "toy"
    assert parts.max_size == 2
    given = linear_parts(maxsim=1.0, reading_order={"link": 2.0})
    np.testing.assert_array_equal(parts.network.linear, given.network.linear)
    np.testing.assert_array_equal(parts.reading_order, given.reading_order)
    assert parts.weights == given.weights


@pytest.mark.parametrize(
    ("tensor", "value", "said"),
    [
        ("mean", np.zeros(3), "'mean' has shape"),
        ("rarity", np.zeros(7), "'rarity' has to hold"),
        ("reading_order", np.full(28, np.nan), "'reading_order' has to hold"),
        ("output", None, "'output' is missing"),
        ("rarity", None, "lacks 'rarity'"),
    ],
)
def test_broken_tensors_are_refused(adapter, tmp_path, tensor, value, said):
    whole = load_adapter(adapter)
    tensors = {**whole.tensors, tensor: value}
    broken = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_adapter(tmp_path / "broken", broken, whole.config, "")
    with pytest.raises(ModelError, match=said):
        EvidenceParts.load(tmp_path / "broken")


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"max_size": 9}, "max_size is 9"), ({"max_size": "2"}, "max_size"), ({"weights": {}}, "missing or unknown")],
)
def test_broken_settings_are_refused(adapter, tmp_path, settings, said):
    whole = load_adapter(adapter)
    config = replace(whole.config, settings={**whole.config.settings, **settings})
    save_adapter(tmp_path / "broken", whole.tensors, config, "")
    with pytest.raises(ModelError, match=said):
        EvidenceParts.load(tmp_path / "broken")


def test_an_adapter_of_another_release_of_features_is_refused(adapter, tmp_path):
    whole = load_adapter(adapter)
    fewer = {name: tensor[..., :-1] for name, tensor in whole.tensors.items() if name in {"mean", "scale", "linear"}}
    tensors = {**whole.tensors, **fewer, "hidden": whole.tensors["hidden"][..., :-1]}
    save_adapter(tmp_path / "old", tensors, whole.config, "")
    with pytest.raises(ModelError, match="train the adapter again"):
        EvidenceParts.load(tmp_path / "old")


def test_an_adapter_of_another_form_is_refused(adapter):
    config = json.loads((adapter / "config.json").read_text())
    (adapter / "config.json").write_text(json.dumps({**config, "form": "something else"}))
    with pytest.raises(ModelError, match="something else"):
        corag.reranker("minilm-multihop", adapter=adapter)


@pytest.mark.parametrize("name", ["minilm-multihop", "minilm-factoid", "minilm-longform", "minilm-sentence"])
def test_the_shipped_adapters_load_and_rank(name):
    reranker = corag.reranker(name)
    assert reranker.name == name
    values = reranker.score(
        "When was the maker of Sky Ark born?", ["Ann Lee, the maker of Sky Ark, was born in 1950.", "Rome is a city."]
    )
    assert values[0] > values[1]
