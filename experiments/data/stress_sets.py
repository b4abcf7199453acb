"""Data folders whose candidates hold a given share of noise, or of passages repeated in other words.

After EDC2-RAG (section 5.3 and appendix A.2): a noise rate is the share of retrieved passages that do not help, a
redundancy rate r = (n - k) / n the share of n candidates that are rewritings of the k others. The studies of that paper
make them; see `experiments.papers.prepare`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from corag.checks import check_count, check_range
from corag.cli.console import progress
from corag.errors import InputError
from corag.memory import DiskStore
from corag.models.chat.base import Chat
from corag.models.chat.prompts import prompt
from corag.text.chunking import sentence_spans
from corag.text.data import DataFolder, Query
from corag.text.documents import Document
from experiments.data.folder import FolderWriter, Question, new_folder
from experiments.data.pools import Pool
from experiments.evaluation.metrics import substring_match

Kind = Literal["noise", "redundancy"]

Rewrite = Callable[[str, int], str]
"""Puts a text in other words: the text, and the number of this rewriting, from 1."""


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


def stress_sets(
    folder: DataFolder,
    pool: Pool,
    out: Path,
    *,
    kind: Kind,
    rates: Sequence[float],
    size: int = 20,
    rewrite: Rewrite = rotated,
    quiet: bool = False,
) -> dict[float, Path]:
    """Write a data folder for each rate, and return them by rate; each is called by kind and rate: `noise-0.4`.

    Args:
        folder: Where the questions of the pool come from.
        pool: Candidates of each question, best first. All folders have the same questions: those with enough passages
            for each rate.
        out: Folder of the new data folders.
        kind: `noise`, passages that are of no help, or `redundancy`, passages repeated in other words.
        rates: Shares of candidates, in [0, 1].
        size: Candidates of each question; the paper has 20 and 100.
        rewrite: What puts passages in other words.
        quiet: Show no progress.

    Raises:
        InputError: A rate or the size cannot be, or no question has enough passages.
    """
    for rate in rates:
        check_range(kind, rate, 0, 1, "it is a share of the candidates")
    check_count("size", size, "the paper has 20 and 100")
    if kind == "redundancy" and max(rates) * size > size - 0.5:
        raise InputError(f"redundancy {max(rates):g} leaves no original among {size} candidates; lower it")
    queries = [query for query in folder.queries if query.id in pool.by_query]
    drafts: dict[float, dict[str, list[Document]]] = {}
    for rate in rates:
        drafts[rate] = {}
        with progress(f"{kind} {rate:g}", quiet=quiet) as report:
            for number, query in enumerate(queries, start=1):
                # A passage that was cut into chunks counts once.
                chunks = [candidate.chunk for candidate in pool.candidates(query)]
                names = dict.fromkeys(str(chunk.metadata.get("document", chunk.id)) for chunk in chunks)
                ranking = [folder.documents[name] for name in names]
                if kind == "noise":
                    passages = noisy_pool(ranking, [is_noise(one, query) for one in ranking], size, rate)
                else:
                    passages = redundant_pool(ranking, size, rate, rewrite)
                if passages is not None:
                    drafts[rate][query.id] = passages
                report(number, len(queries))
        queries = [query for query in queries if query.id in drafts[rate]]
    if not queries:
        raise InputError("no question has enough passages of both kinds; retrieve more for each, or ask for fewer")
    written = {}
    for rate, passages_of in drafts.items():
        written[rate] = out / f"{kind}-{rate:g}"
        with new_folder(written[rate]) as draft, FolderWriter(draft) as writer:
            for query in queries:
                extra = {**query.extra, **({"grades": query.grades} if query.grades else {})}
                question = Question(
                    query.id, query.question, query.answers, query.gold, passages_of[query.id], True, extra
                )
                writer.question(question, query.split)
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


def chat_rewriter(chat: Chat, store: str | Path) -> Rewrite:
    """Return what has a language model put a text in other words, and keeps its replies in a SQLite file."""
    replies, template = DiskStore(store, "text"), prompt("rewrite", "experiments/prompts", needs=["passage"])

    def rewrite(text: str, number: int) -> str:
        key = hashlib.sha256(json.dumps([chat.identity, template.text, text, number]).encode()).digest()
        # The number keeps a greedy model from giving the same rewriting twice.
        [message] = template.messages(passage=text)
        message["content"] += f"\n\nThis is rewriting number {number}."
        [kept] = replies.get_many([key], lambda _: [chat.ask([message]).text.strip().encode()])
        return kept.decode()

    return rewrite
