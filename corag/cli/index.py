"""`corag index`: from a corpus to an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.configuration import spelling
from corag.cli.console import progress, say, stderr
from corag.errors import ModelError
from corag.models.runtime import Runtime, in_runtime, resolve_device, runtime
from corag.text.chunking import DEFAULT_CHUNK_TOKENS

if TYPE_CHECKING:
    from corag.index import IndexUpdate

_ANNOUNCED_SECONDS = 30
"""From this time on a first index is announced."""


@dataclass(frozen=True)
class IndexConfig(Runtime):
    """Index a folder of documents, or the corpus of a data folder; re-run to update changed files.

    Attributes:
        data: Folder of documents (Markdown, RST, AsciiDoc, TeX, HTML, EPUB, PDF, DOCX, PPTX, XLSX, CSV, JSON,
            mail, notebooks, manual pages, any text), one document, or a data folder with corpus.jsonl[.gz].
        out: Where to write the index: a local folder, or an object-storage URI (s3://, gs://, az://).
        include: Index only files that match one of these globs, separated by commas, such as `*.md,guides/*`. A glob
            matches the path below the folder, or the name of a file or folder on it.
        exclude: Leave out files that match one of these globs.
        max_tokens: Maximum tokens of a chunk, title included; typical: 128, 256, 512 and 1024.
        overlap_tokens: Approximate tokens at the end of a chunk that are repeated at the start of the next.
        embedder: Embedder of the chunks.
        tokenizer: Tokenizer that measures chunks: a model on the hub, such as Qwen/Qwen3-8B, or of OpenAI, such as
            gpt-4o; a folder or a tokenizer.json; minilm (or auto); estimate.
        overwrite: Replace an existing index: of another folder or with other settings, or of this folder, of which all
            files are then read again. Without it, the index of the same folder is updated.
        tree: Build or update a tree of summaries over the whole corpus, for the selector `raptor`. An interrupted build
            resumes.
        tree_summarizer: Summarizer that writes it, such as `ollama(model=llama3.1:8b)`.
        quiet: Show no progress.
    """

    data: str
    out: str = "runs/index"
    include: str = ""
    exclude: str = ""
    max_tokens: int = DEFAULT_CHUNK_TOKENS
    overlap_tokens: int = 0
    embedder: str = "minilm"
    tokenizer: str = "minilm"
    overwrite: bool = False
    tree: bool = False
    tree_summarizer: str = "extractive"
    quiet: bool = False


@in_runtime
def run(config: IndexConfig) -> None:
    """Index a folder, or bring its index up to date.

    MiniLM's vectors are computed in bf16 where the processor has it, unless a precision is given: in about half the
    time, and their recall was measured to be the same (lab notebook).
    """
    import corag
    from corag.index import update_index
    from corag.registry import EMBEDDERS, SUMMARIZERS
    from corag.selectors.raptor.build import is_current, update_tree
    from corag.untrusted import check_untrusted

    precision = config.precision
    if config.embedder == "minilm" and precision == "auto":
        precision = resolve_device("reranker").precision
    with runtime(precision=precision):
        embedder, tokens = corag.embedder(config.embedder), corag.tokens(config.tokenizer)
    summarizer = SUMMARIZERS.make(config.tree_summarizer, defaults={"tokenizer": tokens}) if config.tree else None
    with progress("index", quiet=config.quiet) as report:
        update = update_index(
            config.data,
            config.out,
            embedder,
            corag.ChunkConfig(config.max_tokens, config.overlap_tokens),
            include=_globs(config.include),
            exclude=_globs(config.exclude),
            tokens=tokens,
            overwrite=config.overwrite,
            reread=config.overwrite,
            report=report,
            announce=None if config.quiet else _announce,
        )
    show_update(update)
    if summarizer is not None:
        with progress("tree", quiet=config.quiet) as report:
            tree, built = update_tree(update.index, embedder, summarizer, report=report)
        sizes = " and ".join(f"{len(tree.layer(number))} summaries" for number in range(1, tree.num_layers))
        say(f"tree: {'built' if built else 'nothing to do'}; {len(tree.layer(0))} chunks below {sizes or 'no summary'}")
        if tree.num_failed:
            say(f"  {tree.num_failed} summaries failed; run the same command again to have them written", stderr())
    elif not is_current(update.index):
        say("the tree beside the index is of an earlier state; bring it up to date with --tree", stderr())
    ask = f"corag ask 'your question' --index {config.out}"
    try:
        check_untrusted(EMBEDDERS, update.index.manifest.embedder_name, config.out)
    except ModelError:
        ask += f' --embedder "{spelling(config.embedder)}"'
    say(f"{len(update.index)} chunks in {config.out}; ask it with: {ask}")


def _announce(seconds: float) -> None:
    if seconds > _ANNOUNCED_SECONDS:
        duration = f"about {seconds / 60:.0f} minutes" if seconds > 90 else f"about {seconds:.0f} seconds"
        say(f"the first index takes {duration}, further ones only what changes take", stderr())


def _globs(text: str) -> list[str]:
    return [glob.strip() for glob in text.split(",") if glob.strip()]


def show_update(update: IndexUpdate) -> None:
    """Print what became of the files of a folder, those that are skipped, and what was embedded."""
    chunks = f"{update.num_embedded} chunks embedded, {update.num_copied} kept"
    if not (update.num_embedded or update.num_copied):
        chunks = "nothing to do"
    files = ", ".join(f"{number} {what}" for what, number in update.files.items() if number)
    say(f"files: {files}; {chunks}" if files else chunks)
    reasons: dict[str, list[str]] = {}
    for path, reason in update.skipped.items():
        reasons.setdefault(reason, []).append(path)
    for reason, paths in reasons.items():
        say(f"  skipped: {', '.join(paths)}: {reason}")
