"""What goes wrong with a server, as one error that names the server and the remedy."""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corag.errors import CoragError, InputError
from corag.models.chat.base import ChatError
from corag.models.chat.guard import RefusedError, StatusError, harmless

if TYPE_CHECKING:
    from corag.models.chat.server import ServerSettings


@dataclass(frozen=True, slots=True)
class Faults:
    """What errors of a server tell.

    Attributes:
        kind: Kind of the server.
        server: The server, with its address.
        address: Its URL.
        model: Name of the model.
        settings: How it is asked.
        hints: Remedies by kind of fault; see `corag.models.chat.server.ServerChat.hints`.
    """

    kind: str
    server: str
    address: str
    model: str
    settings: ServerSettings
    hints: Mapping[str, str]


def root_cause(error: Exception) -> Exception:
    """Return what a client package wraps into an error of its own."""
    while isinstance(error.__cause__, Exception) and type(error).__module__.partition(".")[0] == "openai":
        error = error.__cause__
    return error


def explained(error: Exception, about: Faults, num_received: int = 0) -> CoragError:
    """Return an error, raised after `num_received` characters, as one that names server and remedy.

    Any other error is raised as it is.
    """
    import httpx

    error, hints, server = root_cause(error), about.hints, about.server
    reason = _short(str(error)) or type(error).__name__
    if isinstance(error, CoragError):
        return error
    if isinstance(error, StatusError):
        return _of_status(error, about)
    if isinstance(error, UnicodeEncodeError):
        return InputError(f"a message is not valid Unicode ({error}); decode it with errors='replace'")
    if isinstance(error, RefusedError):
        return ChatError(f"{server} sent a reply that is refused: {reason}; {hints['malformed']}")
    if isinstance(error, TimeoutError):
        return ChatError(
            f"{server} did not end its reply within {about.settings.max_reply_s:g} s, after {num_received} characters; "
            "lower max_answer_tokens, or raise max_reply_s"
        )
    if isinstance(error, (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol)):
        message = f"no {about.kind} server answers at {about.address}: {reason}; {hints['start']}"
        return ChatError(message, can_retry=not isinstance(error, httpx.UnsupportedProtocol))
    if isinstance(error, httpx.TimeoutException):
        message = f"{server} sent nothing for {about.settings.timeout_s:g} s; raise timeout_s, or {hints['slow']}"
    elif isinstance(error, httpx.RequestError):
        message = f"{server} broke off its reply after {num_received} characters: {reason}; {hints['look']}"
    # Clients do not check what JSON holds, and stumble over what they do not expect.
    elif isinstance(error, (ValueError, TypeError, AttributeError, LookupError, RecursionError, zlib.error)):
        message = f"{server} sent a malformed reply: {reason}; {hints['malformed']}"
    else:
        raise error
    return ChatError(message, can_retry=True)


def _of_status(error: StatusError, about: Faults) -> ChatError:
    status, reason, hints, server = error.status, _short(error.reason), about.hints, about.server
    if status == 404:
        return ChatError(f"{server} has no model {about.model!r}: {reason}; {hints['model']}")
    if status in (408, 429) or status >= 500:
        waits = "" if error.retry_after_s is None else f" (it asks to wait {error.retry_after_s:g} s)"
        return ChatError(
            f"{server} failed with HTTP {status}: {reason}{waits}; lower max_concurrent, raise retries, or "
            f"{hints['look']}",
            can_retry=True,
            retry_after_s=error.retry_after_s,
        )
    return ChatError(f"{server} refused the request with HTTP {status}: {reason}; {hints['refused']}")


def _short(reason: str) -> str:
    return textwrap.shorten(harmless(reason), width=300, placeholder=" ...").rstrip(".")
