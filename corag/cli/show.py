"""Prints a reply to the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from corag.cli.console import plain, say, stderr, stdout
from corag.reply import Reply, Source
from corag.text.documents import citation
from corag.text.units import INDENT
from corag.text.visible import visible

if TYPE_CHECKING:
    from corag.index import IndexUpdate
    from corag.selectors.raptor.tree import RaptorTree

CHOSEN_BY = (
    "unit", "agent", "preset", "policy", "reranker", "iterations", "exploration", "cost_weight", "choice",
    "orders_scored",
)  # fmt: skip
"""Fields of the trace that are shown below the table."""

MAX_LEFT_OUT = 5
"""Candidates that are named for each reason to leave them out."""


class AnswerPrinter:
    """Prints the pieces of an answer as they arrive; `used` says whether any did."""

    def __init__(self) -> None:
        self.used = False

    def __call__(self, piece: str) -> None:
        """Print a piece."""
        self.used = True
        stdout().print(plain(piece), end="", soft_wrap=True)


def show_reply(reply: Reply, *, printed: bool = False, details: bool = True) -> None:
    """Print the answer, if there is one, the chosen texts with what is marked in them, and what was left out and why.

    `printed` says that the answer was printed as it was written. Without `details`, of an answer only the sources are
    named that it cites.
    """
    console, answer, selection = stdout(), reply.answer, reply.selection
    if printed:
        say("\n")
    elif answer is not None:
        console.print(Panel(plain(answer.text or "The reader found no answer."), title="answer", title_align="left"))
    if answer is not None and answer.cut:
        say("The answer was cut at the reader's max_answer_tokens; raise that for the rest.")
    if answer is not None and answer.unknown_citations:
        numbers = " ".join(f"[{part + 1}]" for part in answer.unknown_citations)
        say(f"Cited but not in the context: {numbers}")
    if answer is not None and not details:
        for source in reply.cited:
            console.print(plain(f"{source.marker} {source.citation}"))
        return
    for source in reply.sources:
        console.print(_heading(reply, source))
        console.print(Padding(_marked(selection.text, source), (0, 0, 1, len(INDENT))))
    if selection.text and not reply.sources:  # a summary
        console.print(plain(selection.text))
    if not selection.text:
        say(f"Nothing was chosen: {selection.trace.reason or 'no text has a value'}.")
    for line in (*_left_out(reply), *_figures(reply)):
        console.print(plain(line))


def _heading(reply: Reply, source: Source) -> Text:
    trace = reply.selection.trace
    # A selector that is not one of this project may note neither tokens nor values.
    noted = trace.chunk_similarities if trace.chunk_values is None else trace.chunk_values
    name = "similarity" if trace.chunk_values is None else "value"
    tokens = [trace.chunk_tokens[index] for index in source.chunks if index < len(trace.chunk_tokens)]
    values = [value for index in source.chunks if index < len(noted) and (value := noted[index]) is not None]
    figures = [f"{sum(tokens)} tokens"] if tokens else []
    figures += [f"{name} {max(values):.2f}"] if values else []
    figures += ["cited"] if source in reply.cited else []
    return Text.assemble((source.marker, "bold"), " ", plain(source.citation), (f"  {', '.join(figures)}", "dim"))


def _marked(text: str, source: Source) -> Text:
    """Return the text of a source; what is marked in it is bold, on a screen without styles between asterisks."""
    star, drawn, at = "" if stdout().is_terminal else "**", Text(), source.span[0]
    for start, end in (*source.marked, (source.span[1], source.span[1])):
        drawn.append(visible(text[at:start]))
        if start < end:
            drawn.append(f"{star}{visible(text[start:end])}{star}", "bold")
        at = end
    return drawn


def _left_out(reply: Reply) -> Iterator[str]:
    """Yield the candidates of which nothing was chosen, by the reason."""
    for reason in dict.fromkeys(one.reason for one in reply.left_out):
        named = [one for one in reply.left_out if one.reason == reason]
        yield f"left out, because it {reason}:"
        for one in named[:MAX_LEFT_OUT]:
            similarity = "" if one.candidate.similarity is None else f", similarity {one.candidate.similarity:.2f}"
            yield f"{INDENT}{citation(one.candidate.chunk)} ({one.tokens} tokens{similarity})"
        if len(named) > MAX_LEFT_OUT:
            yield f"{INDENT}and {len(named) - MAX_LEFT_OUT} more"


def _figures(reply: Reply) -> Iterator[str]:
    """Yield why and how the chunks were chosen, what the prompt costs, and how long each step took."""
    selection, trace = reply.selection, reply.selection.trace
    if because := trace.details.get("because"):
        yield f"chosen for this question: {because}"
    notes = trace.to_dict()
    shown = {name: notes[name] for name in CHOSEN_BY if name in notes}
    shown |= {name: f"{value:.3g}" for name, value in shown.items() if isinstance(value, float)}
    chosen_by = ", ".join(f"{name} {value}" for name, value in shown.items())
    yield (
        f"{selection.method}: value {selection.value:.3f}, {selection.cost_tokens} of {selection.budget_tokens} tokens "
        f"({selection.cost_tokens / selection.budget_tokens:.0%}){'; ' + chosen_by if chosen_by else ''}"
    )
    counts = reply.counts
    if counts.prompt_tokens is not None:
        limit = f" of {counts.budget_tokens}" if counts.budget_for == "prompt" else ""
        counted = f"{'counted' if counts.exact else 'estimated'} by {counts.tokenizer}"
        served = None if reply.answer is None else reply.answer.prompt_tokens
        counted += "" if served is None else f"; {served} as the model counted them"
        yield f"prompt: {counts.prompt_tokens}{limit} tokens, {selection.cost_tokens} of them context, {counted}"
    yield "time: " + ", ".join(f"{step} {1000 * seconds:.0f} ms" for step, seconds in reply.seconds.items())


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


def show_tree(tree: RaptorTree, *, built: bool) -> None:
    """Print what a tree holds, and what failed."""
    sizes = " and ".join(f"{len(tree.layer(number))} summaries" for number in range(1, tree.num_layers))
    say(f"tree: {'built' if built else 'nothing to do'}; {len(tree.layer(0))} chunks below {sizes or 'no summary'}")
    if tree.num_failed:
        say(f"  {tree.num_failed} summaries failed; run the same command again to have them written", stderr())
