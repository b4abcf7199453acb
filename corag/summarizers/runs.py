"""Many requests to a summarizer: concurrent, each made once, cut to size; failures are counted, not raised."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from corag.checks import well_formed
from corag.errors import DataError, InputError, ReaderError, SummarizerError
from corag.memory import TextStore
from corag.text.chunking import cut_to_tokens
from corag.types import Summarizer, SummaryRequest

logger = logging.getLogger(__name__)

_JOINT = "\n\n"
# Summaries of parts have at most this share of the window, so that several of them are summarized together.
_PART_SHARE = 4


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a request.

    Attributes:
        text: The summary; empty if the texts hold nothing relevant, or it failed.
        failure: Why the request failed; None if it succeeded, also with an empty summary.
    """

    text: str
    failure: str | None = None


def summarize_all(
    summarizer: Summarizer, requests: Sequence[SummaryRequest], *, store: TextStore | None = None
) -> list[Summary]:
    """Return a summary for each request.

    Equal requests are made once. At most `summarizer.max_concurrent` run at the same time, and each result is stored
    immediately, so that an interrupted run repeats nothing. Texts beyond the summarizer's window are summarized in
    parts, and the summaries of the parts again, if that at least halves their number; otherwise they are cut to size.

    Raises:
        DataError: The store cannot be used.
    """
    distinct = list(dict.fromkeys(requests))
    with ThreadPoolExecutor(max(1, min(summarizer.max_concurrent, len(distinct)))) as pool:
        summaries = dict(zip(distinct, pool.map(partial(_summarized, summarizer, store), distinct), strict=True))
    failures = [summary.failure for summary in summaries.values() if summary.failure is not None]
    if failures:
        logger.warning("%d of %d summaries failed; the first: %s", len(failures), len(distinct), failures[0])
    return [summaries[request] for request in requests]


def _summarized(
    summarizer: Summarizer, store: TextStore | None, request: SummaryRequest, max_parts: float = float("inf")
) -> Summary:
    """Return the summary of texts of any length, which are divided into at most `max_parts`."""
    parts = _parts(summarizer, request)
    # Each round has to shorten the texts, whatever the summarizer's tokens say; else it would never end.
    if len(parts) > max_parts:
        return Summary(cut_to_tokens(_JOINT.join(request.texts), summarizer.tokens, request.max_tokens))
    texts = []
    for part in parts:
        summary = _of_part(summarizer, store, part)
        if summary.failure is not None or len(parts) == 1:
            return summary
        texts += [summary.text] if summary.text else []
    if not texts:
        return Summary("")
    return _summarized(summarizer, store, replace(request, texts=tuple(texts)), -(-len(parts) // 2))


def _of_part(summarizer: Summarizer, store: TextStore | None, request: SummaryRequest) -> Summary:
    content = [summarizer.identity, request.query, request.max_tokens, request.texts]
    key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    if store is not None and (stored := store.get(key)) is not None:
        return Summary(well_formed(stored))
    try:
        reply = summarizer.summarize(request)
        if not isinstance(reply, str):
            raise SummarizerError(f"summarizer {summarizer.name!r} returned {reply!r:.80}; it must return a text")
        text = cut_to_tokens(well_formed(reply).strip(), summarizer.tokens, request.max_tokens)
    except (SummarizerError, ReaderError, InputError, OSError) as error:
        if isinstance(error, DataError):
            raise
        # These include time-outs. The caller can fall back on the texts themselves. A missing package or a damaged
        # model is none of these and stops the run.
        return Summary("", str(error) or type(error).__name__)
    if store is not None:
        store.put(key, text)
    return Summary(text)


def _parts(summarizer: Summarizer, request: SummaryRequest) -> list[SummaryRequest]:
    """Return requests that fit the window and cover the texts in order; none for texts of which no word fits."""
    window = summarizer.window_tokens
    if window is None or _joined_tokens(summarizer, request.texts) <= window:
        return [request]
    if window < 2 * _PART_SHARE:
        raise InputError(
            f"window_tokens of summarizer {summarizer.name!r} is {window}; it must be at least {2 * _PART_SHARE}"
        )
    groups: list[tuple[str, ...]] = [()]
    for piece in (piece for text in request.texts for piece in _pieces(summarizer, text, window)):
        if groups[-1] and _joined_tokens(summarizer, (*groups[-1], piece)) > window:
            groups.append(())
        groups[-1] = (*groups[-1], piece)
    limit = max(1, min(request.max_tokens, window // _PART_SHARE))
    return [replace(request, texts=texts, max_tokens=limit) for texts in groups if texts]


def _pieces(summarizer: Summarizer, text: str, window: int) -> Iterator[str]:
    """Cut a text that is longer than the window, after sentences or words; a longer word is left out."""
    rest = text.strip()
    while rest and _joined_tokens(summarizer, (rest,)) > window:
        if piece := cut_to_tokens(rest, summarizer.tokens, window):
            yield piece
            rest = rest[len(piece) :].strip()
        else:
            # A single word beyond the window, such as a line of encoded bytes, says nothing in a summary.
            rest = "".join(rest.split(maxsplit=1)[1:])
    if rest:
        yield rest


def _joined_tokens(summarizer: Summarizer, texts: Sequence[str]) -> int:
    return int(summarizer.tokens.count([_JOINT.join(texts)])[0])
