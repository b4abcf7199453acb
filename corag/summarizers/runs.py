"""Many requests to a summarizer: concurrent, each made once, cut to size; failures are counted, not raised."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from common.checks import well_formed
from corag.errors import DataError, InputError, ReaderError, SummarizerError
from corag.memory import TextStore
from corag.optional import warn_once
from corag.text.chunking import cut_to_tokens
from corag.types import Summarizer, SummaryRequest

logger = logging.getLogger(__name__)

_JOINT = "\n\n"


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
    immediately, so that an interrupted run repeats nothing. Texts are cut to the summarizer's window, with a warning.

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


def _summarized(summarizer: Summarizer, store: TextStore | None, request: SummaryRequest) -> Summary:
    window, joined = summarizer.window_tokens, _JOINT.join(request.texts)
    if window is not None and int(summarizer.tokens.count([joined])[0]) > window:
        warn_once(f"texts are longer than the window of {summarizer.name} and are cut to it before they are summarized")
        request = replace(request, texts=(cut_to_tokens(joined, summarizer.tokens, window),))
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
