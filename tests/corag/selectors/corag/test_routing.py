"""Which configuration a question gets, and checkpoints that say so."""

import json
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

import corag
from corag.errors import InputError, ModelError
from corag.optional import warn_once
from corag.selectors.corag.routing import FREE, Kind, Prices, Router, Worth, prices_of
from corag.selectors.corag.selector import Corag
from corag.selectors.corag.tuned import Tuned
from corag.types import Candidate, Chunk

ONE, TWO, THREE = "top-k(k=1)", "top-k(k=2)", "top-k(k=3)"
TEXTS = [f"Passage {number} says something of its own." for number in range(6)]


class TwoWords:
    """Embeds a text by whether it begins with "who", "what", or neither."""

    name, dimension = "two-words", 3

    def embed(self, texts):
        rows = {"who": [1.0, 0.0, 0.0], "what": [0.0, 1.0, 0.0]}
        return np.array([rows.get(text.lower().split()[0], [0.0, 0.0, 1.0]) for text in texts], np.float32)


def candidates(kind="cosine"):
    return [
        Candidate(Chunk(str(place), text), 7.0 - place if kind == "score" else 0.9 - 0.1 * place, kind)
        for place, text in enumerate(TEXTS)
    ]


def checkpoint(path, *, numbers=3, **changes):
    """Two kinds: "who" is best served by the second configuration, "what" by the third; the first costs least."""
    path.mkdir(exist_ok=True)
    worth = {
        "quality": [[0.0, 0.2, 0.0], [0.0, 0.0, 0.1]],
        "budget_share": [[0.2, 0.5, 0.9], [0.2, 0.5, 0.9]],
        "seconds": [[0.1, 0.1, 0.1], [0.1, 0.1, 0.1]],
    }
    content = {
        "form": "corag-tuned",
        "format_version": 2,
        "chosen": {"selector": ONE, "retrieval": None},
        "configurations": [{"selector": name, "retrieval": None} for name in (ONE, TWO, THREE)],
        "kinds": [
            {"name": "who", "about": "questions about people", "questions": 10},
            {"name": "what", "about": "questions about things", "questions": 20},
        ],
        "worth": worth,
        "unknown": {name: [0.01, 0.0, 0.0] if name == "quality" else rows[0] for name, rows in worth.items()},
        "sharpness": 20.0,
        "unsure_below": 0.5,
        "min_gain": 0.0,
        "as_good": [[1.0, 0.9, 0.5], [1.0, 0.5, 0.8]],
        "network": False,
        "features": ["query"],
        "embedder": "two-words",
        "prefer": "quality",
        **changes,
    }
    save_file({"centres": np.eye(numbers, dtype=np.float32)[:2]}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(content))
    return path


def choosing(path, **settings):
    return Corag(agent=path, embedder=TwoWords(), **settings)


def test_each_kind_gets_its_configuration_and_what_is_unlike_all_the_default(tmp_path):
    made = choosing(checkpoint(tmp_path / "c"))
    questions = ["Who built it?", "What is it?", "Where is it?"]
    found = made.select_many(questions, [candidates()] * 3, 200)
    assert [len(one) for one in found] == [2, 3, 1]
    assert [len(made.select(question, candidates(), 200)) for question in questions] == [2, 3, 1]
    details = [one.trace.details for one in found]
    assert [one["tuned"] for one in details] == [TWO, THREE, ONE]
    assert [one["route"]["unsure"] for one in details] == [False, False, True]
    assert details[0]["because"] == (
        f"{TWO}: like questions about people (100% sure), expected to gain +0.200 over {ONE}; at least as good on 9 of "
        "10 such questions"
    )
    assert details[2]["because"].startswith(f"{ONE}, the default: the question is unlike all known kinds (cosine 0.00")


def test_a_least_gain_keeps_the_default(tmp_path):
    made = choosing(checkpoint(tmp_path / "c", min_gain=0.15))
    found = [made.select(question, candidates(), 200) for question in ("Who built it?", "What is it?")]
    assert [len(one) for one in found] == [2, 1]
    assert "nothing else is expected to gain" in found[1].trace.details["because"]


@pytest.mark.parametrize(
    ("prefer", "sizes"), [(None, [2, 3, 1]), ("quality", [2, 3, 1]), (0.3, [2, 1, 1]), ("0.3", [2, 1, 1]), (9, [1] * 3)]
)
def test_the_dial_weighs_anew_without_training(tmp_path, prefer, sizes):
    made = choosing(checkpoint(tmp_path / "c"), prefer=prefer)
    questions = ["Who built it?", "What is it?", "Where is it?"]
    assert [len(made.select(question, candidates(), 200)) for question in questions] == sizes


def test_a_checkpoint_is_used_as_it_was_made_unless_told_otherwise(tmp_path):
    path = checkpoint(tmp_path / "c", prefer="9")
    assert len(choosing(path).select("Who built it?", candidates(), 200)) == 1
    assert len(choosing(path, prefer="quality").select("Who built it?", candidates(), 200)) == 2


@pytest.mark.parametrize("prefer", ["cheap", -1, "-0.1", "nan", True, "inf"])
def test_what_is_no_preference_is_refused(tmp_path, prefer):
    with pytest.raises(InputError, match=r"prefer is .*; give quality, balanced, tokens, latency, or the price"):
        choosing(checkpoint(tmp_path / "c"), prefer=prefer)


def test_a_preference_needs_a_checkpoint_that_knows_costs():
    with pytest.raises(InputError, match="prefer is 'tokens', but agent 'default' is no checkpoint of corag tune"):
        Corag(prefer="tokens")


@pytest.mark.parametrize("kind", ["score", "rank"])
def test_similarities_of_another_kind_change_no_route(tmp_path, kind):
    path = checkpoint(tmp_path / "c", features=["query", "candidates"], unsure_below=0.1, numbers=6)
    made = choosing(path)
    given_ = [Candidate(one.chunk, None if kind == "rank" else one.similarity, kind) for one in candidates("score")]
    routes = [made.select("Who built it?", offered, 200).trace.details["route"] for offered in (candidates(), given_)]
    assert routes[0] == routes[1]


def test_a_reranker_that_is_missing_here_leaves_its_configuration_out(tmp_path, caplog):
    warn_once.cache_clear()
    names = [ONE, TWO, "naive(reranker=nobody/no-such-model)"]
    path = checkpoint(tmp_path / "c", configurations=[{"selector": name, "retrieval": None} for name in names])
    with caplog.at_level(logging.WARNING):
        made = choosing(path)
    assert "no-such-model) cannot be used here and is left out" in caplog.text
    assert len(made.select("What is it?", candidates(), 200)) == 1
    with pytest.raises(ModelError, match="no-such-model"):
        choosing(path, strict=True)


@pytest.mark.parametrize("name", ["naive(reranker=no-such-reranker)", "no-such-selector"])
def test_a_name_that_is_unknown_here_is_left_out_but_not_as_the_default(tmp_path, name):
    listed = [{"selector": one, "retrieval": None} for one in (ONE, TWO, name)]
    assert (
        len(choosing(checkpoint(tmp_path / "c", configurations=listed)).select("What is it?", candidates(), 200)) == 1
    )
    with pytest.raises(ModelError, match="is unknown"):
        choosing(checkpoint(tmp_path / "d", configurations=listed[::-1]))


def test_the_first_form_works_with_a_warning_and_knows_no_costs(tmp_path, caplog):
    warn_once.cache_clear()
    path = tmp_path / "c"
    path.mkdir()
    old = {"form": "corag-tuned", "format_version": 1, "router": [ONE, TWO], "embedder": "two-words"}
    (path / "config.json").write_text(json.dumps({**old, "chosen": {"selector": THREE, "retrieval": "text"}}))
    save_file({"centres": np.eye(3, dtype=np.float32)[:2]}, path / "model.safetensors")
    with caplog.at_level(logging.WARNING):
        made = choosing(path)
    assert "is a checkpoint of an older form" in caplog.text
    assert [len(made.select(one, candidates(), 200)) for one in ("Who built it?", "What is it?")] == [1, 2]
    assert made.wanted_retrieval == "text"
    with pytest.raises(InputError, match="is of an older form, without tokens and times; for prefer, tune again"):
        choosing(path, prefer="tokens")


@pytest.mark.parametrize(
    "change",
    [
        {"worth": {"quality": [[0.0]]}},
        {"unknown": {"quality": [0.0], "budget_share": [0.0], "seconds": [0.0]}},
        {"kinds": [{"name": "who", "about": "people", "questions": 1}]},
        {"configurations": []},
        {"features": ["smell"]},
        {"as_good": [[1.0]]},
        {"network": True},
        {"sharpness": None},
    ],
)
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path, change):
    with pytest.raises(ModelError, match="is no readable checkpoint of corag tune"):
        Tuned.load(checkpoint(tmp_path / "c", **change))


def test_centres_of_another_length_than_the_features_are_one_clear_error(tmp_path):
    with pytest.raises(ModelError, match="has centres of 6 numbers, but its features have 3"):
        choosing(checkpoint(tmp_path / "c", numbers=6))


def test_another_embedder_than_the_router_s_is_refused(tmp_path):
    with pytest.raises(ModelError, match="tells kinds of questions apart by 'two-words'"):
        Corag(agent=checkpoint(tmp_path / "c"), embedder=corag.embedder("minilm"))


FIGURES = st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=2, max_size=2).map(np.array)


@given(FIGURES, FIGURES, st.floats(0, 2), st.floats(0, 2))
@settings(max_examples=60, deadline=None)
def test_a_higher_price_of_tokens_never_chooses_a_dearer_configuration_for_a_kind(quality, share, low, high):
    low, high = sorted((low, high))
    worth = Worth(quality, share, np.zeros_like(share))
    unknown = Worth(quality.mean(axis=0), share.mean(axis=0), np.zeros(3))
    router = Router((Kind("a", "a"), Kind("b", "b")), worth, unknown, np.eye(2))
    for place, features in enumerate(np.eye(2)):
        [cheap], [dear] = (router.routes(features[None], Prices(budget=price)) for price in (high, low))
        own = share[place]
        # The default may be dearer than what a kind has: it stands where nothing gains over it.
        if cheap.gain and dear.gain:
            assert own[cheap.place] <= own[dear.place] + 1e-9


def test_no_configuration_is_chosen_that_cannot_be_used():
    worth = Worth(np.array([[0.0, 0.5], [0.0, 0.5]]), np.zeros((2, 2)), np.zeros((2, 2)))
    router = Router((Kind("a", "a"), Kind("b", "b")), worth, Worth(*np.zeros((3, 2))), np.eye(2))
    assert [route.place for route in router.routes(np.eye(2), FREE)] == [1, 1]
    assert [route.place for route in router.routes(np.eye(2), FREE, np.array([True, False]))] == [0, 0]


def test_named_preferences_have_prices():
    assert prices_of("quality") == prices_of(0) == Prices()
    assert prices_of("tokens").budget > prices_of("balanced").budget > 0
    assert prices_of("latency").second > 0


@pytest.mark.parametrize(
    ("settings", "thrift"),
    [
        ({}, None),
        ({"prefer": "latency"}, None),
        ({"prefer": "balanced"}, 1.0),
        ({"prefer": "tokens"}, 1.5),
        ({"prefer": 0.3}, 1.5),
        ({"prefer": "tokens", "thrift": 0.5}, 0.5),
    ],
)
def test_where_tokens_have_a_price_corag_stops_early(tmp_path, settings, thrift):
    names = ("corag", "corag(thrift=2)", THREE)
    path = checkpoint(tmp_path / "c", configurations=[{"selector": name, "retrieval": None} for name in names])
    made = choosing(path, **settings)
    assert made._tuned is not None
    built = [made._tuned._selector(name) for name in names]
    assert [getattr(one, "thrift", "none") for one in built] == [thrift, 2, "none"]
