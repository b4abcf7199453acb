"""Prints a reply for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from corag.cli.console import plain, say, stderr, stdout
from corag.reply import Quote, Reply
from corag.text.documents import SEPARATOR, body, citation
from corag.text.units import UnitChunk
from corag.text.visible import visible

if TYPE_CHECKING:
    from corag.index import IndexUpdate
    from corag.selectors.raptor.tree import RaptorTree

CHOSEN_BY = (
    "unit", "agent", "preset", "policy", "reranker", "iterations", "exploration", "cost_weight", "choice",
    "orders_scored",
)  # fmt: skip
"""Fields of the trace that are shown below the table."""

NOT_FOUND = "not found in these documents"
MAX_QUOTED = 240
"""Characters of a sentence that are shown on either side of the answer."""
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

    Args:
        reply: The answer and how it came about.
        printed: Whether the answer was printed as it was written.
        details: Print all chosen chunks with figures; otherwise only the sources that the answer is based on.
    """
    console, selection, numbers = stdout(), reply.selection, _numbers(reply)
    if printed:
        say("\n")
    if not (printed and reply.found):
        console.print(_answer_panel(reply, numbers))
    if reply.answer.cut:
        say("The answer was cut at the reader's max_answer_tokens; raise that for the rest.")
    if not details:
        used = {*reply.answer_chunks, *reply.citations.values()}
        rows = zip(numbers, selection.chunks, strict=True)
        sources = {number: citation(chunk) for number, chunk in rows if chunk.id in used}
        for number, source in sources.items():
            console.print(plain(f"{number} {source}"))
        for line in _decided(reply):
            console.print(plain(line))
        return
    if selection.chunks:
        console.print(_sources(reply, numbers))
    else:
        say(f"No chunk was chosen: {selection.trace.reason or 'no reason given'}.")
    for line in (*_decided(reply), *_figures(reply)):
        console.print(plain(line))


def _answer_panel(reply: Reply, numbers: Sequence[str]) -> Panel:
    """Return the answer in its sentences; if there is none, the closest sentences."""
    answer, sure = reply.answer, reply.certainty
    number_of = dict(zip(reply.selection.ids, numbers, strict=True))
    quoted = [_quote(quote, number_of.get(reply.chunk_at(quote.start) or "", "")) for quote in reply.quotes]
    lines: list[Text] = []
    if not reply.found:
        title = NOT_FOUND
        lines = [plain("Closest, though it may be no answer:" if quoted else "(no answer)"), *quoted]
    else:
        title = "answer" if sure is None else f"answer ({sure})"
        if not (quoted and answer.spans):  # a reply of a language model, yes or no
            lines.append(plain(answer.text))
        lines += quoted
    return Panel(Text("\n").join(lines), title=title, title_align="left")


def _quote(quote: Quote, number: str) -> Text:
    """Return a sentence with its source; the answer in it is highlighted, without styles by asterisks."""
    before, said, after = map(visible, quote.pieces)
    before = before if len(before) <= MAX_QUOTED else f"... {before[-MAX_QUOTED:].partition(' ')[2]}"
    after = after if len(after) <= MAX_QUOTED else f"{after[:MAX_QUOTED].rpartition(' ')[0]} ..."
    mark = "" if stdout().is_terminal or not said else "**"
    return Text.assemble(before, (f"{mark}{said}{mark}", "bold reverse"), after, f" {number}")


def _sources(reply: Reply, numbers: Sequence[str]) -> Table:
    """Return a table of the chosen chunks: where each comes from, and how it begins."""
    selection, trace = reply.selection, reply.selection.trace
    has_values = trace.chunk_values is not None
    values = trace.chunk_values if trace.chunk_values is not None else trace.chunk_similarities
    marks, before = _marks(reply), ""
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
            remark = ", ".join(dict.fromkeys(marks[name] for name in inside if name in marks))
            drawn.add_row(number, "", "", plain(citation(chunk) + (f"  <- {remark}" if remark else "")))
        before = number
        begins = plain(textwrap.shorten(visible(body(chunk)), MAX_BEGINNING, placeholder=" ..."))
        begins.no_wrap, begins.overflow = True, "ellipsis"
        begins.stylize("" if chunk.id in marks else "dim")
        figures = ("-" if tokens is None else str(tokens), "-" if value is None else f"{value:.2f}")
        drawn.add_row("", *figures, begins)
    return drawn


def _numbers(reply: Reply) -> list[str]:
    """Return the number of each chosen chunk on the screen; sentences of one document share theirs.

    If the answer cites parts of the context by number, these are the numbers.
    """
    chunks, text = reply.selection.chunks, reply.selection.text
    keys = [(isinstance(chunk, UnitChunk) or index, citation(chunk)) for index, chunk in enumerate(chunks)]
    numbers: list[str] = []
    for number, (_, group) in enumerate(groupby(range(len(keys)), key=keys.__getitem__), start=1):
        indices = list(group)
        parts = [number]
        if reply.answer.citations and reply.spans:
            parts = sorted({text.count(SEPARATOR, 0, reply.spans[index][0]) + 1 for index in indices})
        numbers += [f"[{parts[0]}]" if len(parts) == 1 else f"[{parts[0]}-{parts[-1]}]"] * len(indices)
    return numbers


def _marks(reply: Reply) -> dict[str, str]:
    """Return the remark on each chunk that contains the answer, or that it cites."""
    marks: dict[str, str] = {}
    if reply.found:
        sure = reply.certainty
        marks = dict.fromkeys(reply.answer_chunks, "answer" if sure is None else f"answer: {sure}")
    return marks | {name: "cited" for name in reply.citations.values() if name is not None}


def _decided(reply: Reply) -> Iterator[str]:
    """Yield what the agent named for the question, if there is one."""
    if because := reply.selection.trace.details.get("because"):
        yield f"chosen for this question: {because}"


def _figures(reply: Reply) -> Iterator[str]:
    """Yield what was chosen how, what the prompt costs, and how long each step took."""
    selection, trace = reply.selection, reply.selection.trace
    notes = trace.to_dict()
    shown = {name: notes[name] for name in CHOSEN_BY if name in notes}
    shown |= {name: f"{value:.3g}" for name, value in shown.items() if isinstance(value, float)}
    chosen_by = ", ".join(f"{name} {value}" for name, value in shown.items())
    yield (
        f"{selection.method}: value {selection.value:.3f}, {selection.cost_tokens} of {selection.budget_tokens} tokens "
        f"({selection.budget_share:.0%}){'; ' + chosen_by if chosen_by else ''}"
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
