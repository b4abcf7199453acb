"""A language model values contexts by the probability of its yes."""

import math

import pytest

import corag
from corag.errors import ReaderError, ScoringError
from corag.testing import QUESTION
from corag.types import Chunk
from tests.chat_server import ChatServer, Reply, weighing

CHUNKS = [Chunk(f"c{number}", f"Fact {number} about {name}.") for number, name in enumerate(("Ada", "Bo", "Cy", "Di"))]


def told(**alternatives):
    return Reply("yes", log_probabilities=[0.0], alternatives={k: math.log(v) for k, v in alternatives.items()})


def openai_part(server):
    return f"llm(reader=openai(model=llama3.1:8b, base_url={server.base_url}))"


@pytest.mark.parametrize("kind", ["openai", "ollama"])
def test_the_value_is_the_share_of_yes(kind):
    # .5 + .1 of yes, .2 of no; what is neither does not count: .6 / .8.
    reply = Reply(
        "Yes",
        log_probabilities=[math.log(0.5)],
        alternatives={"Yes": math.log(0.5), "No": math.log(0.2), " yes": math.log(0.1), "Well": math.log(0.2)},
    )
    with ChatServer(reply) as server:
        reader = {
            "openai": f"openai(model=llama3.1:8b, base_url={server.base_url})",
            "ollama": f"ollama(model=llama3.1:8b, host={server.host})",
        }[kind]
        reranker = corag.reranker(f"llm(reader={reader})")
        assert reranker.score(QUESTION, ["Berlin.", " ", "Berlin."]).tolist() == pytest.approx([0.75, 0.0, 0.75])
        [request] = server.chats
    assert request["top_logprobs"] == 20
    assert request.get("max_tokens", request.get("options", {}).get("num_predict")) == 1


def test_a_prompt_may_fill_a_window_but_for_the_one_token_of_the_reply():
    with ChatServer(weighing) as server:
        reader = f"openai(model=llama3.1:8b, base_url={server.base_url}, window=400, tokenizer=minilm)"
        assert corag.reranker(f"llm(reader={reader})").score(QUESTION, ["Berlin."])[0] > 0


def test_a_child_repeats_its_parents_prompt_up_to_the_appended_chunk():
    with ChatServer(weighing) as server:
        scorer = corag.reranker(openai_part(server)).scorer(QUESTION, CHUNKS)
        scorer([(2, 0)])
        scorer([(2, 0, 1), (3,), (2, 0, 3), (2,)])
        parent, *rest = [request["messages"][-1]["content"] for request in server.chats]
    up_to_its_context = parent[: parent.index(CHUNKS[0].text) + len(CHUNKS[0].text)]
    children = [prompt for prompt in rest if prompt.startswith(up_to_its_context)]
    assert len(children) == 2
    closing = parent[len(up_to_its_context) :]
    assert all(prompt.endswith(closing) for prompt in rest) and len(closing) < 50


def test_the_tree_is_searched_by_default():
    with ChatServer(weighing) as server:
        selector = corag.selector("corag", agent="none", unit="passage", reranker=openai_part(server))
        candidates = [corag.Candidate(chunk, 0.5) for chunk in CHUNKS]
        trace = selector.select(QUESTION, candidates, 24).trace
    assert trace.policy == "paper"


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (Reply("yes"), ReaderError, "top_logprobs"),
        (told(Maybe=0.9, Hm=0.1), ScoringError, "'Maybe'"),
    ],
)
def test_a_reply_without_yes_and_no_is_an_error(reply, error, message):
    with ChatServer(reply) as server, pytest.raises(error, match=message):
        corag.reranker(openai_part(server)).score(QUESTION, ["Berlin."])
