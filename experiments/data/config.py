"""Settings that several commands share: which questions, their candidates, and how a selection is made and read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from corag.errors import InputError
from corag.index.search import Retrieval
from corag.rerankers.window import DEFAULT_POLICY, WindowPolicy
from experiments.data.pools import PoolName, check_counts


@dataclass(frozen=True, kw_only=True)
class CandidateSettings:
    """Which questions of a split, and where the candidates of each come from.

    Attributes:
        pool: Where candidates come from: the question's own list (candidates), all passages with the title of its
            evidence (document), or the nearest chunks of the corpus (corpus). `auto` takes the questions' own lists
            where all have one, and else the corpus.
        retrieval: Ranks candidates by cosine similarity (vector), by the words that they share with the question (text,
            BM25), or by both rankings joined (hybrid); see `ChunkIndex.retrieve`.
        num_candidates: Chunks offered per question with the corpus as pool.
        limit: Only the first questions of the split.
        sample: Only so many of these, drawn at random: neighbours are often about one document.
    """

    pool: PoolName = "auto"
    retrieval: Retrieval = "vector"
    num_candidates: int = 20
    limit: int | None = None
    sample: int | None = None

    def __post_init__(self) -> None:
        check_counts(self.limit, self.num_candidates, self.sample)

    def candidate_settings(self) -> dict[str, Any]:
        """Return these settings alone, whatever a subclass adds."""
        return {one.name: getattr(self, one.name) for one in fields(CandidateSettings)}


@dataclass(frozen=True, kw_only=True)
class SelectionSettings(CandidateSettings):
    """How candidates are found, selected under a budget, and read.

    Attributes:
        budget: The most tokens a selection may cost.
        window: Decides what happens to orders longer than a reranker's window: they are no candidates (forbid), are
            scored in overlapping windows (windows), or are cut (truncate) and counted.
        reader: Answers the questions; with settings of its own if need be: `minilm-reader:precision=bf16`.
        tokenizer: Counts tokens: minilm, estimate, or a tokenizer.json.
        embedder: Embeds questions and passages.
        index: An index of the corpus; by default one is built in the cache folder.
        max_tokens: Tokens of a chunk when an index has to be built.
        quiet: No progress and no table.
    """

    budget: int = 256
    window: WindowPolicy = DEFAULT_POLICY
    reader: str = "minilm-reader"
    tokenizer: str = "minilm"
    embedder: str = "minilm"
    index: str | None = None
    max_tokens: int = 256
    quiet: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget < 1:
            raise InputError(f"budget must be at least 1 token, got {self.budget}; 256 to 4096 are usual")
