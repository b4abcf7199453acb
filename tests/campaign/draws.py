"""Random selectors with random settings, random candidates and budgets: each case is a function of its number."""

import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np

import corag
from corag import Candidate, Chunk
from corag.models.embedders import CachedEmbedder
from corag.selectors.car import Method
from corag.selectors.raptor.build import build_tree
from corag.text.documents import SEPARATOR, Document, passage, with_title
from corag.text.tokens import CallableCounter
from corag.types import TokenCounter
from tests.corag.rerankers.test_window import Letters
from tests.corag.text.tokens.worlds import counter, made_encoding
from tests.fakes import COUNTERS as DOZEN
from tests.fakes import (
    HashEmbedder,
    HashReranker,
    SetReranker,
    SignEmbedder,
    TableReranker,
    odd_reader,
    odd_summarizer,
    sign_agent,
)


class Mean(SetReranker):
    """Values a text by its parts, so that no order is better than another and ties abound."""

    name = "mean"

    def score(self, query, texts):
        return np.array([np.mean([len(part) % 4 / 4 for part in text.split(SEPARATOR)]) for text in texts])


class Lost(HashReranker):
    """Says of some texts that their value is no number."""

    name = "lost"

    def score(self, query, texts):
        values = super().score(query, texts)
        return np.where(values < 0.1, np.nan, values)


class LostEmbedder(HashEmbedder):
    """Gives some texts no direction, or vectors that are no numbers."""

    def embed(self, texts):
        vectors = super().embed(texts)
        vectors[vectors[:, 0] > 0.9] = np.nan
        vectors[vectors[:, 0] < -0.5] = 0
        return vectors


class Coarse(HashEmbedder):
    """Four directions, so that many texts are equal."""

    def __init__(self):
        super().__init__("coarse")

    def embed(self, texts):
        return np.array([np.eye(8)[len(text) % 4] for text in texts], dtype=np.float32).reshape(len(texts), 8)


RERANKERS = (
    HashReranker,
    SetReranker,
    lambda: TableReranker({}, default=0.5),
    Mean,
    lambda: "bm25",
    lambda: Letters(window=30),
)

COUNTERS = (
    *DOZEN,
    counter("byte-level"),
    counter("unigram"),
    CallableCounter(made_encoding().encode_ordinary, name="tiktoken/made"),
    CallableCounter(lambda text: 0, name="nothing"),
    CallableCounter(lambda text: len(text) * 10**9, name="huge"),
    CallableCounter(lambda text: len(f"<|user|>{text}<|end|>\n<|assistant|>".split("|")) + len(text), name="template"),
)
"""The first dozen are those of the other tests."""


def one_of(*values):
    return lambda rng, tokens: rng.choice(values)


def number(low, high):
    return lambda rng, tokens: rng.choice([low, high, rng.uniform(low, high)])


def made(*builds):
    return lambda rng, tokens: rng.choice(builds)()


def fake_reranker(rng, tokens):
    # One in fifty gives values that are no numbers.
    return Lost() if rng.random() < 0.02 else rng.choice(RERANKERS)()


def fake_embedder(rng, tokens):
    return LostEmbedder() if rng.random() < 0.02 else rng.choice((HashEmbedder, HashEmbedder, Coarse))()


def inner(*names):
    """A selector inside another one."""
    return lambda rng, tokens: drawn_selector(rng, rng.choice(names), tokens, unit="passage")


@cache
def tree():
    """A tree over a few chunks, which selections with a given tree choose from."""
    chunks = [Chunk(f"leaf{place}", f"Leaf {place} is {'green' if place % 3 else 'red'}.") for place in range(9)]
    return build_tree(chunks, CachedEmbedder(HashEmbedder()), odd_summarizer(), 16)


def drawn_search(rng, tokens):
    """Return fields of a search, of which a policy may refuse some."""
    draws = {
        "policy": one_of("bayesian", "paper"),
        "iterations": one_of(1, 2, 5, 12),
        "max_scored": one_of(1, 7, 40),
        "exploration": number(0.0, 5.0),
        "choice": one_of("value", "value-minus-cost", "mean", "utility"),
        "backup": one_of("best-child", "all-children", "utility"),
        "visits": one_of("total", "parent"),
        "parallel": one_of(1, 2, 5),
    }
    return {name: draw(rng, tokens) for name, draw in draws.items() if rng.random() < 0.3}


SHARE, EITHER = number(0.0, 1.0), one_of(True, False)
DRAWS = {
    "unit": one_of("passage", "passage", "sentence", "window(2)"), "max_units": one_of(1, 3, 10, 60),
    "order": one_of("value", "ends", "document"),
    "reranker": fake_reranker, "window": one_of("windows", "truncate"),
    "embedder": fake_embedder, "seed": one_of(0, 1, 2**32 - 1),
    "summarizer": lambda rng, tokens: odd_summarizer(tokens),
    "max_summary_tokens": one_of(None, 1, 20), "summary_tokens": one_of(1, 8), "with_query": EITHER,
    "preset": one_of(None, None, None, "paper", "public-code"), "search": drawn_search, "cost_weight": number(0.0, 2.0),
    "max_length": one_of(1, 2, 3), "max_orders": one_of(50, 3000),
    "k": one_of(1, 2, 5, 10**6), "num_tokens": one_of(1, 20, 1024), "skip": EITHER,
    "minimum": SHARE, "threshold": SHARE, "relevance_weight": SHARE,
    "head": SHARE, "tail": SHARE, "buffer": one_of(0, 1, 5),
    "method": one_of(*get_args(Method)), "max_candidates": one_of(1, 5, 40),
    "scaling": one_of("unit", "standard"), "solver": one_of("exact", "scikit-learn"),
    "tau": one_of(1, 2, 3), "max_size": one_of(3, 20), "clustering": one_of("dynamic", "average", "random", "one"),
    "tree": made(lambda: None, lambda: None, lambda: None, tree),
    "part": inner("top-k", "adaptive-k", "crag"), "full": inner("full", "corag"),
    "reader": made(odd_reader), "min_confidence": SHARE, "agent": made(sign_agent),
}  # fmt: skip
"""How settings are drawn, by name; a new one needs a line here."""

# Every case has a tokenizer, and `corag` an agent in place of a reranker.
BY_ITSELF = {"corag": {"tokenizer", "agent", "embedder", "keep"}}
DRAWN = {
    name: {key: DRAWS[key] for key in corag.SELECTORS.parameters(name) if key not in BY_ITSELF.get(name, {"tokenizer"})}
    for name in corag.SELECTORS.names
}
"""How each setting of each selector is drawn."""

ALWAYS = {
    "reranker", "embedder", "summarizer", "reader", "agent", "max_length", "summary_tokens", "selector", "part",
    "full", "max_orders",
}  # fmt: skip
"""Settings whose defaults would load a model, or take long."""
# The others take a tenth of their time; and of `none` a few are enough.
SLOW = ("none", "car", "crag", "raptor", "upper", "edc2", "sentence-threshold")


def drawn_selector(rng, name, tokens, **fixed):
    """Build a selector with some of its settings drawn; `fixed` ones, where it takes them."""
    draws = DRAWN[name]
    chance = rng.choice((0.1, 0.3, 0.8))
    settings = {key: draw(rng, tokens) for key, draw in draws.items() if key in ALWAYS or rng.random() < chance}
    settings |= {key: value for key, value in fixed.items() if key in draws}
    if settings.get("tree") is not None:
        settings["embedder"] = HashEmbedder()
    if name == "corag":
        settings["agent"] = "none"
    if name == "corag" and not fixed and rng.random() < 0.3:
        settings = {key: settings[key] for key in ("cost_weight", "window", "max_units") if key in settings}
        settings |= {"agent": sign_agent(rerankers=("bm25", "hash")), "embedder": SignEmbedder()}
    return corag.selector(name, tokenizer=tokens, **settings)


# --- Candidates ---

WORDS, ODD_TEXTS, QUERIES = json.loads(Path(__file__).with_name("texts.json").read_text(encoding="utf-8")).values()


def drawn_text(rng):
    if rng.random() < 0.12:
        return rng.choice(ODD_TEXTS)
    sentences = [
        " ".join(rng.choices(WORDS, k=rng.randint(1, 6))) + rng.choice((".", ".", "?", "", "\n"))
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]
    return " ".join(sentences)


def drawn_candidates(rng, count):
    """Draw candidates with similarities of one kind; some are equal, some stand twice."""
    kind = rng.choice(("cosine", "cosine", "cosine", "cosine", "score", "rank", None))
    tied, ranked, titled = rng.random() < 0.2, rng.random() < 0.15, rng.random() < 0.3
    embedder = rng.choice((None, None, "hash"))
    found = []
    overlapping = " ".join(drawn_text(rng) for _ in range(count)) if rng.random() < 0.15 else ""
    for place in range(count):
        if found and rng.random() < 0.08:
            chunk = rng.choice(found).chunk
            chunk = chunk if rng.random() < 0.5 else Chunk(f"again{place}", chunk.text)
        elif overlapping:
            # Anywhere, in the midst of words and within each other, too.
            start = rng.randrange(len(overlapping))
            end = rng.randint(start + 1, len(overlapping))
            metadata = {"document": "d", "title": "Lake Varn" if titled else "", "start": start, "end": end}
            text = with_title(metadata["title"], overlapping[start:end])
            chunk = Chunk(f"d#{start}-{end}", text, metadata)
        elif titled:
            text, title = drawn_text(rng), rng.choice(("", "Lake Varn", "The cat"))
            chunk = passage(Document(f"d{place}", text, title))
        else:
            chunk = Chunk(f"c{place}", drawn_text(rng))
        similarity = {"cosine": rng.uniform(-1, 1), "score": rng.uniform(-20, 20), "rank": place + 1}.get(kind or "")
        if tied and similarity is not None:
            similarity = round(similarity)
        rank = place if ranked else None
        found.append(Candidate(chunk, similarity, kind or "cosine", embedder=embedder, rank=rank))
    if rng.random() < 0.2 and not ranked:
        rng.shuffle(found)
    return found


@dataclass(frozen=True)
class Case:
    """One selection to be made.

    Attributes:
        number: All else follows from it.
    """

    number: int
    name: str
    selector: Any
    tokens: TokenCounter
    query: Any
    candidates: Any
    budget: Any

    def __str__(self):
        return (
            f"case {self.number}: {self.selector} counting {self.tokens.name}, {self.budget!r:.20} tokens, query "
            f"{self.query!r:.40}, candidates {self.candidates!r:.600}"
        )


def drawn_case(number):
    """Return the case of a number.

    Raises:
        CoragError: The settings contradict each other.
    """
    rng = random.Random(f"case {number}")
    tokens = rng.choice(COUNTERS)
    name = rng.choice([one for one in DRAWN if one not in SLOW] if rng.random() < 0.75 else list(DRAWN))
    selector = drawn_selector(rng, name, tokens)
    most = 6 if name in SLOW else 14
    count = rng.choices((0, 1, 2, rng.randint(3, most)), (1, 3, 3, 20))[0]
    if name in ("top-k", "full", "top-tokens", "naive") and rng.random() < 0.01:
        count = 300
    candidates = drawn_candidates(rng, count)
    # Most budgets buy some of the candidates, but not all.
    total = int(tokens.count([one.chunk.text for one in candidates]).sum()) + 1
    part = min(1 + int(total * rng.uniform(0.1, 1.1)), 10**12)
    budget = rng.choice((part, part, part, part, 1, rng.randint(1, 60), rng.randint(60, 1000), 10**12))
    return Case(number, name, selector, tokens, rng.choice(QUERIES), candidates, budget)
