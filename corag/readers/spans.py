"""From logits to an answer: the best span of a window, the best window of a context.

Letters: L tokens of a window, [CLS] first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from corag.models.engine.source import Float32

KINDS = ("span", "none", "yes", "no")
"""Kinds of answers, in the order of the network's outputs after start and end."""
START, END = 0, 1
NUM_OUTPUTS = 2 + len(KINDS)


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """The network's answer from one window.

    Attributes:
        start: First token of the best span, counted in the window.
        end: Its last token.
        margin: Start and end logit of the span less those of [CLS], which means "no answer here".
        kinds: Log-probability of each of `KINDS`, `[4]`.
    """

    start: int
    end: int
    margin: float
    kinds: Float32


def best_span(logits: Float32, first: int, last: int, max_answer_tokens: int, parts: NDArray[np.intp]) -> WindowAnswer:
    """Return the best span within tokens `first` to `last`, the earliest and then shortest among equals.

    Args:
        logits: The network's output, `[L, NUM_OUTPUTS]`.
        first: First token of the context in the window.
        last: Its last token.
        max_answer_tokens: Maximum tokens of a span, at least 1.
        parts: Part of the context that each of its tokens in the window is in, ascending, `[last - first + 1]`; a span
            stays within one part.
    """
    starts, ends = logits[first : last + 1, START], logits[first : last + 1, END]
    width = min(max_answer_tokens, len(starts))
    # Row i, column d: the span from token i over d more tokens.
    padded = np.concatenate([ends, np.full(width - 1, -np.inf, dtype=ends.dtype)])
    scores = starts[:, None] + sliding_window_view(padded, width)
    end_parts = sliding_window_view(np.concatenate([parts, np.full(width - 1, -1)]), width)
    scores = np.where(end_parts == parts[:, None], scores, -np.inf)
    start, more = divmod(int(scores.argmax()), width)
    margin = float(scores[start, more]) - float(logits[0, START] + logits[0, END])
    return WindowAnswer(first + start, first + start + more, margin, _log_softmax(logits[0, 2:]))


def _log_softmax(logits: Float32) -> Float32:
    shifted = logits - logits.max()
    result: Float32 = shifted - np.log(np.exp(shifted).sum())
    return result
