"""Runs commands in forks of a process in which calls of the operating system can fail; see `faults.c`.

Reads a JSON line for each: arguments and environment; writes one: exit status, and what was said.
"""

import json
import os
import sys
import tempfile

import tests.preloaded  # noqa: F401


def serve():
    """Run what standard input asks for, until it ends."""
    for line in sys.stdin:
        arguments, variables = json.loads(line)
        with tempfile.TemporaryFile() as said:
            if (child := os.fork()) == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                os.environ.update(variables)
                status = 70
                try:
                    from corag.cli.main import main

                    status = main(arguments)
                except BaseException:  # noqa: BLE001 - a traceback is what is looked for
                    sys.excepthook(*sys.exc_info())
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            reply = json.dumps([status, said.read().decode(errors="replace")])
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
