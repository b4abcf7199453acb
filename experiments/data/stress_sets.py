"""Data folders whose candidates hold a given share of noise, or of passages repeated in other words.

After EDC2-RAG (section 5.3 and appendix A.2): a noise rate is the share of retrieved passages that do not help, a
redundancy rate r = (n - k) / n the share of n candidates that are rewritings of the k others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import corag
from corag.checks import check_choice
from corag.cli.console import progress
from corag.errors import InputError
from corag.memory import DiskStore
from corag.models.chat.base import Chat
from corag.models.chat.prompts import prompt
from corag.text.chunking import sentence_spans
from corag.text.data import DataFolder, Query
from corag.text.documents import Document
from experiments.data.config import CandidateSettings, PoolName
from experiments.data.folder import FolderWriter, Question, new_folder
from experiments.data.pools import drawn, open_pool
from experiments.evaluation.judge import chat_of
from experiments.evaluation.metrics import substring_match

Kind = Literal["noise", "redundancy"]

Rewrite = Callable[[str, int], str]
"""Puts a text in other words: the text, and the number of this rewriting, from 1."""


@dataclass(frozen=True)
class StressConfig(CandidateSettings):
    """How data folders whose candidates hold given shares of noise, or of rewritings, are made.

    Attributes:
        data: Data folder.
        out: Folder of the new data folders, which are called by kind and rate, such as `noise-0.4`.
        split: Which questions.
        kind: `noise`, passages that are of no help, or `redundancy`, passages repeated in other words.
        rates: Shares of candidates; the same questions are in all folders: those with enough passages for each.
        size: Candidates of each question; the paper has 20 and 100.
        embedder: Embedder that ranks the passages.
        seed: Seed of the sample.
        rewriter: Reader whose language model rewrites, such as `ollama(model=llama3.1:8b)`; without one, sentences
            change their order.
        store: SQLite file that keeps its rewritings.
        quiet: Show no progress.
    """

    data: str
    out: str
    split: str = "dev"
    kind: Kind = "noise"
    rates: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8)
    size: int = 20
    embedder: str = "minilm"
    seed: int = 0
    rewriter: str | None = None
    store: str = "runs/rewritings.sqlite"
    quiet: bool = False
    pool: PoolName = field(default="corpus", kw_only=True)
    num_candidates: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("kind", self.kind, Kind)
        if not self.rates or len(set(self.rates)) < len(self.rates) or not all(0 <= rate <= 1 for rate in self.rates):
            raise InputError(f"rates are {self.rates}; give at least one, each once and from 0 to 1")
        if self.size < 1:
            raise InputError(f"size must be at least 1, got {self.size!r}; the paper has 20 and 100")
        if self.kind == "redundancy" and max(self.rates) * self.size > self.size - 0.5:
            raise InputError(f"rates {self.rates} leave no original among {self.size} candidates; lower them")


def stress_sets(config: StressConfig) -> dict[str, int]:
    """Write the data folders that a config describes; return how many questions are in each."""
    folder = DataFolder.open(config.data)
    queries = drawn(folder.split(config.split, config.limit), config.sample, config.seed)
    pool = open_pool(folder, queries, corag.embedder(config.embedder), config, quiet=config.quiet)
    rewrite: Rewrite = rotated
    if config.rewriter is not None:
        rewrite = ChatRewriter(chat_of("rewriter", config.rewriter), config.store)
    made: dict[float, dict[str, list[Document]]] = {}
    for rate in config.rates:
        made[rate] = {}
        with progress(f"{config.kind} {rate:g}", quiet=config.quiet) as report:
            for number, query in enumerate(queries, start=1):
                # A passage that was cut into chunks counts once.
                chunks = [candidate.chunk for candidate in pool.candidates(query)]
                names = dict.fromkeys(str(chunk.metadata.get("document", chunk.id)) for chunk in chunks)
                ranking = [folder.documents[name] for name in names]
                if config.kind == "noise":
                    passages = noisy_pool(ranking, [is_noise(one, query) for one in ranking], config.size, rate)
                else:
                    passages = redundant_pool(ranking, config.size, rate, rewrite)
                if passages is not None:
                    made[rate][query.id] = passages
                report(number, len(queries))
        queries = [query for query in queries if query.id in made[rate]]
    if not queries:
        raise InputError("no question has enough passages of both kinds; retrieve more for each, or ask for fewer")
    written = {}
    for rate, passages_of in made.items():
        out = Path(config.out) / f"{config.kind}-{rate:g}"
        with new_folder(out, replace=True) as draft, FolderWriter(draft) as writer:
            for query in queries:
                known = {**query.extra, **({"grades": query.grades} if query.grades else {})}
                pool_of = tuple(passages_of[query.id])
                question = Question(query.id, query.question, query.answers, query.gold, pool_of, True, known)
                writer.question(question, query.split)
        written[str(out)] = len(queries)
    return written


def is_noise(passage: Document, query: Query) -> bool:
    """Tell whether a passage is of no help: it is no evidence, and holds none of the answers.

    The paper asks the reader of DPR, which knows only questions of one kind; evidence and answers are known for all.
    If a question names its `noise`, as in `edc2-rag`, that counts alone.
    """
    if (marked := query.extra.get("noise")) is not None:
        return passage.id in marked
    gold = {name.split("#")[0] for name in query.gold}
    return passage.id not in gold and not substring_match(f"{passage.title} {passage.text}", query.answers)


def noisy_pool(ranking: Sequence[Document], noise: Sequence[bool], size: int, rate: float) -> list[Document] | None:
    """Return the `size` best candidates in the order of the ranking, `round(rate * size)` of them noise.

    None if there are too few of one kind: the paper leaves such questions out.
    """
    num_noise = round(rate * size)
    ranks: list[int] = []
    for kind, number in ((True, num_noise), (False, size - num_noise)):
        best = [rank for rank, flag in enumerate(noise) if flag == kind][:number]
        if len(best) < number:
            return None
        ranks += best
    return [ranking[rank] for rank in sorted(ranks)]


def redundant_pool(ranking: Sequence[Document], size: int, rate: float, rewrite: Rewrite) -> list[Document] | None:
    """Return the best-ranked passages, and then rewritings of them in turn, `round(rate * size)` of `size`.

    A rewriting is named `id~number` and keeps the title. None if there are too few originals.
    """
    num_originals = size - round(rate * size)
    if len(ranking) < num_originals:
        return None
    pool = list(ranking[:num_originals])
    for index in range(size - num_originals):
        original, number = ranking[index % num_originals], index // num_originals + 1
        pool.append(Document(f"{original.id}~{number}", rewrite(original.text, number), original.title))
    return pool


def rotated(text: str, number: int) -> str:
    """Return the text beginning with another sentence: the same in another order, without a model.

    A text of one sentence comes back as it is, with "Again:" before it for each time.
    """
    sentences = [text[start:end].strip() for start, end in sentence_spans(text)]
    if len(sentences) < 2:
        return "Again: " * number + text
    turn = number % len(sentences)
    again = "Again: " * (number // len(sentences))
    return again + " ".join([*sentences[turn:], *sentences[:turn]])


class ChatRewriter:
    """Has a language model put a text in other words, and keeps what it said in a SQLite file."""

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
