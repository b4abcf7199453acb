"""Which agent decides, and what becomes of rerankers that cannot be used here."""

import json
import logging
import sys
import threading

import numpy as np
import pytest

import agent
import corag
from agent import AgentPrediction, CheckpointError
from corag import Candidate, Chunk
from corag.cli.main import MISTAKE, main
from corag.errors import InputError, MissingExtraError, ModelError
from corag.registry import RERANKERS
from corag.selectors.corag.agents import SHIPPED_AGENT, UsableRerankers, load_agent, shipped_agent
from corag.selectors.corag.features import agent_features
from corag.selectors.corag.selector import Corag, corag_fixed
from corag.selectors.problem import SelectionProblem
from tests.corag.worlds import (
    CHARACTERS,
    HashEmbedder,
    HashReranker,
    SignEmbedder,
    essence,
    offer,
    save_agent,
    sign_agent,
)
from tests.experiments.worlds import save_small_agent

POOL = offer("the cat sat", "a dog ran", "birds fly high", "fish swim")
QUESTION = "How deep is the lake in which the Oro ends?"


class Failing:
    """Can be built and fails when asked, as a reranker does that loads its model late."""

    name = "failing"

    def score(self, query, texts):
        raise ModelError("its model is not here")


def not_installed(**settings):
    raise MissingExtraError("install it with: pip install 'corag[some]'")


@pytest.fixture
def parts(monkeypatch):
    """Rerankers that count how often they are built, one that fails when used, one that is not installed."""
    built = []

    def counted(name):
        def build():
            built.append(name)
            reranker = HashReranker()
            reranker.name = name
            return reranker

        return build

    for name in ("first", "second", "third"):
        monkeypatch.setitem(RERANKERS.parts, name, counted(name))
    monkeypatch.setitem(RERANKERS.parts, "failing", Failing)
    monkeypatch.setitem(RERANKERS.parts, "not-installed", not_installed)
    return built


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """The folder where parts that ship with the project lie; empty."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    monkeypatch.setattr("corag.models.trained.FOLDER", folder)
    return folder


def prediction(**probabilities):
    names = {name.replace("_", "-"): value for name, value in probabilities.items()}
    return AgentPrediction(max(names, key=names.get), 4, 0.3, 0.1, names)


# --- Rerankers that cannot be used ---


def test_the_most_probable_that_can_be_used_is_taken(parts, caplog):
    rerankers = UsableRerankers()
    asked = prediction(third=0.1, failing=0.3, second=0.2, not_installed=0.4, lost=0.0)
    for _ in range(2):
        found, passed_over = rerankers.predicted(asked)
        assert found.name == "second"
        assert passed_over == {
            "not-installed": "install it with: pip install 'corag[some]'",
            "failing": "its model is not here",
        }
    # Built once and warned of once; what is less probable is not touched.
    assert parts == ["second"]
    names = [record.getMessage().partition("the agent's reranker ")[2].split()[0] for record in caplog.records]
    assert names == ["'not-installed'", "'failing'"]
    assert "cannot be used here, so the next is taken: install it with: pip install" in caplog.text


def test_equal_probabilities_stand_in_label_order(parts):
    assert UsableRerankers().predicted(prediction(lost=0.6, second=0.2, first=0.2))[0].name == "second"


def test_what_the_agent_says_goes_before_its_probabilities(parts):
    asked = AgentPrediction("third", 4, 0.3, 0.1, {"first": 0.5, "second": 0.2, "third": 0.3})
    assert UsableRerankers().predicted(asked)[0].name == "third"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("lost", InputError, "reranker 'lost' is unknown"),
        ("failing", ModelError, "its model is not here"),
        ("not_installed", MissingExtraError, "pip install"),
    ],
)
def test_strict_makes_it_an_error(parts, name, error, message):
    with pytest.raises(error, match=message):
        UsableRerankers(strict=True).predicted(prediction(**{name: 0.9, "first": 0.1}))
    # What is not asked for may be missing.
    assert UsableRerankers(strict=True).predicted(prediction(**{name: 0.1, "first": 0.9}))[0].name == "first"


def test_none_can_be_used(parts):
    asked = prediction(lost=0.3, failing=0.7)
    with pytest.raises(InputError, match=r"none .* can be used here \(failing: its model .*; lost: reranker 'lost'"):
        UsableRerankers().predicted(asked)
    assert UsableRerankers().predicted(asked, spare=("first",))[0].name == "first"


def test_a_mistake_in_a_reranker_is_no_reason_to_take_another(monkeypatch):
    class Broken(Failing):
        def score(self, query, texts):
            raise ZeroDivisionError

    monkeypatch.setitem(RERANKERS.parts, "broken", Broken)
    with pytest.raises(ZeroDivisionError):
        UsableRerankers().predicted(prediction(broken=0.9, bm25=0.1))


def test_many_threads_build_it_once(parts):
    rerankers, asked = UsableRerankers(), prediction(lost=0.9, first=0.1)
    threads = [threading.Thread(target=rerankers.predicted, args=(asked,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert parts == ["first"]


def test_a_selection_says_what_was_passed_over(caplog):
    # What asks a question gets the first by odds of e^10, what does not the second.
    steered = sign_agent(rerankers=("lost", "bm25"))
    selector = Corag(agent=steered, embedder=SignEmbedder(), tokens=CHARACTERS)
    asked, stated = selector.select_many(["a cat?", "a cat"], [POOL, POOL], 40)
    assert (asked.trace.reranker, asked.trace.iterations) == ("bm25", 16)
    assert list(asked.trace.passed_over) == ["lost"]
    assert stated.trace.passed_over is None
    assert len(caplog.records) == 1
    settings = {"iterations": 16, "exploration": 1.0, "cost_weight": 0.25, "policy": "paper"}
    same = Corag(reranker="bm25", **settings, tokens=CHARACTERS).select("a cat?", POOL, 40)
    assert essence(asked) == essence(same)
    with pytest.raises(InputError, match="'lost', which is unknown here"):
        Corag(agent=steered, embedder=SignEmbedder(), strict=True)
    # A reranker of one's own stands in for all of them.
    Corag(agent=steered, embedder=SignEmbedder(), reranker=HashReranker(), strict=True).select("a cat?", POOL, 9)


# --- The agent by default ---


def test_without_a_shipped_agent_the_default_reranker_decides(shipped, caplog):
    selection = corag.selector("corag", tokens=CHARACTERS).select("a cat?", POOL, 40)
    assert (selection.trace.reranker, selection.trace.policy) == ("minilm-softsim", "beam")
    assert f"the agent '{SHIPPED_AGENT}' is not in" in selection.trace.no_agent
    for _ in range(2):
        # Each stand-in is told of once, however many selectors there are.
        agent_, reranker = (record.getMessage() for record in caplog.records)
        assert f"the agent '{SHIPPED_AGENT}' is not used: " in agent_
        assert "reranker 'minilm-softsim' is used in place of 'minilm-multihop'" in reranker
        corag.selector("corag", tokens=CHARACTERS)
    assert essence(selection) == essence(Corag(agent=None, tokens=CHARACTERS).select("a cat?", POOL, 40))
    with pytest.raises(InputError, match=r"is not in .*, where source tree and wheel have it"):
        Corag(strict=True)
    with pytest.raises(InputError, match="is not in"):
        corag_fixed(agent="default")


def test_the_shipped_agent_decides_by_default(shipped):
    folder = save_small_agent(shipped / SHIPPED_AGENT)
    selection = corag.selector("corag").select("a cat?", POOL, 40)
    trace = selection.trace
    said = agent.load(folder).predict(corag.embedder().embed(["a cat?"])[0])
    assert (trace.agent, trace.reranker, trace.policy) == (SHIPPED_AGENT, said.reranker, "paper")
    assert (trace.iterations, trace.exploration) == (said.iterations, pytest.approx(said.exploration))
    assert essence(selection) == essence(Corag(agent=folder).select("a cat?", POOL, 40))
    assert Corag(agent=folder).select("a cat?", POOL, 40).trace.agent is None
    assert corag_fixed(agent="default").config.iterations == 4


@pytest.mark.parametrize(
    "setting",
    [
        {"reranker": "bm25"},
        {"policy": "greedy"},
        {"iterations": 10},
        {"max_scored": 9},
        {"exploration": 0.3},
        {"cost_weight": 0.1},
        {"prefilter": 0.5},
        {"agent": None},
        {"agent": "none"},
    ],
)
def test_what_is_set_by_hand_is_not_left_to_the_shipped_agent(shipped, setting):
    save_small_agent(shipped / SHIPPED_AGENT)
    assert Corag().agent is not None
    selector = Corag(**setting)
    assert selector.agent is None
    trace = selector.select("a cat?", POOL, 40).trace
    assert not {"agent", "no_agent", "probabilities"} & set(trace.to_dict())


def test_a_shipped_agent_without_its_rerankers_leaves_the_choice_to_the_default_one(shipped, parts):
    save_small_agent(shipped / SHIPPED_AGENT, rerankers=("failing", "not-installed"))
    trace = Corag().select("a cat?", POOL, 40).trace
    assert trace.reranker == "minilm-softsim"
    assert set(trace.passed_over) == {"failing", "not-installed"}
    with pytest.raises((ModelError, MissingExtraError)):
        Corag(strict=True).select("a cat?", POOL, 40)


def test_a_shipped_agent_for_another_embedder_is_left_out(shipped, caplog):
    save_small_agent(shipped / SHIPPED_AGENT)
    trace = Corag(embedder=SignEmbedder()).select("a cat?", POOL, 40).trace
    assert "trained on embeddings by 'minilm', but the embedder given is 'sign'" in trace.no_agent
    assert trace.no_agent in caplog.text


def test_a_shipped_agent_whose_embedder_is_not_installed_is_left_out(shipped, monkeypatch, caplog):
    monkeypatch.setattr("corag.selectors.corag.agents.make_embedder", lambda name: not_installed())
    save_small_agent(shipped / SHIPPED_AGENT)
    found = shipped_agent()
    assert (found.agent, found.embedder) == (None, None)
    assert "pip install 'corag[some]'" in found.reason
    assert found.reason in caplog.text
    with pytest.raises(MissingExtraError):
        shipped_agent(strict=True)


def test_a_shipped_agent_that_cannot_be_read_is_warned_of(shipped, caplog):
    folder = save_small_agent(shipped / SHIPPED_AGENT)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"format_version": 2}))
    assert "format_version 2" in Corag().select("a cat?", POOL, 40).trace.no_agent
    assert "the agent 'agent-minilm' is not used: " in caplog.text
    with pytest.raises(CheckpointError, match="has format_version 2, but this release reads 1; install a matching"):
        Corag(strict=True)


def test_reading_a_checkpoint_without_safetensors(tmp_path, monkeypatch):
    folder = save_agent(tmp_path / "agent")

    # As where it is not installed: what imports it is imported anew, and fails.
    for name in [name for name in sys.modules if name.partition(".")[0] == "safetensors"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "agent.checkpoint")
    monkeypatch.delitem(vars(agent), "load", raising=False)
    with pytest.raises(MissingExtraError, match=r"agent.load needs safetensors.*pip install 'corag\[agent\]'"):
        load_agent(folder)


# --- Similarities that are not its embedder's cosines ---


def told_by(kind, texts, cosines):
    similarities = {
        "cosines": cosines,
        "cosines times 20": [20 * one for one in cosines],
        "scores": [9.5 - place for place in range(len(texts))],
        "ranks": range(1, len(texts) + 1),
        "order": [None] * len(texts),
        "another embedder's cosines": [0.1] * len(texts),
    }[kind]
    of_kind = {"scores": "score", "ranks": "rank"}.get(kind, "cosine")
    name = "bge-m3" if kind == "another embedder's cosines" else None
    return [
        Candidate(Chunk(text, text), similarity, of_kind, name)
        for text, similarity in zip(texts, similarities, strict=True)
    ]


@pytest.mark.parametrize("features", [("query", "curve"), ("query", "candidates", "curve")])
@pytest.mark.parametrize("kind", ["cosines times 20", "scores", "ranks", "order", "another embedder's cosines"])
def test_an_agent_computes_the_cosines_that_it_is_not_given(kind, features):
    texts = [f"{word} word" for word in "abcdefghijkl"]
    vectors = HashEmbedder().embed(["a?", *texts])
    cosines = (vectors[1:] @ vectors[0]).astype(float)
    ranking = cosines.argsort(kind="stable")[::-1]
    texts, cosines = [texts[place] for place in ranking], cosines[ranking].tolist()

    def made(kind):
        return agent_features(
            [SelectionProblem("a?", told_by(kind, texts, cosines), corag.tokens(), 9)], HashEmbedder(), features
        )

    np.testing.assert_allclose(made(kind), made("cosines"), atol=1e-6)


def test_an_agent_that_looks_at_no_similarities_embeds_no_candidate():
    embedder = SignEmbedder()
    agent_features(
        [SelectionProblem("a?", told_by("order", ["b", "c"], [0.1, 0.2]), corag.tokens(), 9)], embedder, ("query",)
    )
    assert embedder.embedded == ["a?"]


# --- On the command line ---


def ask(capsys, *arguments):
    # The reader that needs no checkpoint: the folder of shipped checkpoints is another here.
    status = main(["ask", QUESTION, "--json", "--reader", "extractive", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    return status, json.loads(captured.out)["trace"] if status == 0 else " ".join(captured.err.split())


@pytest.mark.slow
def test_asking_goes_by_the_shipped_agent(shipped, small_index, capsys):
    save_small_agent(shipped / SHIPPED_AGENT)
    # The question is one for a fact, which is looked for in sentences, of which the agent has not learnt.
    by_default = ask(capsys, "--index", small_index)[1]
    assert "agent" not in by_default
    assert by_default["unit"] == "sentence"
    index = ("--index", small_index, "--unit", "passage")
    assert ask(capsys, *index)[1]["agent"] == SHIPPED_AGENT
    assert ask(capsys, *index, "--strict")[1]["agent"] == SHIPPED_AGENT
    for setting in (["--agent", "none"], ["--reranker", "bm25"], ["--prefilter", "0.5"]):
        assert "agent" not in ask(capsys, *index, *setting)[1]
    assert main(["ask", QUESTION, "--reader", "extractive", *map(str, index)]) == 0
    assert f"; agent {SHIPPED_AGENT}, policy paper" in capsys.readouterr().out


def test_asking_without_a_shipped_agent(shipped, small_index, capsys):
    assert "no_agent" in ask(capsys, "--index", small_index, "--unit", "passage")[1]
    status, said = ask(capsys, "--index", small_index, "--strict")
    assert status == MISTAKE
    assert "give the folder of a checkpoint" in said


def test_asking_with_an_agent_that_knows_what_is_not_here(tmp_path, small_index, capsys, caplog):
    caplog.set_level(logging.WARNING)
    folder = save_small_agent(tmp_path / "agent", rerankers=("lost", "bm25"))
    trace = ask(capsys, "--index", small_index, "--agent", folder)[1]
    assert trace["reranker"] == "bm25"
    status, said = ask(capsys, "--index", small_index, "--agent", folder, "--strict")
    assert status == MISTAKE
    assert "'lost', which is unknown here" in said


@pytest.mark.slow
def test_comparing_means_by_corag_what_asking_means(shipped, small_data, monkeypatch):
    from experiments.evaluation.comparison import evaluate
    from experiments.evaluation.config import EvaluateConfig

    def trace_of(**settings):
        given = {"methods": "corag", "unit": "passage", "reader": "extractive", "limit": 1, "quiet": True} | settings
        config = EvaluateConfig(str(small_data), **given)
        chosen = []
        measure = Corag.select

        def noted(self, *arguments):
            chosen.append(measure(self, *arguments))
            return chosen[-1]

        monkeypatch.setattr(Corag, "select", noted)
        evaluate(config)
        monkeypatch.setattr(Corag, "select", measure)
        return chosen[0].trace

    assert "is not in" in trace_of().no_agent
    with pytest.raises(InputError, match="is not in"):
        trace_of(strict=True)
    folder = save_small_agent(shipped / SHIPPED_AGENT)
    assert trace_of().agent == trace_of(agent="default").agent == SHIPPED_AGENT
    for settings in ({"agent": "none"}, {"reranker": "bm25"}, {"prefilter": 0.5}):
        trace = trace_of(**settings)
        assert trace.agent is None and trace.probabilities is None
        assert trace.reranker == settings.get("reranker", "minilm-softsim")
    assert trace_of().probabilities == trace_of(agent=str(folder)).probabilities
    assert trace_of(reranker="bm25", agent=str(folder)).probabilities is not None
