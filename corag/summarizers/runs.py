"""Many requests to a summarizer: concurrent, each made once, cut to size; failures are counted and not raised."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from corag.errors import DataError, InputError, ReaderError, SummarizerError
from corag.memory import DiskStore
from corag.text.chunking import cut_to_tokens
from corag.text.visible import well_formed
from corag.types import Summarizer, SummaryRequest

logger = logging.getLogger(__name__)

SummaryStore = DiskStore
"""Summaries in UTF-8 under the hash of what they were made from."""

_JOINT = "\n\n"
# Summaries of parts are at most this share of the window, so that several of them are summarized together.
_PART_SHARE = 4


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a request.

    Attributes:
        text: The summary; empty when the texts hold nothing that matters, or it failed.
        sources: Ids of the chunks that it was made from.
        failure: Why the request failed; None if it succeeded, also with an empty summary.
        num_calls: Requests to the summarizer; 0 when it was stored, more than 1 for texts beyond its window.
    """

    text: str
    sources: tuple[str, ...]
    failure: str | None = None
    num_calls: int = 0


def summary_store(path: str | Path | None) -> SummaryStore | None:
    """Return the summaries in a SQLite file, made when missing; None without a path."""
    if not isinstance(path, str | Path | None):
        raise InputError(f"store is {path!r:.100}; give the path of a SQLite file, or None")
    return None if path is None else DiskStore(path, "text")


def request_key(summarizer: Summarizer, request: SummaryRequest) -> bytes:
    """Return the hash of everything that a summary depends on; ids of sources do not count."""
    parts = [summarizer.identity, request.query, request.max_tokens, request.texts]
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def summarize_all(
    summarizer: Summarizer, requests: Sequence[SummaryRequest], *, store: SummaryStore | None = None
) -> list[Summary]:
    """Return a summary for each request.

    Equal requests are made once. At most `summarizer.max_concurrent` run at the same time, and each result is kept in
    the store as soon as it is there, so that an interrupted run repeats nothing. Texts beyond the summarizer's
    window are summarized in parts, and the summaries of the parts again, as long as that at least halves their number;
    where it does not, as many of them stand as fit.

    Raises:
        DataError: The store cannot be used.
    """
    return _summarized(summarizer, [(request, None) for request in requests], store)


def _summarized(
    summarizer: Summarizer, limited: Sequence[tuple[SummaryRequest, int | None]], store: SummaryStore | None
) -> list[Summary]:
    """Return a summary for each request, which comes with the most parts that it may be divided into."""
    requests = [request for request, _ in limited]
    parts = [_parts(summarizer, request) for request in requests]
    # Each round has to shorten the texts, whatever the summarizer's tokens say; else it would never end.
    stuck = [most is not None and len(part) > most for part, (_, most) in zip(parts, limited, strict=True)]
    parts = [[] if is_stuck else part for part, is_stuck in zip(parts, stuck, strict=True)]
    made = iter(_run(summarizer, [part for of_request in parts for part in of_request], store))
    results: list[Summary] = []
    again: dict[int, tuple[SummaryRequest, int]] = {}
    for number, (request, of_request, is_stuck) in enumerate(zip(requests, parts, stuck, strict=True)):
        if is_stuck:
            text = cut_to_tokens(_JOINT.join(request.texts), summarizer.tokens, request.max_tokens)
            results.append(Summary(text, request.sources))
            continue
        found = [next(made) for _ in of_request]
        calls = sum(summary.num_calls for summary in found)
        failure = next((summary.failure for summary in found if summary.failure is not None), None)
        texts = tuple(summary.text for summary in found if summary.text)
        if failure is None and len(of_request) > 1 and texts:
            again[number] = (replace(request, texts=texts), -(-len(of_request) // 2))
        results.append(Summary("" if failure else "".join(texts), request.sources, failure, calls))
    if again:
        shorter = _summarized(summarizer, list(again.values()), store)
        for number, summary in zip(again, shorter, strict=True):
            results[number] = replace(summary, num_calls=summary.num_calls + results[number].num_calls)
    return results


def _run(summarizer: Summarizer, requests: Sequence[SummaryRequest], store: SummaryStore | None) -> list[Summary]:
    keys = [request_key(summarizer, request) for request in requests]
    known = {} if store is None else store.get(keys)
    made = {key: Summary(text.decode("utf-8", "replace"), ()) for key, text in known.items()}
    new = {key: request for key, request in zip(keys, requests, strict=True) if key not in known}

    def make(key: bytes, request: SummaryRequest) -> Summary:
        try:
            found = summarizer.summarize(request)
            if not isinstance(found, str):
                raise SummarizerError(f"summarizer {summarizer.name!r} returned {found!r:.80}; it must return a text")
            text = well_formed(found).strip()
        except DataError:
            raise
        except (SummarizerError, ReaderError, InputError, OSError) as error:
            # These include time-outs. The caller can fall back on the texts themselves. A missing package or a damaged
            # model is none of these and stops the run.
            return Summary("", request.sources, str(error) or type(error).__name__, 1)
        text = cut_to_tokens(text, summarizer.tokens, request.max_tokens)
        if store is not None:
            store.put({key: text.encode("utf-8", "replace")})
        return Summary(text, request.sources, num_calls=1)

    with ThreadPoolExecutor(max(1, min(summarizer.max_concurrent, len(new)))) as pool:
        futures = {key: pool.submit(make, key, request) for key, request in new.items()}
        try:
            made |= {key: future.result() for key, future in futures.items()}
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    failures = [summary.failure for summary in made.values() if summary.failure is not None]
    if failures:
        logger.warning("%d of %d summaries failed; the first: %s", len(failures), len(made), failures[0])
    results = []
    for key, request in zip(keys, requests, strict=True):
        results.append(replace(made[key], sources=request.sources))
        # Equal requests share one call, which counts for the first of them.
        made[key] = replace(made[key], num_calls=0)
    return results


def _parts(summarizer: Summarizer, request: SummaryRequest) -> list[SummaryRequest]:
    """Return requests that fit the window and cover the texts in order; the request itself where it fits.

    None for texts of which no word fits.
    """
    window = summarizer.window_tokens
    if window is None or _joined_tokens(summarizer, request.texts) <= window:
        return [request]
    if window < 2 * _PART_SHARE:
        raise InputError(
            f"window_tokens of summarizer {summarizer.name!r} is {window}; it must be at least {2 * _PART_SHARE}"
        )
    pieces = [piece for text in request.texts for piece in _pieces(summarizer, text, window)]
    groups: list[tuple[str, ...]] = []
    group: tuple[str, ...] = ()
    for piece in pieces:
        if group and _joined_tokens(summarizer, (*group, piece)) > window:
            groups.append(group)
            group = ()
        group = (*group, piece)
    limit = max(1, min(request.max_tokens, window // _PART_SHARE))
    return [replace(request, texts=texts, max_tokens=limit) for texts in (*groups, group) if texts]


def _pieces(summarizer: Summarizer, text: str, window: int) -> list[str]:
    """Cut a text that is longer than the window, after sentences or words; a longer word is left out."""
    pieces: list[str] = []
    rest = text.strip()
    while rest and _joined_tokens(summarizer, (rest,)) > window:
        piece = cut_to_tokens(rest, summarizer.tokens, window)
        if not piece:
            # A single word beyond the window, such as a line of encoded bytes, says nothing in a summary.
            rest = "".join(rest.split(maxsplit=1)[1:])
            continue
        pieces.append(piece)
        rest = rest[len(piece) :].strip()
    return [*pieces, rest] if rest else pieces


def _joined_tokens(summarizer: Summarizer, texts: Sequence[str]) -> int:
    return int(summarizer.tokens.count([_JOINT.join(texts)])[0])
