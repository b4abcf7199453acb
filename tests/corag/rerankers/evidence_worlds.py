"""A world in which evidence features can be worked out by hand: every word is a direction of its own."""

import re
from types import SimpleNamespace

import numpy as np

from corag.models.encoders import DIMENSION, MAX_TOKENS, BertEncoder
from corag.rerankers.evidence.signals import FLAGS, PAIRS, SINGLES, Signals


class WordEncoder(BertEncoder):
    """Words are tokens, the state of a token is the unit vector of its word, special tokens are zero."""

    def __init__(self):
        self.words: dict[str, int] = {}
        engine, window = SimpleNamespace(name="minilm", run=self._run), MAX_TOKENS + 2
        given = {"engine": engine, "tokenize": self._tokens_of, "dimension": DIMENSION, "window": window}
        super().__init__(**given, head=(0,), tail=(0,))

    def _tokens_of(self, texts):
        for text in texts:
            matches = list(re.finditer(r"\w+", text))
            ids = [self.words.setdefault(match.group().lower(), len(self.words)) for match in matches]
            yield np.array(ids, np.int64), np.array([match.start() for match in matches], np.int64)

    def _run(self, rows, *, mean=False):
        for number, row in enumerate(rows):
            states = np.zeros((1, len(row), DIMENSION), dtype=np.float32)
            states[0, np.arange(1, len(row) - 1), row[1:-1]] = 1.0
            yield np.array([number]), states.mean(axis=1) if mean else states


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
