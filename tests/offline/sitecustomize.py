"""Refuses what leaves this machine, and notes it, in every process that Python starts with this folder on its path."""

import os
import sys
import traceback

HERE = ("", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")
ASKING = ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect", "socket.sendto", "socket.sendmsg")


def refuse(event, args):
    """Audit hook: raise `OSError` for an address that is not of this machine, while the variable is set."""
    if event not in ASKING or "CORAG_TESTS_CONTACTS" not in os.environ:
        return
    address = args[0] if event.startswith("socket.get") else args[1]
    host = address[0] if isinstance(address, tuple) else address
    # Sockets of other families, such as Unix's, have addresses that are no tuples.
    named = isinstance(address, tuple) or event.startswith("socket.get")
    if named and host is not None and str(host) not in HERE:
        with open(os.environ["CORAG_TESTS_CONTACTS"], "a", encoding="utf-8") as file:
            file.write(f"{event} {args!r}\n{''.join(traceback.format_stack())}\n")
        raise OSError(f"this test is offline, and {host!r} is elsewhere")


if "CORAG_TESTS_CONTACTS" in os.environ:
    sys.addaudithook(refuse)
