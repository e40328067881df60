"""Long output on a terminal by way of a pager, as git has it; never when piped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

_VARIABLES = ("DRUMLINE_PAGER", "PAGER")
_LESS = {"LESS": "FRX"}
"""Quit if all fits on one screen, keep colours, leave the screen as it is. Not where the user has set it."""


def print_text(text: str) -> None:
    """Print the text; on a terminal that it does not fit on, in a pager. Blocks until the user has left that."""
    is_page = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") not in (None, "dumb")
    is_long = is_page and text.count("\n") >= shutil.get_terminal_size().lines
    command = find_pager() if is_long else ""
    if not command or not _show_in_pager(command, text):
        sys.stdout.write(text)


def find_pager() -> str:
    """Return the pager's command for a shell; empty for none, as an empty variable or ``cat`` wants it."""
    for name in _VARIABLES:
        if name in os.environ:
            command = os.environ[name].strip()
            return "" if command == "cat" else command
    return "less" if shutil.which("less") else ""


def _show_in_pager(command: str, text: str) -> bool:
    """Return False if the pager could not be started, and the text is still to be shown."""
    sys.stdout.flush()
    # Ctrl-C is the pager's: it ends a search, not the reading.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # The user's own command, as git runs it.
        with subprocess.Popen(  # noqa: S603
            ["sh", "-c", command],  # noqa: S607
            stdin=subprocess.PIPE,
            env={**_LESS, **os.environ},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads yet
        ) as pager:
            # A user who leaves early closes the pipe, which is no error.
            pager.communicate(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
    except OSError:
        return False
    finally:
        signal.signal(signal.SIGINT, before)
    # As the shell says it: it cannot be run, or there is none.
    return pager.returncode not in (126, 127)
