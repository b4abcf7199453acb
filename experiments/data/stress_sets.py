"""Data folders whose candidates hold a given share of noise, or of passages said before in other words.

`python -m experiments.data.stress_sets --data DIR --kind noise --rates 0,0.4,0.8 --out DIR` writes one folder a rate.

After EDC2-RAG (section 5.3 and appendix A.2): a noise rate is the share of retrieved passages that do not help, a
redundancy rate r = (n - k) / n the share of n candidates that are rewritings of the k others.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal, get_args

import numpy as np

import corag
from corag.cli.console import say
from corag.errors import CoragError, InputError
from corag.memory import TEXT, Memory
from corag.models.ollama_chat import OllamaChat
from corag.text.chunking import sentence_spans
from corag.text.data import DataFolder, Query
from corag.text.documents import Document
from experiments.data.pools import Pool, PoolName, check_counts, drawn, open_pool
from experiments.evaluation.metrics import substring_match
from experiments.run.journal import write_atomically

Kind = Literal["noise", "redundancy"]
MISTAKE = 2

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
        store: SQLite file that keeps rewritings, so that an interrupted run pays for none twice.
    """

    def __init__(self, chat: OllamaChat, store: str | Path) -> None:
        self._chat = chat
        self._store: Memory[bytes, str] = Memory(0, path=store, codec=TEXT)
        self._template = Template((files("experiments") / "prompts" / "rewrite.txt").read_text(encoding="utf-8"))

    def __call__(self, text: str, number: int) -> str:
        """Return a rewriting.

        Raises:
            OllamaError: The server gave none; what was rewritten before is kept.
        """
        parts = [self._chat.model, self._chat.options, self._template.template, text, number]
        key = hashlib.sha256(json.dumps(parts).encode()).digest()
        # The number keeps a greedy model from giving the same rewriting twice.
        prompt = self._template.substitute(passage=text) + f"\nThis is rewriting number {number}.\n"
        message = {"role": "user", "content": prompt}
        return self._store.get_many([key], lambda _: [self._chat.ask([message]).strip()])[0]


@dataclass(frozen=True)
class StressConfig:
    """Write data folders whose candidates hold given shares of noise, or of rewritings.

    Attributes:
        data: Data folder.
        out: Folder of the new data folders, which are called by kind and rate, such as `noise-0.4`.
        split: Which questions.
        kind: `noise`, passages that are of no help, or `redundancy`, passages said again in other words.
        rates: Shares of candidates; the same questions are in all folders: those with enough passages for each.
        size: Candidates of each question; the paper has 20 and 100.
        pool: Where passages come from; see `corag evaluate`.
        num_retrieved: Chunks retrieved for each question with the corpus as pool; the paper has 100.
        embedder: Embeds questions and passages.
        limit: Only the first questions of the split.
        sample: Only so many of these, drawn at random.
        seed: Of that draw.
        random_pools: Draws passages of both kinds at random too, where else the best-ranked of both are taken.
        model: A model of an Ollama server that rewrites; without one, sentences change places.
        store: SQLite file that keeps its rewritings.
        quiet: No progress.
    """

    data: str
    out: str
    split: str = "dev"
    kind: Kind = "noise"
    rates: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8)
    size: int = 20
    pool: PoolName = "corpus"
    num_retrieved: int = 100
    embedder: str = "minilm"
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    random_pools: bool = False
    model: str | None = None
    store: str = "runs/rewritings.sqlite"
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"kind is {self.kind!r}; it must be one of {', '.join(get_args(Kind))}")
        if not self.rates or len(set(self.rates)) < len(self.rates):
            raise InputError(f"rates are {self.rates}; give at least one, each once")
        check_counts(self.limit, self.num_retrieved, self.sample)


def stress_sets(config: StressConfig) -> dict[str, int]:
    """Write the data folders that a config describes.

    Returns:
        How many questions are in each, by folder.

    Raises:
        InputError: A size or rate out of range, or no question has enough passages.
    """
    folder = DataFolder.open(config.data)
    queries = drawn(folder.split(config.split, config.limit), config.sample, config.seed)
    pool = open_pool(
        folder,
        queries,
        corag.embedder(config.embedder),
        pool=config.pool,
        num_candidates=config.num_retrieved,
        quiet=config.quiet,
    )
    rankings = {query.id: ranking(query, pool) for query in queries}
    rewrite = rotated if config.model is None else OllamaRewriter(OllamaChat(model=config.model), config.store)
    pools: dict[float, dict[str, list[Document]]] = {}
    for rate in config.rates:
        if config.kind == "noise":
            seed = config.seed if config.random_pools else None
            pools[rate] = noise_pools(folder, queries, rankings, size=config.size, rate=rate, seed=seed)
        else:
            pools[rate] = redundancy_pools(folder, queries, rankings, size=config.size, rate=rate, rewrite=rewrite)
        queries = [query for query in queries if query.id in pools[rate]]
    return {
        str(out): write_set(queries, pools[rate], out)
        for rate in config.rates
        for out in [Path(config.out) / f"{config.kind}-{rate:g}"]
    }


def ranking(query: Query, pool: Pool) -> list[str]:
    """Return the passages that a pool offers for a question, by id, best first; one cut into chunks counts once."""
    chunks = [candidate.chunk for candidate in pool.candidates(query)]
    return list(dict.fromkeys(str(chunk.metadata.get("document", chunk.id)) for chunk in chunks))


def noise_pools(
    folder: DataFolder,
    queries: Sequence[Query],
    rankings: Mapping[str, Sequence[str]],
    *,
    size: int,
    rate: float,
    seed: int | None = None,
) -> dict[str, list[Document]]:
    """Return candidates with a given share of noise for each question that has enough passages of both kinds.

    Args:
        folder: The data.
        queries: Questions to take.
        rankings: For each question's id the passages that were retrieved for it, best first.
        size: See `noisy_pool`.
        rate: See `noisy_pool`.
        seed: See `noisy_pool`.
    """
    pools: dict[str, list[Document]] = {}
    for query in queries:
        ranked = rankings[query.id]
        noise = [is_noise(folder.documents[name], query) for name in ranked]
        if (pool := noisy_pool(ranked, noise, size=size, rate=rate, seed=seed)) is not None:
            pools[query.id] = [folder.documents[name] for name in pool]
    return pools


def redundancy_pools(
    folder: DataFolder,
    queries: Sequence[Query],
    rankings: Mapping[str, Sequence[str]],
    *,
    rewrite: Rewrite,
    size: int = 20,
    rate: float,
) -> dict[str, list[Document]]:
    """Return candidates with a given share of rewritings for each question that has enough; see `noise_pools`."""
    pools: dict[str, list[Document]] = {}
    for query in queries:
        ranked = [folder.documents[name] for name in rankings[query.id]]
        if (pool := redundant_pool(ranked, size=size, rate=rate, rewrite=rewrite)) is not None:
            pools[query.id] = pool
    return pools


def write_set(queries: Sequence[Query], pools: Mapping[str, Sequence[Document]], out: Path) -> int:
    """Write a data folder of questions with candidates of their own; return how many questions there are in it.

    Raises:
        InputError: No question has candidates.
    """
    queries = [query for query in queries if query.id in pools]
    if not queries:
        raise InputError("no question has enough passages of both kinds; retrieve more for each, or ask for fewer")
    documents = {document.id: document for query in queries for document in pools[query.id]}
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; return the exit status."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m experiments.data.stress_sets", description=(StressConfig.__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--config", action="config", help="YAML file with settings.")
    parser.add_class_arguments(StressConfig)
    values = parser.parse_args(arguments).as_dict()
    values.pop("config")
    try:
        written = stress_sets(StressConfig(**values))
    except CoragError as error:
        say(f"error: {error}")
        return MISTAKE
    for out, number in written.items():
        say(f"{out}: {number} questions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
