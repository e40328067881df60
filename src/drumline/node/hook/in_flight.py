"""
The failure of this process that has not ended yet: the exception that its main thread handles just now, in a
``finally``, an ``except`` or the end of a ``with``, and what that one came of.

The agent asks by a signal, and only when the job is about to end (``node/diagnostics/stacks.py``). As careful as
``sitecustomize``, which has the rest: the standard library alone, and whatever is wrong here, nothing is told.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_LINKS = 8


def tell(path: str, error: BaseException | None, ours: dict[str, Any]) -> None:
    """Write the exception beside the notes at ``path``. ``ours``: the names that ``sitecustomize`` defines."""
    told: list[str] = []
    while error is not None and len(told) < _MAX_LINKS:
        shown = SystemExit(error.code or 0) if isinstance(error, SystemExit) else error
        told.append("{%s}" % ours["_content"](shown, error.__traceback__))
        before = error.__cause__
        error = before if before is not None or error.__suppress_context__ else error.__context__
    answer = "%s.%d.in-flight" % (path, os.getpid())
    descriptor = os.open(
        answer + ".partial", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        os.write(descriptor, ("[%s]" % ", ".join(told)).encode("ascii"))
    finally:
        os.close(descriptor)
    os.rename(answer + ".partial", answer)
