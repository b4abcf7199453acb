"""A world in which evidence features can be worked out by hand: every word is a direction of its own."""

import re

import numpy as np

from corag.models.encoders import DIMENSION, MAX_TOKENS, Encoded, TextEncoder, unit
from corag.rerankers.evidence.signals import FLAGS, PAIRS, SINGLES, Signals


class WordEncoder(TextEncoder):
    """Words are tokens, the state of a token is the unit vector of its word, special tokens are zero."""

    dimension, max_tokens = DIMENSION, MAX_TOKENS

    def __init__(self):
        self.words: dict[str, int] = {}
        self.texts_encoded = 0

    def windows(self, texts, window=0):
        cut = slice(window * MAX_TOKENS, (window + 1) * MAX_TOKENS)
        found = []
        for text in texts:
            matches = list(re.finditer(r"\w+", text))
            ids = [self.words.setdefault(match.group().lower(), len(self.words)) for match in matches[cut]]
            starts = [match.start() for match in matches[cut]]
            found.append((np.array(ids, np.int64), np.array(starts, np.int64), max(1, -(-len(matches) // MAX_TOKENS))))
        return found

    def whole_ids(self, texts):
        return [ids for ids, _, _ in self.windows(texts)]

    def sentence_embeddings(self, ids, *, query=False):
        return unit(np.array([states.mean(axis=0) for states in self.states(ids)]).reshape(-1, DIMENSION))

    def states(self, ids):
        self.texts_encoded += len(ids)
        rows = [np.zeros((len(row) + 2, DIMENSION), dtype=np.float32) for row in ids]
        for states, row in zip(rows, ids, strict=True):
            states[np.arange(1, len(row) + 1), row] = 1.0
        return rows

    def encoded(self, texts, window=0, *, query=False):
        windows = self.windows(texts, window)
        states = self.states([ids for ids, _, _ in windows])
        return [Encoded.of(ids, starts, of_text, n) for (ids, starts, n), of_text in zip(windows, states, strict=True)]


def signals_of(num_candidates, seed=0, question_tokens=3):
    rng = np.random.default_rng(seed)
    pairs = rng.random((num_candidates, num_candidates, len(PAIRS)))
    pairs[np.arange(num_candidates), np.arange(num_candidates)] = 0
    return Signals(
        rng.random((num_candidates, len(SINGLES))),
        pairs,
        rng.random((num_candidates, question_tokens)),
        (rng.random((num_candidates, question_tokens)) > 0.5).astype(float),
        np.full(question_tokens, 1 / max(1, question_tokens)),
        rng.random(len(FLAGS)),
    )
