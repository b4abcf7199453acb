"""Prints a reply for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from rich.panel import Panel

from corag.cli.console import plain, say, stderr, stdout, table
from corag.reply import Reply
from corag.text.documents import body, citation
from corag.text.units import UnitChunk
from corag.text.visible import visible

if TYPE_CHECKING:
    from corag.index import IndexUpdate
    from corag.selectors.raptor.tree import RaptorTree

CHOSEN_BY = (
    "unit", "agent", "preset", "policy", "reranker", "iterations", "exploration", "cost_weight", "choice", "prefilter",
    "orders_ranked", "orders_scored",
)  # fmt: skip
"""Fields of the trace that stand below the table."""

MAX_LISTED = 20
"""Unreadable files that are printed; the index's manifest lists all."""


class AnswerHeard:
    """Prints the pieces of an answer as they arrive.

    Attributes:
        any: Whether there was one.
    """

    def __init__(self) -> None:
        self.any = False

    def __call__(self, piece: str) -> None:
        """Print a piece."""
        self.any = True
        stdout().print(plain(piece), end="", soft_wrap=True)


def show_reply(reply: Reply, *, heard: bool = False) -> None:
    """Print an answer, the selected chunks in order with cost, value and origin, and the time of each step.

    Args:
        reply: The answer and how it came about.
        heard: Whether the answer was printed as it was written.
    """
    console, selection, trace = stdout(), reply.selection, reply.selection.trace
    answer = reply.answer
    if heard:
        say("\n" if answer.text else "\n(no answer)\n")
    else:
        console.print(Panel(plain(answer.text or "(no answer)"), title="answer", title_align="left"))
    if answer.cut:
        say("The answer was cut at the reader's max_answer_tokens; raise that for the rest.")
    values = trace.chunk_similarities if trace.chunk_values is None else trace.chunk_values
    rows = [
        {
            "place": str(place),
            "tokens": tokens,
            "value": value,
            "text": textwrap.shorten(visible(body(chunk)), 48, placeholder=" ..."),
        }
        # A selector that is not one of this project may note neither.
        for place, (chunk, tokens, value) in enumerate(zip_longest(selection.chunks, trace.chunk_tokens, values), 1)
    ]
    if rows:
        value = "similarity" if trace.chunk_values is None else "value alone"
        columns = {"place": "#", "tokens": "tokens", "value": value, "text": "begins"}
        console.print(table(rows, columns))
        for line in _origins(reply):
            say(line)
    else:
        say(f"No chunk was chosen: {trace.reason or 'no reason given'}.")
    noted = {name: value for name, value in trace.to_dict().items() if name in CHOSEN_BY}
    shown = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in noted.items()}
    if reason := trace.details.get("unit_reason"):
        shown["unit"] = f"{shown['unit']} ({reason})"
    chosen_by = ", ".join(f"{name} {shown[name]}" for name in CHOSEN_BY if name in shown)
    say(
        f"{selection.method}: value {selection.value:.3f}, {selection.cost_tokens} of {selection.budget_tokens} tokens "
        f"({selection.budget_share:.0%}){'; ' + chosen_by if chosen_by else ''}"
    )
    if because := trace.details.get("because"):
        say(f"chosen for this question: {because}")
    counts = reply.counts
    if counts.prompt_tokens is not None:
        limit = f" of {counts.budget_tokens}" if counts.budget_for == "prompt" else ""
        counted = f"{'counted' if counts.exact else 'estimated'} by {counts.tokenizer}"
        served = reply.answer.prompt_tokens
        told = "" if served is None else f"; {served} as the model counted them"
        say(f"prompt: {counts.prompt_tokens}{limit} tokens, {selection.cost_tokens} of them context, {counted}{told}")
    say("time: " + ", ".join(f"{step} {1000 * seconds:.0f} ms" for step, seconds in reply.seconds.items()))


def _origins(reply: Reply) -> Iterator[str]:
    """Yield where the chunks come from, and which of them the answer; sentences of one passage share a line."""
    markers = reply.citations
    origins = enumerate(reply.selection.chunks, start=1)
    for (_, origin), group in groupby(origins, lambda one: (isinstance(one[1], UnitChunk) or one[0], citation(one[1]))):
        places = {chunk.id: place for place, chunk in group}
        first, last = min(places.values()), max(places.values())
        line = f"[{first}-{last}] {origin}" if last > first else f"[{first}] {origin}"
        cited = [marker for marker, name in markers.items() if name in places]
        found = [f"[{place}]" for name, place in places.items() if name in (*markers.values(), reply.answer_chunk)]
        if found:
            line += "  <- answer"
            line += f" in {', '.join(found)}" if last > first else ""
            line += f", cited as {' '.join(cited)}" if cited else ""
        yield line


def show_update(update: IndexUpdate) -> None:
    """Print what became of the files of a folder, those that cannot be read, and what was embedded."""
    changes, written = update.changes, update.written
    chunks = f"{written.num_embedded} chunks embedded, {written.num_copied} kept"
    if not (written.num_embedded or written.num_copied):
        chunks = "nothing to do"
    if changes is None:
        say(chunks)
        return
    counts = {
        "new": changes.added,
        "unchanged": changes.unchanged,
        "changed": changes.changed,
        "deleted": changes.deleted,
        "unreadable": len(changes.unreadable),
    }
    files = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    say(f"files: {files}; {chunks}")
    _say_some("unreadable", changes.unreadable)
    _say_some("not in Unicode", {path: f"taken as {encoding}" for path, encoding in changes.guessed.items()})
    if changes.others:
        others = ", ".join(f"{ending} {number}" for ending, number in changes.others.items())
        say(f"  left out, of other types: {others}")


def show_tree(tree: RaptorTree, *, built: bool) -> None:
    """Print what a tree holds, and what failed."""
    sizes = " and ".join(f"{len(tree.layer(number))} summaries" for number in range(1, tree.num_layers))
    say(f"tree: {'built' if built else 'nothing to do'}; {len(tree.layer(0))} chunks below {sizes or 'no summary'}")
    if tree.num_failed:
        say(f"  {tree.num_failed} summaries failed; run the same command again to have them written", stderr())


def _say_some(what: str, files: Mapping[str, str]) -> None:
    for path, reason in list(files.items())[:MAX_LISTED]:
        say(f"  {what}: {path}: {reason}")
    if len(files) > MAX_LISTED:
        say(f"  {what}: {len(files) - MAX_LISTED} more")
