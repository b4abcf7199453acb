"""Selectors that an agent names: which one a question gets, what is left out, and what the trace says."""

import numpy as np
import pytest

import corag
from agent import AgentConfig, ConfigurationAgent, save
from corag import Candidate, Chunk
from corag.errors import InputError, MissingExtraError, ModelError
from corag.registry import RERANKERS
from corag.selectors.corag.agents import load_agent
from corag.selectors.corag.features import question_vectors
from corag.selectors.corag.search import Corag
from corag.selectors.problem import SelectionProblem
from tests.fakes import CHARACTERS, HashEmbedder, HashReranker, SignEmbedder, offer, sign_agent

POOL = offer("the cat sat", "a dog ran", "birds fly high", "fish swim")


@pytest.fixture
def parts(monkeypatch):
    """Rerankers that count how often they are built, and one that is not installed."""
    built = []

    def counted(name):
        def build():
            built.append(name)
            reranker = HashReranker()
            reranker.name = name
            return reranker

        return build

    def not_installed():
        raise MissingExtraError("install it with: pip install 'corag[some]'")

    for name in ("first", "second"):
        monkeypatch.setitem(RERANKERS.parts, name, counted(name))
    monkeypatch.setitem(RERANKERS.parts, "not-installed", not_installed)
    return built


def named(agent, **settings):
    return Corag(agent=agent, embedder=SignEmbedder(), tokenizer=CHARACTERS, **settings)


def single(configuration):
    return ConfigurationAgent(AgentConfig((configuration,), configuration))


def test_each_question_gets_the_selector_that_the_agent_names(parts):
    selector = named(sign_agent(rerankers=("first", "second")))
    asked = selector.select("a cat?", POOL, 30)
    assert asked.trace.details["configuration"] == str(selector.predict("a cat?", POOL, 30))
    assert asked.trace.reranker == "first"
    assert '"iterations": 16' in asked.trace.details["configuration"]
    told = selector.select("a cat", POOL, 30)
    assert told.trace.reranker == "second" and "sure" in told.trace.details["because"]
    assert sum(told.trace.details["probabilities"].values()) == pytest.approx(1)
    # One by one or together: the same.
    many = selector.select_many(["a cat?", "a cat"], [POOL, POOL], 30)
    assert [one.text for one in many] == [asked.text, told.text]
    assert sorted(parts) == ["first", "second"]


@pytest.mark.parametrize("configuration", ["top-k(k=2)", "naive(reranker=bm25)"])
def test_one_configuration_for_all_questions_asks_no_embedder(configuration):
    selector = Corag(agent=single(configuration), tokenizer="minilm")
    selection = selector.select("a cat?", POOL, 12)
    expected = corag.selector(configuration, tokenizer="minilm").select("a cat?", POOL, 12)
    assert selection.text == expected.text
    assert selection.trace.details["configuration"] == configuration
    assert "all questions" in selection.trace.details["because"]


@pytest.mark.parametrize(("lacking", "error"), [("lost", ModelError), ("not-installed", MissingExtraError)])
def test_what_cannot_be_used_here_is_named(parts, lacking, error):
    with pytest.raises(error, match=r"lost|install it with"):
        named(sign_agent(rerankers=("first", lacking))).select("a cat", POOL, 30)


def test_the_fallback_of_an_agent_by_name(parts):
    fixed = corag.selector("corag-fixed", agent=sign_agent(rerankers=("first", "second")))
    # For whatever question: the agent would name the second for some.
    assert {fixed.select(query, POOL, 30).trace.reranker for query in ("a cat", "x?", "dogs and cats")} == {"first"}


def test_agents_are_loaded_from_folders_names_and_objects(tmp_path):
    folder = tmp_path / "agent"
    # `corag train` writes the checkpoint below its folder.
    for path in (folder, tmp_path / "runs" / "checkpoint"):
        save(path, sign_agent(), "# An agent for tests\n")
    assert load_agent(folder).config == load_agent(str(folder)).config == sign_agent().config
    assert load_agent(str(tmp_path / "runs")).config == sign_agent().config
    with pytest.raises(ModelError, match="hub"):  # offline, as all tests are
        load_agent("somebody/agent")
    for given, error in ((3, InputError), (tmp_path / "nowhere", ModelError), ("nobody", ModelError)):
        with pytest.raises(error):
            load_agent(given)
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="config"):
        Corag(agent=folder)


@pytest.mark.parametrize("spelled", [False, True])
def test_an_agent_that_was_trained_again_in_its_folder_is_served(tmp_path, spelled):
    folder = tmp_path / "runs"
    for reranker in ("bm25", "minilm-softsim"):
        agent = single(f"corag(unit=passage, reranker={reranker}, cost_weight=0.0)")
        save(folder / "checkpoint", agent, "# An agent for tests\n")
        where = {"method": f"corag(agent={folder})"} if spelled else {"agent": str(folder)}
        assert corag.select("Which cat?", ["the cat sat", "a dog ran"], 30, **where).trace.reranker == reranker


def test_what_is_given_is_kept_and_the_agent_names_the_rest(parts):
    trained = sign_agent(rerankers=("first", "second"))
    priced = named(trained, cost_weight=0.4, window="windows")
    selection = priced.select("a cat?", POOL, 30)
    assert selection.trace.reranker == "first" and selection.trace.cost_weight == 0.4
    assert selection.trace.iterations == 16
    # A setting that is given never silences the agent on the others: lambda is its 0.25.
    other = named(trained, reranker="bm25").select("a cat?", POOL, 30).trace
    assert (other.reranker, other.cost_weight) == ("bm25", 0.25)
    searched = named(trained, search={"policy": "paper", "iterations": 3}).select("a cat?", POOL, 30).trace
    assert (searched.reranker, searched.iterations, searched.cost_weight) == ("first", 3, 0.25)
    assert searched.exploration == selection.trace.exploration  # field by field
    # A price takes the place of a promise, as a promise that of a price.
    promised = Corag(agent=single("corag(reranker=bm25, keep=0.9)"), cost_weight=0.4).select("a cat?", POOL, 30).trace
    assert promised.cost_weight == 0.4 and "keep" not in promised.details
    cut = named(trained, unit="sentence").select("a cat?", POOL, 30).trace
    assert cut.reranker == "first" and "by sentences, first, lambda 0.25" in cut.details["because"]
    complete = {"unit": "passage", "reranker": "bm25", "cost_weight": 0.1}
    for settings in (complete, {"preset": "paper"}):
        assert named(trained, **settings).agent is None
    # A configuration that names no unit takes the one that is given.
    assert Corag(agent=single("naive(reranker=bm25)"), unit="sentence").select("a cat?", POOL, 30).ids
    assert Corag(agent="none").agent is Corag(agent=None).agent is None


def test_agents_that_cannot_be_used():
    with pytest.raises(InputError, match="sign"):
        Corag(agent=sign_agent(), embedder=HashEmbedder())


@pytest.mark.parametrize(
    ("scale", "kind", "embedder"), [(20.0, "score", None), (None, "rank", None), (0.1, "cosine", "bge-m3")]
)
def test_an_agent_computes_the_cosines_that_it_is_not_given(scale, kind, embedder):
    texts = [f"{word} word" for word in "abcdefghijkl"]
    vectors = HashEmbedder().embed(["a?", *texts])
    cosines = dict(zip(texts, (vectors[1:] @ vectors[0]).astype(float).tolist(), strict=True))
    ranking = sorted(texts, key=lambda text: -cosines[text])
    own = [Candidate(Chunk(text, text), cosines[text]) for text in ranking]
    others = [
        Candidate(Chunk(text, text), None if scale is None else scale * cosines[text], kind, embedder)
        for text in ranking
    ]
    given, computed = (
        question_vectors([SelectionProblem("a?", offered, corag.tokens(), 9)], HashEmbedder(), ("query", "curve"))[0]
        for offered in (own, others)
    )
    np.testing.assert_allclose(computed.query, given.query, atol=1e-6)
    np.testing.assert_allclose(np.sort(computed.similarities), np.sort(given.similarities), atol=1e-6)
