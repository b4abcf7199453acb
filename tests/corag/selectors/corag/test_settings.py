"""Presets, lambda, and which setting wins over which."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corag
from agent import AgentConfig, ConfigurationAgent
from corag.errors import InputError
from corag.registry import RERANKERS
from corag.rerankers.scorers import JoinedTextScorer
from corag.selectors.corag.selector import Corag, corag_fixed
from corag.selectors.corag.settings import SearchSettings
from corag.types import Candidate, Chunk
from search import PRESETS, SearchConfig, SearchError
from tests.corag.table_reranker import TableReranker
from tests.corag.worlds import (
    CHARACTERS,
    QUESTIONS,
    HashReranker,
    SignEmbedder,
    essence,
    offer,
    pools,
    save_agent,
    sign_agent,
)

POOL = offer("the cat sat", "a dog ran", "birds fly high", "fish swim")
# A long combination is worth a little more than one short chunk.
COSTLY = TableReranker({("c3",): 0.6, ("c3", "c0"): 0.7, ("c0",): 0.1, ("c1",): 0.0, ("c2",): 0.2}, default=0.3)
POLICIES = ["bayesian", "paper", "public-code", "best-first", "beam", "greedy", "random"]


class Logits:
    """A reranker with logits, as cross-encoders have them."""

    name = "logits"

    def __init__(self, *, output: str = "probability"):
        self.output = output

    def score(self, query, texts):
        logits = np.array([len(text) - 10.0 for text in texts])
        return logits if self.output == "logit" else 1 / (1 + np.exp(-logits))

    def scorer(self, query, chunks):
        return JoinedTextScorer(self, query, chunks)


@pytest.fixture
def logits(monkeypatch):
    monkeypatch.setitem(RERANKERS.parts, "logits", Logits)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_the_search_of_its_source(preset):
    selector = corag.selector(f"corag(preset={preset}, reranker=bm25)")
    assert selector.config == SearchConfig.preset(preset)
    assert (selector.scale, selector.agent) == ("raw", None)
    assert str(selector) == f"corag(preset={preset}, reranker=bm25)"


def test_a_preset_is_searched_with_the_default_reranker_and_by_its_own_policy():
    selector = Corag(preset="paper")
    assert selector._reranker.name == "minilm-multihop"
    assert selector.config == SearchConfig.preset("paper")


def test_what_is_given_wins_over_a_preset():
    given = {"exploration": 1.0, "cost_weight": 0.4, "iterations": 3, "choice": "mean", "visits": "parent"}
    selector = Corag(preset="paper", reranker="bm25", scale="query", parallel=2, backup="best-child", **given)
    assert selector.config == SearchConfig.preset("paper", parallel=2, backup="best-child", **given)
    assert selector.scale == "query"
    # The weight is part of the utility, by which the preset picks.
    assert Corag(preset="paper", reranker="bm25", cost_weight=0.4).config.choice == "utility"


@pytest.mark.usefixtures("logits")
def test_a_preset_asks_for_logits_where_there_are_any():
    found = Corag(preset="paper", reranker="logits", tokens=CHARACTERS).select("who?", POOL, 40)
    assert found.trace.details["preset"] == "paper" and found.trace.details["logits"] is True
    assert found.value == len(found.text) - 10.0
    tree = found.trace.result.tree
    assert tree.value[1:].tolist() == [len(tree.order(1)) and 9 - 10.0, *tree.value[2:].tolist()]
    without = Corag(preset="paper", reranker=COSTLY, tokens=CHARACTERS).select("who?", POOL, 40).trace
    assert without.details["logits"] is False
    assert set(without.result.tree.value.tolist()) <= {0.0, 0.1, 0.2, 0.3, 0.6, 0.7}


@pytest.mark.usefixtures("logits")
def test_what_a_reranker_is_told_or_is_already_stays():
    def trace(**given):
        return Corag(tokens=CHARACTERS, **given).select("who?", POOL, 40).trace.details

    assert trace(preset="paper", reranker="logits(output=probability)")["logits"] is False
    assert trace(preset="paper", reranker=Logits())["logits"] is False
    assert trace(preset="public-code", reranker=Logits(output="logit"))["logits"] is True
    assert "logits" not in trace(reranker="logits")


def test_there_is_no_such_preset():
    with pytest.raises(InputError, match="preset is 'carrot'; it must be one of paper, public-code"):
        Corag(preset="carrot")
    with pytest.raises(InputError, match="preset is 'carrot'; it must be one of paper, public-code"):
        corag.selector("corag(preset=carrot)")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_weight_that_is_set_decides_the_answer_under_every_policy(policy):
    def ids(**given):
        selector = Corag(reranker=COSTLY, policy=policy, iterations=60, tokens=CHARACTERS, **given)
        return selector.select("who?", POOL, 40).ids

    assert ids() == ids(cost_weight=0) == ids(cost_weight=1, choice="value") == ("c3", "c0")
    assert ids(cost_weight=1) == ids(choice="value-minus-cost", cost_weight=1) == ("c3",)


def test_the_trace_tells_what_decided():
    def trace(**given):
        return Corag(reranker=COSTLY, tokens=CHARACTERS, **given).select("who?", POOL, 40).trace

    assert trace(policy="beam", cost_weight=0.5).cost_weight == 0.5
    assert trace(policy="beam", cost_weight=0.5).details["choice"] == "value-minus-cost"
    assert trace(policy="beam").cost_weight is None and not trace(policy="beam").details
    assert trace(policy="paper", parallel=2).details == {"parallel": 2}


@settings(deadline=None, max_examples=40)
@given(pool=pools.map(lambda pool: pool[:4]), query=QUESTIONS, budget=st.integers(1, 60), seed=st.integers(0, 99))
def test_with_exact_search_a_larger_weight_never_costs_more(pool, query, budget, seed):
    found = [
        Corag(reranker=HashReranker(seed), policy="paper", iterations=100, cost_weight=weight, tokens=CHARACTERS)
        for weight in (0, 0.1, 0.2, 0.3, 0.5)
    ]
    costs = [selector.select(query, pool, budget).cost_tokens for selector in found]
    assert costs == sorted(costs, reverse=True)


def test_a_weight_of_nothing_needs_no_scale():
    asked = []
    for weight in (None, 0):
        reranker = HashReranker(3)
        Corag(reranker=reranker, cost_weight=weight, tokens=CHARACTERS).select("who?", POOL, 40)
        asked.append(reranker.asked)
    assert asked[0] == asked[1]


def test_units_that_share_a_title_have_to_be_worth_their_tokens():
    class PerUnit(HashReranker):
        """Every unit is worth a tenth; ends by itself, so what titles save is spent."""

        search_policy = "beam"

        def score(self, query, texts):
            return np.array([0.1 * text.count(".") for text in texts])

    offered = [Candidate(Chunk("lake", "Lake Oro\nCold. Deep. Wide. Blue.", {"title": "Lake Oro"}))]

    def select(weight):
        selector = Corag(reranker=PerUnit(), cost_weight=weight, unit="sentence", tokens=CHARACTERS, scale="raw")
        return selector.select("Lake?", offered, 60)

    costs = [select(weight).cost_tokens for weight in (0, 0.2, 0.5, 1.0, 2.0)]
    assert costs == sorted(costs, reverse=True) and costs[0] > costs[-1] > 0


@pytest.mark.parametrize("name", ["backup", "visits"])
@pytest.mark.parametrize(
    ("policy", "reason"), [("beam", "has no tree"), ("public-code", "has its own"), (None, "has no")]
)
def test_settings_that_a_policy_has_no_use_for(name, policy, reason):
    value = {"backup": "utility", "visits": "total"}[name]
    with pytest.raises(InputError, match=f"{name} is '{value}', but policy '.*' {reason}.*set policy to paper"):
        Corag(reranker=COSTLY, policy=policy, **{name: value})
    assert getattr(Corag(reranker=COSTLY, policy="paper", **{name: value}).config, name) == value


def test_several_nodes_a_round_need_a_tree():
    with pytest.raises(SearchError, match="parallel is 2, but policy 'beam' expands no nodes"):
        Corag(reranker=COSTLY, policy="beam", parallel=2)
    assert Corag(reranker=COSTLY, policy="public-code", parallel=2).config.parallel == 2


# With an agent


@pytest.fixture(scope="module")
def by_cost(tmp_path_factory):
    """The folder of an agent whose labels were picked by value minus cost."""
    return save_agent(tmp_path_factory.mktemp("agents") / "by-cost", choice="value-minus-cost")


def configured(agent, **given):
    selector = Corag(agent=agent, embedder=SignEmbedder(), tokens=CHARACTERS, **given)
    plan = selector._plan(selector.problem("who?", POOL, 40), selector.predict("who?", POOL))
    return plan.config


def test_an_agent_picks_as_its_labels_did(by_cost):
    old = sign_agent()
    assert old.config.choice == "value"
    assert configured(old).choice == "value"
    assert configured(by_cost) == replace(configured(old), choice="value-minus-cost")
    assert configured(by_cost).cost_weight == pytest.approx(0.25)
    assert corag_fixed(agent=by_cost).config.choice == "value-minus-cost"
    assert corag_fixed(agent=old).config.choice == "value"


def test_what_is_given_wins_over_what_is_predicted(by_cost):
    assert configured(by_cost, choice="value").choice == "value"
    assert configured(sign_agent(), choice="value-minus-cost").choice == "value-minus-cost"
    given = configured(sign_agent(), cost_weight=0.4, iterations=3)
    assert (given.cost_weight, given.iterations, given.choice) == (0.4, 3, "value-minus-cost")
    assert given.exploration == pytest.approx(1.0)
    assert configured(by_cost, cost_weight=0).choice == "value"


def test_what_is_predicted_wins_over_a_preset(by_cost):
    for agent in (sign_agent(), by_cost):
        config = configured(agent, preset="paper")
        assert config == SearchConfig.preset(
            "paper", iterations=16, exploration=config.exploration, cost_weight=config.cost_weight
        )
        assert (config.exploration, config.cost_weight) == pytest.approx((1.0, 0.25))
    selector = Corag(agent=by_cost, preset="paper", embedder=SignEmbedder(), tokens=CHARACTERS)
    assert selector.select("who?", POOL, 40).trace.details["logits"] is False


@pytest.mark.usefixtures("logits")
def test_a_preset_asks_the_rerankers_of_an_agent_for_logits():
    agent = sign_agent(rerankers=("logits", "bm25"))
    selector = Corag(agent=agent, preset="paper", embedder=SignEmbedder(), tokens=CHARACTERS)
    assert selector.select("who?", POOL, 40).trace.details["logits"] is True


def test_the_choice_travels_with_the_checkpoint(tmp_path):
    folder = save_agent(tmp_path / "agent", choice="value-minus-cost")
    assert corag.selector("corag", agent=str(folder)).agent.config.choice == "value-minus-cost"
    before = sign_agent().config.to_dict()
    del before["choice"]
    assert AgentConfig.from_dict(before).choice == "value"
    with pytest.raises(ValueError, match="choice"):
        AgentConfig.from_dict({**before, "choice": "luck"})


def test_settings_that_are_not_given_change_nothing():
    assert SearchSettings().plain and not SearchSettings(choice="value").plain
    plain = Corag(reranker=COSTLY, tokens=CHARACTERS).select("who?", POOL, 40)
    assert essence(plain) == essence(Corag(reranker=COSTLY, choice="value", tokens=CHARACTERS).select("who?", POOL, 40))
    assert isinstance(sign_agent(), ConfigurationAgent)
