"""
The program that matches regular expressions, in a process of its own; it needs Python alone.

It reads messages, each a JSON list of seconds and a length, a newline and that many bytes. The first is a JSON list of
the expression and its flags, and is answered with an empty text, or with what is wrong. Each other one is lines, and is
answered with a JSON list of those that match, counted from 0. The kernel kills it where a message takes more CPU time
than these seconds: an expression may backtrack for ever.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import sys

_MEMORY = 1 << 30


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whoever has started us may have ignored or blocked it.
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGVTALRM])
    pattern, flags = json.loads(_receive())
    try:
        search = re.compile(pattern, flags).search
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        _answer(str(error) or type(error).__name__)
        return
    _answer("")
    while data := _receive():
        lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        _answer([number for number, line in enumerate(lines) if search(line)])


def _receive() -> bytes:
    """Return the next message, and limit the time until its answer; empty at the end."""
    header = sys.stdin.buffer.readline()
    if not header:
        return b""
    seconds, length = json.loads(header)
    data = sys.stdin.buffer.read(length)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    return data


def _answer(value: object) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
