"""
The program that matches regular expressions, in a process that may be killed at any time; it needs Python alone.

It reads messages, each its length, a newline and that many bytes. The first is a JSON list of the expression and its
flags, and is answered with an empty text, or with what is wrong. Each other one is lines, and is answered with a JSON
list of those that match, counted from 0.
"""

from __future__ import annotations

import json
import re
import resource
import sys

_MEMORY = 512 << 20
_CPU_S = 20
LONGEST = 8000
"""Letters of a line that are looked through."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    pattern, flags = json.loads(_receive())
    try:
        search = re.compile(pattern, flags).search
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        _answer(str(error) or type(error).__name__)
        return
    _answer("")
    while data := _receive():
        lines = data.decode("utf-8", "replace").removesuffix("\n").split("\n")
        _answer([number for number, line in enumerate(lines) if search(line[:LONGEST])])


def _receive() -> bytes:
    """Return the next message; empty at the end."""
    length = sys.stdin.buffer.readline()
    return sys.stdin.buffer.read(int(length)) if length else b""


def _answer(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
