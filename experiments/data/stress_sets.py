"""Data folders whose candidates hold a given share of noise, or of passages repeated in other words.

After EDC2-RAG (section 5.3 and appendix A.2): a noise rate is the share of retrieved passages that do not help, a
redundancy rate r = (n - k) / n the share of n candidates that are rewritings of the k others. The studies of that paper
make them; see `experiments.papers.run`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from common.checks import check_count, check_range
from common.storage import new_folder
from corag.cli.console import progress
from corag.errors import InputError
from corag.memory import TextStore
from corag.models.chat import Chat
from corag.models.prompts import prompt
from corag.text.chunking import sentence_spans
from corag.text.data import DataFolder, Query, passage_of
from corag.text.documents import Document
from experiments.data.folder import FolderWriter, Question, line_of
from experiments.data.pools import Pool
from experiments.evaluation.metrics import substring_match

Kind = Literal["noise", "redundancy"]

Rewrite = Callable[[str, int], str]
"""Puts a text in other words, given the number of this rewriting, from 1."""


def rotated(text: str, number: int) -> str:
    """Return the text beginning with another sentence, and with "Again:" for each time that it comes round."""
    sentences = [text[start:end].strip() for start, end in sentence_spans(text)]
    if len(sentences) < 2:
        return "Again: " * number + text
    rounds, turn = divmod(number, len(sentences))
    return "Again: " * rounds + " ".join([*sentences[turn:], *sentences[:turn]])


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
    """Write a data folder for each rate, `noise-0.4`, and return them by rate.

    All have the same questions: those with enough passages in the pool for each rate, in [0, 1]. `size` is the number
    of candidates of each; the paper has 20 and 100.

    Raises:
        InputError: A rate or the size cannot be, or no question has enough passages.
    """
    for rate in rates:
        check_range(kind, rate, 0, 1, "it is a share of the candidates")
    check_count("size", size, "the paper has 20 and 100")
    queries = [query for query in folder.queries if query.id in pool]
    drafts: list[tuple[Query, dict[float, list[Document] | None]]] = []
    with progress(kind, quiet=quiet) as report:
        for number, query in enumerate(queries, start=1):
            # A passage that was cut into chunks counts once.
            chunks = [candidate.chunk for candidate in pool[query.id]]
            names = dict.fromkeys(str(chunk.metadata.get("document", chunk.id)) for chunk in chunks)
            ranking = [folder.documents[name] for name in names]
            noise = [is_noise(one, query) for one in ranking]
            make = partial(noisy_pool, noise=noise) if kind == "noise" else partial(redundant_pool, rewrite=rewrite)
            pools = {rate: make(ranking, size=size, rate=rate) for rate in rates}
            if all(pools.values()):
                drafts.append((query, pools))
            report(number, len(queries))
    if not drafts:
        raise InputError(
            f"no question has enough passages of both kinds for {size} candidates and {kind} of up to {max(rates):g}; "
            "retrieve more for each, or ask for fewer"
        )
    written = {}
    for rate in rates:
        written[rate] = out / f"{kind}-{rate:g}"
        with new_folder(written[rate]) as draft, FolderWriter(draft) as writer:
            for query, pools in drafts:
                about = query.id, query.question, query.answers, query.gold
                writer.question(Question(*about, pools[rate] or (), True, line_of(query)), query.split)
    return written


def is_noise(passage: Document, query: Query) -> bool:
    """Tell whether a passage is of no help: it is no evidence, and holds none of the answers.

    The paper asks the reader of DPR, which knows only questions of one kind; evidence and answers are known for all.
    If a question names its `noise`, as in `edc2-rag`, that counts alone.
    """
    if (marked := query.extra.get("noise")) is not None:
        return passage.id in marked
    is_gold = any(passage_of(name, {passage.id: passage}) for name in query.gold)
    return not is_gold and not substring_match(f"{passage.title} {passage.text}", query.answers)


def noisy_pool(ranking: Sequence[Document], noise: Sequence[bool], size: int, rate: float) -> list[Document] | None:
    """Return the `size` best candidates in the order of the ranking, `round(rate * size)` of them noise.

    None if there are too few of one kind: the paper leaves such questions out.
    """
    num_noise = round(rate * size)
    bad = [rank for rank, flag in enumerate(noise) if flag][:num_noise]
    good = [rank for rank, flag in enumerate(noise) if not flag][: size - num_noise]
    return [ranking[rank] for rank in sorted(good + bad)] if len(good + bad) == size else None


def redundant_pool(ranking: Sequence[Document], size: int, rate: float, rewrite: Rewrite) -> list[Document] | None:
    """Return the best-ranked passages, and then rewritings of them in turn, `round(rate * size)` of `size`.

    A rewriting is named `id~number` and keeps the title. None if there are too few originals, or none.
    """
    num_originals = size - round(rate * size)
    if not 0 < num_originals <= len(ranking):
        return None
    pool = list(ranking[:num_originals])
    for index in range(size - num_originals):
        original, number = ranking[index % num_originals], index // num_originals + 1
        pool.append(Document(f"{original.id}~{number}", rewrite(original.text, number), original.title))
    return pool


def chat_rewriter(chat: Chat, store: str | Path) -> Rewrite:
    """Return what has a language model put a text in other words, and keeps its replies in a file."""
    replies, template = TextStore(Path(store)), prompt("rewrite", "experiments/prompts", needs=["passage"])

    def rewrite(text: str, number: int) -> str:
        key = hashlib.sha256(json.dumps([chat.identity, template.text, text, number]).encode()).hexdigest()
        if (kept := replies.get(key)) is not None:
            return kept
        # The number keeps a greedy model from giving the same rewriting twice.
        [message] = template.messages(passage=text)
        message["content"] += f"\n\nThis is rewriting number {number}."
        reply = chat.ask([message]).text.strip()
        replies.put(key, reply)
        return reply

    return rewrite
