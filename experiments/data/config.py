"""Settings that several commands share: which questions, their candidates, and how a selection is made and read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from common.checks import MOST_CANDIDATES, check_budget, check_choice, check_count
from common.configuration import parse
from corag.budget import AUTO, BudgetFor
from corag.errors import InputError
from corag.index.search import Retrieval

# The command line looks for the types of settings in the module of the first base class alone.
from corag.models.runtime import Precision as Precision
from corag.models.runtime import Runtime
from corag.text.chunking import DEFAULT_BUDGET, DEFAULT_CHUNK_TOKENS
from corag.text.data import History

PoolName = Literal["auto", "candidates", "document", "corpus"]
Part = Literal["all", "held-out"]
"""Of the questions of a split: all, or the share that no shipped adapter has learned from."""


def comma_separated(text: str | None) -> list[str]:
    """Return the parts of a text between commas, without spaces around them and without empty ones."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@dataclass(frozen=True, kw_only=True)
class CandidateSettings:
    """Which questions of a split, and where the candidates of each come from.

    Attributes:
        pool: Where candidates come from: the question's own list (candidates), all passages with the title of its
            evidence (document), or the nearest chunks of the corpus (corpus). `auto` uses the questions' own lists if
            all have one, else the corpus.
        retrieval: How candidates of a corpus are found: by cosine similarity (vector), by BM25 (text), or by both
            (hybrid, the default); those of the other pools are ranked by cosine.
        num_candidates: Chunks offered per question with the corpus as pool, or passages of a run.
        limit: Use only the first N questions of the split.
        sample: Use a random sample of N of these questions; neighbouring ones are often about the same document.
        history: Which earlier questions of a conversation are put before each question: none, the last one, or all.
        run: TREC run, plain or `.gz`, whose best num_candidates passages are the candidates, in its order, in place of
            a pool.
    """

    pool: PoolName = "auto"
    retrieval: Retrieval | None = None
    num_candidates: int = 20
    limit: int | None = None
    sample: int | None = None
    history: History = "last"
    run: str | None = None

    def __post_init__(self) -> None:
        for name in ("sample", "limit"):
            if (number := getattr(self, name)) is not None:
                check_count(name, number, "leave it out for all questions")
        check_choice("history", self.history, History)
        check_count("num_candidates", self.num_candidates, "typical: 10-50", most=MOST_CANDIDATES)
        if self.run is not None and (self.pool in ("candidates", "document") or self.retrieval is not None):
            asked = f"retrieval {self.retrieval}" if self.retrieval is not None else f"pool {self.pool}"
            raise InputError(f"run {self.run!r} gives the candidates, so {asked} has no effect; leave one of them out")


def spell_out(settings: object, *names: str) -> None:
    """Replace parts that settings name by their shortest spelling.

    Raises:
        InputError: A part is unknown or malformed.
    """
    for name in names:
        if (part := getattr(settings, name)) is not None:
            object.__setattr__(settings, name, parse(part))


def left_open(one: CandidateSettings, of_all: CandidateSettings) -> dict[str, Any]:
    """Return the settings of one of several sets that are by default there, and given for all of them."""
    open_ = [setting.name for setting in fields(one) if getattr(one, setting.name) == setting.default]
    return {name: given for name in open_ if (given := getattr(of_all, name, None)) not in (None, "")}


@dataclass(frozen=True, kw_only=True)
class SelectionSettings(CandidateSettings, Runtime):
    """How candidates are found, selected under a budget, and read.

    Attributes:
        budget: Token budget of the whole prompt, including chat template and question; of the context alone for a
            reader without a prompt, such as `extractive`, or with `budget_for: context`.
        budget_for: What the budget covers: the whole prompt, or the context.
        reader: Reader that answers, with settings if needed: `ollama(model=llama3.1:8b)`.
        tokenizer: Tokenizer that counts tokens: auto, that of the reader's model (minilm for a reader without a
            prompt); a model on the hub, such as Qwen/Qwen3-8B, or of OpenAI, such as gpt-4o; a folder or a
            tokenizer.json; minilm; estimate.
        embedder: Embedder of questions and passages.
        index: Index of the corpus; by default one is built in the cache folder.
        max_tokens: Maximum tokens of a chunk, if an index is built.
        quiet: Show no progress and no table.
    """

    budget: int = DEFAULT_BUDGET
    budget_for: BudgetFor = "prompt"
    reader: str = "extractive"
    tokenizer: str = AUTO
    embedder: str = "minilm"
    index: str | None = None
    max_tokens: int = DEFAULT_CHUNK_TOKENS
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        Runtime.__post_init__(self)
        spell_out(self, "reader", "embedder", "tokenizer")
        check_budget(self.budget, "budget")
