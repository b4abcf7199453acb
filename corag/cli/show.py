"""Prints a reply for people."""

from __future__ import annotations

import textwrap
from itertools import zip_longest

from rich.markup import escape
from rich.panel import Panel

from corag.cli.console import say, stdout, table
from corag.reply import Reply

CHOSEN_BY = (
    "agent", "policy", "reranker", "iterations", "exploration", "cost_weight", "prefilter",
    "orders_ranked", "orders_scored",
)  # fmt: skip
"""Fields of the trace that stand below the table."""


def show_reply(reply: Reply) -> None:
    """Print an answer, the selected chunks in order with cost and value, and the time of each step."""
    console, selection, trace = stdout(), reply.selection, reply.selection.trace
    console.print(Panel(escape(reply.answer.text or "(no answer)"), title="answer", title_align="left"))
    values = trace.chunk_similarities if trace.chunk_values is None else trace.chunk_values
    rows = [
        {
            "place": str(place),
            "chunk": escape(chunk.id),
            "tokens": tokens,
            "value": value,
            "text": escape(textwrap.shorten(chunk.text, 48, placeholder=" ...")),
        }
        # A selector that is not one of this project may note neither.
        for place, (chunk, tokens, value) in enumerate(zip_longest(selection.chunks, trace.chunk_tokens, values), 1)
    ]
    if rows:
        value = "similarity" if trace.chunk_values is None else "value alone"
        columns = {"place": "#", "chunk": "chunk", "tokens": "tokens", "value": value, "text": "begins"}
        console.print(table(rows, columns))
    else:
        say(f"No chunk was chosen: {trace.reason or 'no reason given'}.")
    noted = {name: value for name, value in trace.to_dict().items() if name in CHOSEN_BY}
    shown = {name: f"{value:.3g}" if isinstance(value, float) else value for name, value in noted.items()}
    chosen_by = ", ".join(f"{name} {shown[name]}" for name in CHOSEN_BY if name in shown)
    say(
        f"{selection.method}: value {selection.value:.3f}, {selection.cost_tokens} of {selection.budget_tokens} tokens "
        f"({selection.budget_share:.0%}){'; ' + chosen_by if chosen_by else ''}"
    )
    say("time: " + ", ".join(f"{step} {1000 * seconds:.0f} ms" for step, seconds in reply.seconds.items()))
