"""Stand-ins for parts: cheap values and vectors, token counts that do not add up, tiny checkpoints."""

from zlib import crc32

import numpy as np
from hypothesis import strategies as st

import corag
from agent import AgentConfig, ConfigurationAgent, Ranges
from corag import Candidate, Chunk
from corag.errors import SummarizerError
from corag.rerankers.scorers import JoinedTextScorer
from corag.text.tokens import CallableCounter
from corag.types import Answer


class HashReranker:
    """Gives every text a value of its own, k / 2**20, and remembers what it was asked."""

    name = "hash"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.asked: list[str] = []

    def score(self, query, texts):
        self.asked.extend(texts)
        keys = [repr((self.seed, query, text)).encode() for text in texts]
        return np.array([crc32(key) % 2**20 / 2**20 for key in keys])

    def scorer(self, query, chunks):
        return JoinedTextScorer(self, query, chunks)


class SetReranker(HashReranker):
    """The same for scorers to which the order of chunks does not matter."""

    name = "set"

    def scorer(self, query, chunks):
        return JoinedTextScorer(self, query, chunks, order_matters=False)


class TableReranker:
    """Has given values of combinations, by ids of chunks: `TableReranker({("a",): 0.3, ("b", "a"): 0.9})`."""

    name = "table"

    def __init__(self, values, *, default=0.0):
        self._values, self._default = dict(values), default

    def score(self, query, texts):
        return self._of([tuple(text.split("\n\n")) for text in texts])

    def scorer(self, query, chunks):
        def score_orders(orders):
            return self._of([tuple(chunks[index].id for index in order) for order in orders])

        score_orders.order_matters, score_orders.num_truncated = True, 0
        return score_orders

    def _of(self, combinations):
        return np.array([self._values.get(ids, self._default) for ids in combinations], dtype=np.float64)


COUNTERS = [
    corag.tokens(),
    corag.tokens("estimate"),
    *(
        CallableCounter(count, name=name)
        for name, count in {
            "characters": len,
            "words": lambda text: len(text.split()),
            "distinct characters": lambda text: len(set(text)),
            "squared": lambda text: len(text) ** 2,
            "cubed": lambda text: len(text) ** 3 // 50,
            "dear newlines": lambda text: len(text) + 7 * text.count("\n"),
            "dear joints": lambda text: len(text.split()) + 5 * text.count(".\n\n") + text.count("\n\nb"),
            "free when short": lambda text: len(text) if len(text) > 8 else 0,
            "a surcharge when long": lambda text: len(text) + (40 if len(text) > 20 else 0),
            "anything at all": lambda text: crc32(text.encode()) % 60,
        }.items()
    ),
]
"""Among them counts of a joined text far above those of its parts together."""

TEXTS = st.text("ab. \n\x00é☃א", max_size=12) | st.text("ab .", min_size=20, max_size=60)

QUESTIONS = st.sampled_from(["a", "who is b?", "\x00", "the", "☃ é"])


def offer(*texts: str, similarities=None) -> list[Candidate]:
    """Candidates `c0`, `c1`, ... of falling similarity."""
    similarities = similarities or [1 - rank / 10 for rank in range(len(texts))]
    return [Candidate(chunk, similarity) for chunk, similarity in zip(chunks_of(texts), similarities, strict=True)]


def chunks_of(texts):
    """Chunks `c0`, `c1`, ... of texts."""
    return [Chunk(f"c{rank}", text) for rank, text in enumerate(texts)]


CHARACTERS = CallableCounter(len, name="characters")
WORDS = CallableCounter(str.split, name="words")

pools = st.lists(st.tuples(TEXTS, st.floats(-1, 1)), max_size=5).map(
    lambda rows: offer(*(text for text, _ in rows), similarities=[similarity for _, similarity in rows])
)


class SignEmbedder:
    """Tells questions with a question mark from those without."""

    name, dimension = "sign", 2

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def embed(self, texts):
        self.embedded.extend(texts)
        return np.array([[1.0, 0.0] if "?" in text else [0.0, 1.0] for text in texts], dtype=np.float32)


class HashEmbedder:
    """Gives every text a direction of its own, and counts the texts."""

    dimension = 8

    def __init__(self, name="hash"):
        self.name, self.num_embedded = name, 0

    def embed(self, texts):
        self.num_embedded += len(texts)
        rows = [np.random.default_rng(crc32(repr(text).encode())).normal(size=8) for text in texts]
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), 8)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class AskingEmbedder(HashEmbedder):
    """Embeds questions otherwise than texts."""

    def embed_queries(self, texts):
        return self.embed([f"query: {text}" for text in texts])


def sign_agent(*, rerankers=("bm25", "minilm-softsim"), embedder="sign") -> ConfigurationAgent:
    """An agent whose predictions are worked out by hand.

    With a question mark its map is (1, 0) and it says: the first reranker, by odds of e^10; 16 iterations (the
    sigmoid of 30 is 1); c and lambda in the middle of their ranges, 1.0 and 0.25. Without one: the second
    reranker, 1 iteration, the same c and lambda.
    """
    configurations = tuple(f"corag(unit=passage, reranker={name})" for name in rerankers)
    config = AgentConfig(
        configurations,
        configurations[0],
        feature_dim=2,
        embedder=embedder,
        hidden=(),
        map_dim=2,
        ranges=Ranges(iterations=(1, 16), exploration=(0.0, 2.0), cost_weight=(0.0, 0.5)),
        fallback_settings=(7, 0.3, 0.1),
    )
    weights = {name: np.zeros(shape, dtype=np.float32) for name, shape in config.tensor_shapes.items()}
    weights["encoder.0.weight"] = np.eye(2, dtype=np.float32)
    weights["choice.weight"] = 10 * np.eye(2, dtype=np.float32)
    weights["settings.weight"][0] = (30.0, -30.0)
    return ConfigurationAgent(config, weights)


def essence(selection):
    """What two equal selections agree in: all but timings."""
    return selection.ids, selection.text, selection.cost_tokens, selection.value, selection.method


class FakeReader:
    """Gives an answer, or what a function of question and context says; an error is raised.

    It remembers the requests, and is interrupted once it has answered so many as its patience.
    """

    def __init__(self, answer, name="fake"):
        self.name, self.asked, self._answer, self.patience = name, [], answer, 10**9

    def answer(self, query, context):
        if len(self.asked) >= self.patience:
            raise KeyboardInterrupt
        self.asked.append((query, context))
        return said(self._answer, query, context)


class FakeSummarizer:
    """Gives its replies in turn, or what a function of the request says; an error is raised. Remembers the requests."""

    name = identity = "fake"

    def __init__(self, *replies, tokens=CHARACTERS, window=None, concurrent=1):
        self.replies, self.tokens, self.window_tokens, self.max_concurrent = replies, tokens, window, concurrent
        self.asked = []

    def summarize(self, request):
        self.asked.append(request)
        return said(self.replies[(len(self.asked) - 1) % len(self.replies)], request)


def said(reply, *asked):
    """A reply, or what it says if it is a function; an error is raised."""
    reply = reply(*asked) if callable(reply) else reply
    if isinstance(reply, BaseException):
        raise reply
    return reply


def odd_reader():
    """Answers every other context; the same for the same context."""
    return FakeReader(lambda query, context: Answer("Yes." if crc32(context.encode()) % 2 else ""), "odd")


def odd_summarizer(tokens=None):
    """Begins to say the texts again; of some it says nothing, at others it fails. The same for the same texts."""

    def summary(request):
        mood = crc32(repr(request.texts).encode()) % 4
        return (SummarizerError("no mood"), "", " and ".join(request.texts))[min(mood, 2)]

    return FakeSummarizer(summary, tokens=tokens or corag.tokens(), concurrent=2)


class AxisEmbedder:
    """Texts that begin with the same letter point the same way; the question between a and b, nearer to a."""

    name, dimension = "axis", 6

    def embed(self, texts):
        rows = [
            np.eye(6)["abcdef".index(text[0])] if text[0] in "abcdef" else np.array([2, 1, 0.5, 0, 0, 0])
            for text in texts
        ]
        return np.array(rows, dtype=np.float32).reshape(len(texts), 6)
