"""
Everything that a program can see of itself, in one line of its output. Run cold and warm, and compared.

Python 3.9. Its log, but for that line, is to be the same as well: to the byte.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import os
import sys

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]

import beside
from seen import interpreter, libraries, process, working

SEEN = "seen: "


def main() -> None:
    print("first words, to standard output")
    print("and to standard error", file=sys.stderr)
    ctypes.CDLL(None).puts(b"and from C, which has a buffer of its own")
    atexit.register(print, "last words")
    logging.getLogger().warning("from logging's last resort")
    beside.warn()

    def look(stack: list[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        for group in (interpreter, process, libraries, working):
            for name, item in vars(group).items():
                if name.startswith("of_"):
                    found.update(seen(group.__name__.rpartition(".")[2] + "." + name[3:], item))
        found["interpreter.stack"] = stack
        return found

    from traceback import format_stack

    found = look(format_stack())
    sys.stdout.flush()
    os.write(1, (f"\n{SEEN}{json.dumps(interpreter.plain(found))}\n").encode())
    sys.stdout.write("a last line without its end")


def seen(name: str, item) -> dict[str, object]:
    """What the function returned: a dictionary is an item each."""
    try:
        value = item()
    except BaseException as error:  # noqa: BLE001 - it is what was seen
        value = f"{type(error).__name__}: {error}"
    if isinstance(value, dict):
        return {f"{name}.{key}": each for key, each in value.items()}
    return {name: value}


if __name__ == "__main__":
    main()
