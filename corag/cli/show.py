"""Prints a reply to the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from corag.cli.console import plain, say, stderr, stdout
from corag.reply import Reply
from corag.shown import Shown, markers
from corag.text.documents import body, citation
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

MAX_BEGINNING = 160
"""Characters of a chunk that are shown."""


class AnswerPrinter:
    """Prints the pieces of an answer as they arrive; `used` says whether any did."""

    def __init__(self) -> None:
        self.used = False

    def __call__(self, piece: str) -> None:
        """Print a piece."""
        self.used = True
        stdout().print(plain(piece), end="", soft_wrap=True)


def show_reply(reply: Reply, *, printed: bool = False, details: bool = True) -> None:
    """Print an answer, the chosen chunks with source, cost and value, and how they were chosen.

    `printed` says that the answer was printed as it was written. Without `details`, only the sources that the answer is
    based on are printed.
    """
    console, selection, shown = stdout(), reply.selection, reply.shown
    if printed:
        say("\n")
    if not (printed and shown.found):
        console.print(_panel(shown))
    if reply.answer.cut:
        say("The answer was cut at the reader's max_answer_tokens; raise that for the rest.")
    for question in shown.missing:
        say(f"No likely answer to: {question}")
    if not details:
        by_id = {chunk.id: chunk for chunk in selection.chunks}
        for marker, name in shown.citations.items():
            if name in by_id:
                console.print(plain(f"{marker} {citation(by_id[name])}"))
        return
    if selection.chunks:
        console.print(_sources(reply))
    for line in _figures(reply):
        console.print(plain(line))


def _panel(shown: Shown) -> Panel:
    """Return the answer; what tells it in a passage is highlighted, without styles by asterisks."""
    mark = "" if stdout().is_terminal else "**"
    lines = [plain(shown.text)] if shown.text else []
    for passage in shown.passages:
        line = Text()
        for text, marked in passage.pieces:
            star = mark if marked else ""
            # Asterisks of the text's own would end the mark.
            held = visible(text).replace(star, "") if star else visible(text)
            line.append(f"{star}{held}{star}", "bold reverse" if marked else "")
        lines.append(line.append(f" {passage.marker}"))
    if shown.reason:
        lines.append(plain(f"{shown.reason[:1].upper()}{shown.reason[1:]}."))
    # A line that is set in stays so where it is wrapped.
    rows = [
        Padding(row[len(INDENT) :], (0, 0, 0, len(INDENT))) if row.plain.startswith(INDENT) else row
        for row in Text("\n\n").join(lines).split("\n", allow_blank=True)
    ]
    return Panel(Group(*rows), title=shown.headline, title_align="left")


def _sources(reply: Reply) -> Table:
    """Return a table of the chosen chunks: where each comes from, and how it begins."""
    selection, trace = reply.selection, reply.selection.trace
    has_values = trace.chunk_values is not None
    values = trace.chunk_similarities if trace.chunk_values is None else trace.chunk_values
    numbers = markers(selection, cited=bool(reply.answer.citations))
    remark = "answer" if reply.found and reply.shown.passages else "cited"
    marks, before = dict.fromkeys(reply.shown.citations.values(), remark if reply.found else "closest"), ""
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    drawn.add_column("", no_wrap=True)
    for heading in ("tokens", "value" if has_values else "similarity"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("source", ratio=1)
    # A selector that is not one of this project may note neither tokens nor values.
    rows = zip(numbers, zip_longest(selection.chunks, trace.chunk_tokens, values), strict=True)
    for number, (chunk, tokens, value) in rows:
        if number != before:
            inside = [other.id for other, its in zip(selection.chunks, numbers, strict=True) if its == number]
            remark_of_source = next((f"  <- {marks[name]}" for name in inside if name in marks), "")
            drawn.add_row(number, "", "", plain(citation(chunk) + remark_of_source))
        before = number
        excerpt = plain(textwrap.shorten(visible(body(chunk)), MAX_BEGINNING, placeholder=" ..."))
        excerpt.no_wrap, excerpt.overflow = True, "ellipsis"
        excerpt.stylize("" if chunk.id in marks else "dim")
        figures = ("-" if tokens is None else str(tokens), "-" if value is None else f"{value:.2f}")
        drawn.add_row("", *figures, excerpt)
    return drawn


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
        served = reply.answer.prompt_tokens
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
