"""Data folders whose candidates hold a given share of noise, or of passages repeated in other words.

`python -m experiments.data.stress_sets --data DIR --kind noise --rates "[0, 0.8]" --out DIR` writes one folder a rate.

After EDC2-RAG (section 5.3 and appendix A.2): a noise rate is the share of retrieved passages that do not help, a
redundancy rate r = (n - k) / n the share of n candidates that are rewritings of the k others.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

import corag
from corag.checks import check_choice
from corag.cli.console import progress, say
from corag.errors import InputError
from corag.memory import DiskStore
from corag.models.chat.base import Chat
from corag.models.chat.prompts import prompt
from corag.text.chunking import sentence_spans
from corag.text.data import DataFolder, Query
from corag.text.documents import Document
from experiments.data.config import CandidateSettings, PoolName
from experiments.data.pools import drawn, open_pool
from experiments.evaluation.judging.judge import chat_of
from experiments.evaluation.metrics import substring_match
from experiments.protocol.alone import run_alone
from experiments.run.journal import write_data

Kind = Literal["noise", "redundancy"]

T = TypeVar("T")
Rewrite = Callable[[str, int], str]
"""Says a text in other words: the text, and which rewriting of it this is (from 1)."""


def is_noise(passage: Document, query: Query) -> bool:
    """Tell whether a passage is of no help: no evidence, and none of the answers stands in it.

    The paper asks the reader of DPR, which knows only questions of one kind; evidence and answers are known for all.
    Where a question names its `noise`, as in `edc2-rag`, that counts alone.
    """
    if (marked := query.extra.get("noise")) is not None:
        return passage.id in marked
    gold = {name.split("#")[0] for name in query.gold}
    return passage.id not in gold and not substring_match(f"{passage.title} {passage.text}", query.answers)


def noisy_pool(
    ranking: Sequence[T], noise: Sequence[bool], *, size: int, rate: float, seed: int | None = None
) -> list[T] | None:
    """Return `size` candidates in the order of the ranking, `round(rate * size)` of them noise.

    With a seed both kinds are drawn at random, else the best-ranked of both are taken. None where there are too few of
    one kind: the paper leaves such questions out.
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
    """Return the best-ranked passages, and then rewritings of them in turn, `round(rate * size)` of `size`.

    A rewriting is named `id~number` and keeps the title. None where there are too few originals.
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


class ChatRewriter:
    """Has a language model say a text in other words, and keeps what it said in a SQLite file."""

    def __init__(self, chat: Chat, store: str | Path) -> None:
        self._chat = chat
        self._store = DiskStore(store, "text")
        self._prompt = prompt("rewrite", "experiments/prompts", needs=["passage"])

    def __call__(self, text: str, number: int) -> str:
        """Return a rewriting."""
        parts = [self._chat.identity, self._prompt.text, text, number]
        key = hashlib.sha256(json.dumps(parts).encode()).digest()
        # The number keeps a greedy model from giving the same rewriting twice.
        [asked] = self._prompt.messages(passage=text)
        asked["content"] += f"\n\nThis is rewriting number {number}."
        kept = self._store.get_many([key], lambda _: [self._chat.ask([asked]).text.strip().encode()])
        return kept[0].decode()


@dataclass(frozen=True)
class StressConfig(CandidateSettings):
    """Write data folders whose candidates hold given shares of noise, or of rewritings.

    Attributes:
        data: Data folder.
        out: Folder of the new data folders, which are called by kind and rate, such as `noise-0.4`.
        split: Which questions.
        kind: `noise`, passages that are of no help, or `redundancy`, passages repeated in other words.
        rates: Shares of candidates; the same questions are in all folders: those with enough passages for each.
        size: Candidates of each question; the paper has 20 and 100.
        embedder: Embeds questions and passages.
        seed: Of the draw of questions.
        random_pools: Draw passages of both kinds at random, too, in place of the best-ranked of both.
        rewriter: Reader whose language model rewrites, such as `ollama(model=llama3.1:8b)`; without one, sentences
            change places.
        store: SQLite file that keeps its rewritings.
        quiet: No progress.
    """

    data: str
    out: str
    split: str = "dev"
    kind: Kind = "noise"
    rates: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8)
    size: int = 20
    embedder: str = "minilm"
    seed: int = 0
    random_pools: bool = False
    rewriter: str | None = None
    store: str = "runs/rewritings.sqlite"
    quiet: bool = False
    pool: PoolName = field(default="corpus", kw_only=True)
    num_candidates: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kind", self.kind, Kind)
        if not self.rates or len(set(self.rates)) < len(self.rates):
            raise InputError(f"rates are {self.rates}; give at least one, each once")


def stress_sets(config: StressConfig) -> dict[str, int]:
    """Write the data folders that a config describes; return how many questions are in each."""
    folder = DataFolder.open(config.data)
    queries = drawn(folder.split(config.split, config.limit), config.sample, config.seed)
    pool = open_pool(folder, queries, corag.embedder(config.embedder), config, quiet=config.quiet)
    rankings: dict[str, list[Document]] = {}
    for query in queries:
        # A passage that was cut into chunks counts once.
        chunks = [candidate.chunk for candidate in pool.candidates(query)]
        names = dict.fromkeys(str(chunk.metadata.get("document", chunk.id)) for chunk in chunks)
        rankings[query.id] = [folder.documents[name] for name in names]
    rewrite: Rewrite = rotated
    if config.rewriter is not None:
        rewrite = ChatRewriter(chat_of("rewriter", config.rewriter), config.store)
    pools: dict[float, dict[str, list[Document]]] = {}
    for rate in config.rates:
        with progress(f"{config.kind} {rate:g}", quiet=config.quiet) as report:
            made = {}
            for number, query in enumerate(queries, start=1):
                made[query.id] = candidates_of(query, rankings[query.id], rate, config, rewrite)
                report(number, len(queries))
        pools[rate] = {name: found for name, found in made.items() if found is not None}
        queries = [query for query in queries if query.id in pools[rate]]
    outs = {rate: Path(config.out) / f"{config.kind}-{rate:g}" for rate in config.rates}
    return {str(out): write_set(queries, pools[rate], out) for rate, out in outs.items()}


def candidates_of(
    query: Query, ranked: Sequence[Document], rate: float, config: StressConfig, rewrite: Rewrite
) -> list[Document] | None:
    """Return a question's candidates at a rate, out of passages ranked best first; None where there are too few."""
    if config.kind == "redundancy":
        return redundant_pool(ranked, size=config.size, rate=rate, rewrite=rewrite)
    noise = [is_noise(passage, query) for passage in ranked]
    return noisy_pool(ranked, noise, size=config.size, rate=rate, seed=config.seed if config.random_pools else None)


def write_set(queries: Sequence[Query], pools: Mapping[str, Sequence[Document]], out: Path) -> int:
    """Write a data folder of the questions that have candidates; return how many there are."""
    queries = [query for query in queries if query.id in pools]
    if not queries:
        raise InputError("no question has enough passages of both kinds; retrieve more for each, or ask for fewer")
    documents = {document.id: document for query in queries for document in pools[query.id]}
    corpus = [{"id": name, "title": one.title, "text": one.text} for name, one in documents.items()]
    rows = [
        {**query.extra, **asdict(query), "candidates": [document.id for document in pools[query.id]]}
        for query in queries
    ]
    for row in rows:
        del row["extra"]
    write_data(out, corpus, rows)
    return len(rows)


def _check(size: int, rate: float) -> None:
    if size < 1:
        raise InputError(f"size must be at least 1, got {size!r}; the paper has 20 and 100")
    if not 0 <= rate <= 1:
        raise InputError(f"rate must be from 0 to 1, got {rate!r}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    return run_alone(StressConfig, _write, arguments)


def _write(config: StressConfig) -> None:
    for out, number in stress_sets(config).items():
        say(f"{out}: {number} questions")


if __name__ == "__main__":
    sys.exit(main())
