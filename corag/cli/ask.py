"""`corag ask`: what is chosen for a question, and an answer from it; `corag chat`: several, with a language model."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.storage import write_atomically
from corag.budget import AUTO, BudgetFor
from corag.cli.console import plain, say, stderr, stdout
from corag.cli.explain import notes_of, reply_page
from corag.errors import CoragError, InputError
from corag.index.search import Retrieval
from corag.models.runtime import Runtime, in_runtime
from corag.text.chunking import DEFAULT_BUDGET
from corag.text.visible import one_line, to_json
from corag.types import Answer

HELP = "/sources shows what the last answer rests on, /new begins anew, /exit or Ctrl-D leaves."
MOST_TURNS = 4
"""Questions and answers that a language model is told of to make the next question stand alone."""


@dataclass(frozen=True, kw_only=True)
class AnswerConfig(Runtime):
    """How questions are answered.

    Attributes:
        index: Folder or URI of the index.
        budget: Token budget of the whole prompt, including chat template and question; of the context alone without
            a language model, or with `--budget_for context`.
        budget_for: What the budget covers: the whole prompt, or the context.
        method: Selector that chooses the chunks, with settings if needed, such as `corag(keep=0.9)` or `top-k(k=3)`.
        agent: Agent that chooses the settings of method `corag` that are not given, for each question: a checkpoint
            folder; by default none, and the best single configuration holds.
        reranker: Reranker for methods that use one; overrides their default and the agent's choice.
        num_candidates: Number of chunks to retrieve.
        retrieval: How the index ranks chunks: by cosine similarity (vector), by BM25 (text), or by both rankings joined
            (hybrid).
        where: Only chunks with this metadata, such as '{"document": "faq.md"}' or '{"year": {">=": 2024}}'.
        reader: Reader that answers from the context, such as `ollama(model=llama3.1:8b)`; by default none.
        tokenizer: Tokenizer that counts tokens: auto, that of the reader's model (minilm without one); a model on the
            hub, such as Qwen/Qwen3-8B, or of OpenAI, such as gpt-4o; a folder or a tokenizer.json; minilm; estimate.
        embedder: Embedder of the question; by default the index's own.
    """

    index: str = "runs/index"
    budget: int = DEFAULT_BUDGET
    budget_for: BudgetFor = "prompt"
    method: str = "corag"
    agent: str = "none"
    reranker: str | None = None
    num_candidates: int = 20
    retrieval: Retrieval = "hybrid"
    where: dict[str, Any] | None = None
    reader: str | None = None
    tokenizer: str = AUTO
    embedder: str | None = None


@dataclass(frozen=True)
class AskConfig(AnswerConfig):
    """Choose what a question needs from an index, under a token budget; answer it, if a reader is given.

    Attributes:
        question: The question.
        json: Print the result as JSON.
        page: HTML file to write: what was chosen, what was left out and why, and the policy tree, if there is one.
    """

    question: str
    json: bool = False
    page: str | None = None


@in_runtime
def run(config: AskConfig) -> None:
    """Answer one question."""
    import corag

    reply = corag.ask(config.question, config.index, **settings_of(config))
    if config.json:
        sys.stdout.write(to_json(reply.to_dict(), shown=True, indent=2) + "\n")
    else:
        reply_page(reply).show()
    if config.page is not None:
        write_atomically(Path(config.page), reply_page(reply, explained=True).html())
        say(f"page written to {config.page}", stderr())


@dataclass(frozen=True)
class ChatConfig(AnswerConfig):
    """Ask a language model several questions in a row; follow-up questions may refer to earlier ones."""


@in_runtime
def run_chat(config: ChatConfig) -> None:
    """Answer questions until there are no more."""
    import corag
    from corag.budget import reader_and_tokens
    from corag.readers.chat import ChatReader
    from corag.reply import Reply

    settings = settings_of(config)
    reader, settings["tokenizer"] = reader_and_tokens(config.reader, config.tokenizer, prompt="cited")
    if not isinstance(reader, ChatReader):
        raise InputError(
            "a conversation needs a language model: give --reader ollama(model=...) or openai(model=...); without "
            "one, ask single questions"
        )
    settings["reader"] = reader
    settings["on_token"] = lambda piece: stdout().print(plain(piece), end="", soft_wrap=True)
    index = corag.ChunkIndex.open(config.index)
    turns = deque[tuple[str, str]](maxlen=MOST_TURNS)
    last: Reply | None = None
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        say(f"Ask about {config.index}. {HELP}")
    for line in _lines(at_terminal):
        if line == "/exit":
            return
        if line == "/new":
            turns.clear()
            last = None
        elif line == "/sources" and last is not None:
            reply_page(last).show()
        elif line.startswith("/"):
            say("nothing was asked yet" if line == "/sources" else HELP)
        else:
            try:
                last = corag.ask(reader.standing_alone(line, turns), index, **settings)
            except (KeyboardInterrupt, CoragError) as error:
                say("")  # a line of the answer may have begun
                # Neither a stopped answer nor a question that cannot be answered ends a conversation.
                if isinstance(error, CoragError):
                    say(f"error: {one_line(str(error))}", stderr())
                elif not at_terminal:
                    return
                continue
            answer = last.answer or Answer("")
            turns.append((line, answer.text))
            cited = [f"{source.marker} {source.citation}" for source in last.sources if source.is_cited]
            asked_as = [f"asked as: {last.question}"] if last.question != line else []
            say("\n".join(["", *cited, *notes_of(answer), *asked_as]))


def _lines(at_terminal: bool) -> Iterator[str]:
    """Yield what is typed or piped, stripped, without empty lines, until it ends or Ctrl-C is typed for a question."""
    if at_terminal:
        import readline  # noqa: F401  (history and editing of `input`)
    read = iter(lambda: input("> "), None) if at_terminal else sys.stdin
    try:
        for line in read:
            if text := line.strip():
                if not at_terminal:
                    say(f"> {text}")
                yield text
    except (EOFError, KeyboardInterrupt):
        say("")


def settings_of(config: AnswerConfig) -> dict[str, Any]:
    """Return the settings of `corag.ask`, of those of its selector what is given."""
    from corag.selectors.corag.agents import decides

    names = ("method", "reader", "embedder", "num_candidates", "retrieval", "where", "tokenizer", "budget_for")
    settings = {name: getattr(config, name) for name in names}
    settings |= {} if config.reranker is None else {"reranker": config.reranker}
    settings |= {"agent": config.agent} if decides(config.agent) else {}
    return {"budget_tokens": config.budget, **settings}
