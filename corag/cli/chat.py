"""`corag chat`: several questions about the same documents, from a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich.text import Text

from corag.cli.ask import AnswerConfig, settings_of
from corag.cli.console import plain, say, stderr, stdout
from corag.errors import CoragError
from corag.models.runtime import in_runtime
from corag.text.visible import one_line

HELP = "/sources shows what the last answer rests on, /new begins anew, /exit or Ctrl-D leaves."
LEAVE = ("/exit", "/quit")


@dataclass(frozen=True)
class ChatConfig(AnswerConfig):
    """Ask several questions in a row; each is understood from those before it."""


@in_runtime
def run(config: ChatConfig) -> None:
    """Answer questions until there are no more."""
    from corag.cli.show import AnswerPrinter, show_reply
    from corag.conversation import Conversation
    from corag.reply import Reply

    conversation = Conversation(config.index, **settings_of(config))
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        say(f"Ask about {config.index}. {HELP}")
    last: Reply | None = None
    for line in _lines(at_terminal):
        if line in LEAVE:
            return
        if line.startswith("/"):
            if line == "/new":
                conversation.forget()
                last = None
            elif line == "/sources" and last is not None:
                show_reply(last)
            else:
                say("nothing was asked yet" if line == "/sources" else HELP)
            continue
        printer = AnswerPrinter() if stdout().is_terminal else None
        try:
            last = conversation.ask(line, on_token=printer)
        except KeyboardInterrupt:
            say("")
            if not at_terminal:
                return
            continue  # an answer was stopped, not the conversation
        except CoragError as error:
            # One question that cannot be answered does not end a conversation.
            stderr().print(Text.assemble(("error:", "bold red"), " ", one_line(str(error))), soft_wrap=True)
            continue
        understood = conversation.turns[-1].understood
        if understood != line:
            note = plain(f"understood as: {one_line(understood)}")
            note.stylize("dim")
            stdout().print(note)
        show_reply(last, printed=printer is not None and printer.used, details=False)


def _lines(at_terminal: bool) -> Iterator[str]:
    """Yield what is typed or piped, stripped, without empty lines, until it ends or Ctrl-C is typed for a question."""
    if at_terminal:
        import readline  # noqa: F401  (history and editing of `input`)
    while True:
        try:
            line = input("> ") if at_terminal else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            say("")
            return
        if not line and not at_terminal:
            return
        if text := line.strip():
            if not at_terminal:
                say(f"> {text}")
            yield text
