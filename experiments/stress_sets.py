"""Data folders whose candidates hold a given share of noise, or of passages said before in other words.

After EDC2-RAG (section 5.3 and appendix A.2): a noise rate is the share of retrieved passages that do not help, a
redundancy rate r = (n - k) / n the share of n candidates that are rewritings of the k others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np

from corag.data import DataFolder, Query
from corag.errors import InputError
from corag.ollama_chat import OllamaChat
from corag.summarizers.store import SummaryStore
from corag.text import Document, sentence_spans
from experiments.journal import write_atomically
from experiments.metrics import substring_match

Rewrite = Callable[[str, int], str]
"""Says a text in another way: the text, and which rewriting of it this is (from 1)."""


def is_noise(passage: Document, query: Query) -> bool:
    """Tell whether a passage is of no help: no evidence, and none of the answers stands in it.

    The paper asks the reader of DPR, which knows only questions of one kind; evidence and answers are known for all.
    """
    gold = {name.split("#")[0] for name in query.gold}
    return passage.id not in gold and not substring_match(f"{passage.title} {passage.text}", query.answers)


def noisy_pool(
    ranking: Sequence[str], noise: Sequence[bool], *, size: int, rate: float, seed: int | None = None
) -> list[str] | None:
    """Return candidates of which a given share is noise.

    Args:
        ranking: Passages that were retrieved, best first.
        noise: Which of them are noise.
        size: How many candidates.
        rate: Share of noise, in [0, 1]; `round(rate * size)` candidates.
        seed: Draws both kinds at random; None takes the best-ranked of both.

    Returns:
        Ids in the order of the ranking; None where there is too little of one kind, as the paper leaves such
        questions out.
    """
    _check(size, rate)
    num_noise = round(rate * size)
    kinds = [[rank for rank, flag in enumerate(noise) if flag == kind] for kind in (True, False)]
    wanted = [num_noise, size - num_noise]
    if any(len(ranks) < number for ranks, number in zip(kinds, wanted, strict=True)):
        return None
    if seed is not None:
        rng = np.random.default_rng(seed)
        kinds = [rng.permutation(ranks).tolist() for ranks in kinds]
    chosen = sorted(rank for ranks, number in zip(kinds, wanted, strict=True) for rank in ranks[:number])
    return [ranking[int(rank)] for rank in chosen]


def redundant_pool(ranking: Sequence[Document], *, size: int, rate: float, rewrite: Rewrite) -> list[Document] | None:
    """Return the best-ranked passages, and rewritings of them in turn, so that a given share is redundant.

    Args:
        ranking: Passages that were retrieved, best first.
        size: How many candidates; the paper has 20.
        rate: Share of rewritings, in [0, 1); at least one passage is original.
        rewrite: Says a passage in another way. The title stays.

    Returns:
        `size` passages, originals first; a rewriting is named `id~number`. None where there are too few originals.
    """
    _check(size, rate)
    num_originals = size - round(rate * size)
    if num_originals < 1:
        raise InputError(f"rate {rate} leaves no original among {size} candidates; it must be at most {1 - 1 / size:g}")
    if len(ranking) < num_originals:
        return None
    pool = list(ranking[:num_originals])
    for place in range(size - num_originals):
        original, number = ranking[place % num_originals], place // num_originals + 1
        pool.append(Document(f"{original.id}~{number}", rewrite(original.text, number), original.title))
    return pool


def rotated(text: str, number: int) -> str:
    """Return the text beginning with another sentence: the same said in another order, offline.

    A text of one sentence comes back as it is, with "Again:" before it for each time.
    """
    sentences = [text[start:end].strip() for start, end in sentence_spans(text)]
    if len(sentences) < 2:
        return "Again: " * number + text
    turn = number % len(sentences)
    again = "Again: " * (number // len(sentences))
    return again + " ".join([*sentences[turn:], *sentences[:turn]])


class OllamaRewriter:
    """Has a model of an Ollama server say a text in other words.

    Args:
        chat: The model.
        store: Folder that remembers rewritings, so that an interrupted run pays for none twice.
    """

    def __init__(self, chat: OllamaChat, store: str | Path) -> None:
        self._chat, self._store = chat, SummaryStore(store)
        self._template = Template((files("experiments") / "prompts" / "rewrite.txt").read_text(encoding="utf-8"))

    def __call__(self, text: str, number: int) -> str:
        """Return a rewriting.

        Raises:
            OllamaError: The server gave none; what was rewritten before is remembered.
        """
        parts = [self._chat.model, self._chat.options, self._template.template, text, number]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        if (known := self._store.get(key)) is not None:
            return known
        # The number keeps a greedy model from giving the same rewriting twice.
        prompt = self._template.substitute(passage=text) + f"\nThis is rewriting number {number}.\n"
        found = self._chat.ask([{"role": "user", "content": prompt}]).strip()
        self._store.put(key, found, summarizer=f"ollama/{self._chat.model}", sources=())
        return found


def write_noise_set(
    folder: DataFolder,
    queries: Sequence[Query],
    rankings: Mapping[str, Sequence[str]],
    out: str | Path,
    *,
    size: int,
    rate: float,
    seed: int | None = None,
) -> int:
    """Write a data folder whose questions have candidates with a given share of noise.

    Args:
        folder: The data.
        queries: Questions to take.
        rankings: For each question's id the passages that were retrieved for it, best first.
        out: The new folder.
        size: See `noisy_pool`.
        rate: See `noisy_pool`.
        seed: See `noisy_pool`.

    Returns:
        How many questions there are in it; those with too little of one kind are left out.
    """
    pools: dict[str, list[Document]] = {}
    for query in queries:
        ranking = rankings[query.id]
        noise = [is_noise(folder.documents[name], query) for name in ranking]
        if (pool := noisy_pool(ranking, noise, size=size, rate=rate, seed=seed)) is not None:
            pools[query.id] = [folder.documents[name] for name in pool]
    return _write(queries, pools, Path(out))


def write_redundancy_set(
    folder: DataFolder,
    queries: Sequence[Query],
    rankings: Mapping[str, Sequence[str]],
    out: str | Path,
    *,
    rewrite: Rewrite,
    size: int = 20,
    rate: float,
) -> int:
    """Write a data folder whose questions have candidates with a given share of rewritings; see `write_noise_set`."""
    pools: dict[str, list[Document]] = {}
    for query in queries:
        ranking = [folder.documents[name] for name in rankings[query.id]]
        if (pool := redundant_pool(ranking, size=size, rate=rate, rewrite=rewrite)) is not None:
            pools[query.id] = pool
    return _write(queries, pools, Path(out))


def _write(queries: Sequence[Query], pools: Mapping[str, Sequence[Document]], out: Path) -> int:
    if not pools:
        raise InputError("no question has enough passages of both kinds; retrieve more for each, or ask for fewer")
    documents = {document.id: document for pool in pools.values() for document in pool}
    corpus = [{"id": name, "title": one.title, "text": one.text} for name, one in documents.items()]
    rows = [
        {
            **query.extra,
            "id": query.id,
            "question": query.question,
            "answers": query.answers,
            "gold": query.gold,
            "split": query.split,
            "candidates": [document.id for document in pools[query.id]],
        }
        for query in queries
        if query.id in pools
    ]
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in (("corpus", corpus), ("queries", rows)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        write_atomically(out / f"{name}.jsonl", text)
    return len(rows)


def _check(size: int, rate: float) -> None:
    if size < 1:
        raise InputError(f"size must be at least 1, got {size!r}; the paper has 20 and 100")
    if not 0 <= rate <= 1:
        raise InputError(f"rate must be from 0 to 1, got {rate!r}")
