"""
The origin of an exception: its causes, and what was being handled when it was raised.

``sitecustomize.py`` runs this in a program that has just failed. Python 3.7 or newer, nothing imported that costs time.
"""

from __future__ import annotations

import os
import sys
from time import sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_MAX_LINKS = 4
"""How many are kept of each end of a long chain."""

_NO_FAILURES = ("StopIteration", "StopAsyncIteration", "Empty", "RemoteTraceback", "_RemoteTraceback")
"""Ends of iterators and queues, which are expected, and text that only looks like an exception."""

_MAX_POLLS, _POLL_INTERVAL_S = 30, 0.01
"""A killed process closes its sockets before its parent can see that it has ended."""


def follow(
    error: BaseException, trace: TracebackType | None, root: BaseException | None
) -> tuple[list[BaseException], str]:
    """
    Return what the exception came of, latest first, and the file that PyTorch was saving to; empty for none.
    ``root``: what was raised since, which counts where it tells of a loader's process.

    It is what Python's traceback shows above an exception: ``raise ... from None`` hides the rest. Left out is what a
    handler of SIGTERM has raised, because whoever sent that made the program end.
    """
    found: list[BaseException] = []
    seen = {id(error)}
    handler = _code_of_handler()
    one: BaseException | None = error
    while one is not None and len(seen) < 100:
        one = one.__cause__ if one.__cause__ is not None or one.__suppress_context__ else one.__context__
        if one is None or id(one) in seen:
            break
        seen.add(id(one))
        if (
            isinstance(one, Exception)
            and type(one).__name__ not in _NO_FAILURES
            and not _passes(one.__traceback__, handler)
        ):
            found.append(one)
    worker = root if _is_of_loader(root) else _killed_worker(error, trace)
    if worker is not None:
        found.append(worker.with_traceback(None))
    kept = found if len(found) <= 2 * _MAX_LINKS else found[:_MAX_LINKS] + found[-_MAX_LINKS:]
    return kept, _saved_to([trace, *(one.__traceback__ for one in found)])


def _frames(trace: TracebackType | None) -> Any:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _code_of_handler() -> Any:
    try:
        from _signal import (  # type: ignore[import-not-found]  # signal itself takes milliseconds
            SIGTERM,
            getsignal,
        )

        handler = getsignal(SIGTERM)
    except (ImportError, ValueError):
        return None
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


def _passes(trace: TracebackType | None, code: Any) -> bool:
    return code is not None and any(frame.f_code is code for frame in _frames(trace))


def _killed_worker(error: BaseException, trace: TracebackType | None) -> BaseException | None:
    """
    Return PyTorch's error about a loader's process that was killed, where the program met its closed socket first.
    """
    ask = getattr(sys.modules.get("torch._C"), "_error_if_any_worker_fails", None)
    if ask is None or not isinstance(error, (OSError, EOFError)):
        return None
    files = [frame.f_code.co_filename for frame in _frames(trace)]
    if not any(file.endswith("torch/utils/data/dataloader.py") for file in files):
        return None
    if not any("/multiprocessing/" in file for file in files):
        return None
    for _ in range(_MAX_POLLS):
        # PyTorch's handler of SIGCHLD may raise the same at any moment.
        try:
            ask()
            sleep(_POLL_INTERVAL_S)
        except RuntimeError as worker:
            return worker
    return None


def _is_of_loader(error: BaseException | None) -> bool:
    return isinstance(error, RuntimeError) and "DataLoader worker" in str(error)


def _saved_to(traces: list[TracebackType | None]) -> str:
    """Return the path that PyTorch was saving to; its writer names neither the full disk nor the file."""
    for trace in traces:
        for frame in _frames(trace):
            code = frame.f_code
            if code.co_name == "save" and code.co_filename.endswith("torch/serialization.py"):
                target = frame.f_locals.get("f")
                path = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
                if isinstance(path, (str, os.PathLike)):
                    return os.path.abspath(os.fspath(path))
    return ""
