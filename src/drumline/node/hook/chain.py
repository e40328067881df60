"""
The origin of an exception: its causes, and what was being handled when it was raised.

``sitecustomize.py`` runs this in a program that has just failed, or that still cleans up. Python 3.7 or newer, nothing
imported that costs time.
"""

from __future__ import annotations

import os
import sys
from errno import EAGAIN, EMFILE
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep

_MAX_LINKS = 4
"""How many are kept of each end of a long chain."""

_NO_FAILURES = ("StopIteration", "StopAsyncIteration", "Empty", "RemoteTraceback", "_RemoteTraceback")
"""Ends of iterators and queues, which are expected, and text that only looks like an exception."""

_LOADER = "torch/utils/data/dataloader.py"
_MAX_POLLS, _POLL_INTERVAL_S = 300, 0.01
"""A killed process closes its sockets before its parent can see that it has ended; long before on a busy machine."""


def follow(
    error: BaseException, trace: TracebackType | None, root: BaseException | None, variables: dict[str, str]
) -> tuple[list[BaseException], dict[str, str]]:
    """
    Return what the exception came of, latest first, and what else explains it: the file that PyTorch was saving to, a
    limit that the process has met, and which of ``variables``, as the rank had them, the program has changed.

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
            not isinstance(one, (GeneratorExit, SystemExit))
            and type(one).__name__ not in _NO_FAILURES
            and not _passes(one.__traceback__, handler)
        ):
            found.append(one)
    raised = [(error, trace), *((one, one.__traceback__) for one in found)]
    is_of_loader = isinstance(root, RuntimeError) and "DataLoader worker" in str(root)
    worker = root if is_of_loader else _find_lost_worker(raised)
    if worker is not None:
        found.append(worker.with_traceback(None))
    kept = found if len(found) <= 2 * _MAX_LINKS else found[:_MAX_LINKS] + found[-_MAX_LINKS:]
    further = {
        "saved_to": _saved_to([trace, *(one.__traceback__ for one in found)]),
        "limit": next(filter(None, map(_describe_limit, [error, *kept])), ""),
        "changed": ", ".join(
            "%s from %s to %s" % (name, before or "nothing", os.environ.get(name) or "nothing")
            for name, before in variables.items()
            if os.environ.get(name, "") != before
        ),
    }
    _drop_own_frames(error, 0)
    return kept, further


def leave(status: Any, ours: dict[str, Any]) -> tuple[float, str] | None:
    """
    Return when and of what the program ends by ``sys.exit``, as a note: its message, else the exception that it
    handles; None where there is neither. ``ours``: the names that ``sitecustomize`` defines.
    """
    import threading

    if threading.current_thread() is not threading.main_thread():
        return None
    code, error = 1, sys.exc_info()[1]
    if isinstance(status, int):
        code = status & 0xFF
        if error is None or isinstance(error, SystemExit) or type(error).__name__ in _NO_FAILURES:
            return None
        content = ours["_content"](error, error.__traceback__) + ours["_chain"](
            error, error.__traceback__, None, {}
        )
    else:
        frame = sys._getframe(1)
        while frame.f_back is not None and not ours["_is_own"](frame.f_code.co_filename):
            frame = frame.f_back
        texts = {
            "type": "SystemExit",
            "message": str(status),
            "file": frame.f_code.co_filename,
            "function": frame.f_code.co_name,
        }
        content = '"line": %d' % frame.f_lineno
        for key, text in texts.items():
            content += ', "%s": %s' % (key, ours["_quote"](text))
    return monotonic(), ', %s, "exit": %d' % (content, code)


def tell_in_flight(path: str, error: BaseException | None, ours: dict[str, Any]) -> None:
    """
    Write the exception that the main thread handles just now, in a ``finally``, an ``except`` or the end of a ``with``,
    and what that one came of, beside the notes at ``path``: the agent asks by a signal, and only when the job is about
    to end (``node/diagnostics/stacks.py``). ``ours``: the names that ``sitecustomize`` defines.
    """
    links: list[str] = []
    while error is not None and len(links) < 2 * _MAX_LINKS:
        shown = SystemExit(error.code or 0) if isinstance(error, SystemExit) else error
        links.append("{%s}" % ours["_content"](shown, error.__traceback__))
        before = error.__cause__
        error = before if before is not None or error.__suppress_context__ else error.__context__
    answer = "%s.%d.in-flight" % (path, os.getpid())
    descriptor = os.open(
        answer + ".partial", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        os.write(descriptor, ("[%s]" % ", ".join(links)).encode("ascii"))
    finally:
        os.close(descriptor)
    os.rename(answer + ".partial", answer)


def _drop_own_frames(error: BaseException | None, depth: int) -> None:
    """Take our frames out of the tracebacks that the program is about to print."""
    if error is None or depth > 2 * _MAX_LINKS:
        return
    before, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(("<drumline>", _HERE)) and before is not None:
            before.tb_next = trace.tb_next
        else:
            before = trace
        trace = trace.tb_next
    _drop_own_frames(error.__cause__, depth + 1)
    _drop_own_frames(error.__context__, depth + 1)


def _describe_limit(error: BaseException) -> str:
    """Describe the limit of this process that the exception tells of: ``open files (1024)``; empty for none."""
    said, number = str(error), getattr(error, "errno", None)
    if number == EMFILE or "Too many open files" in said or "items of ancdata" in said:
        return _name_limit("open files", "RLIMIT_NOFILE")
    if "can't start new thread" in said or (number == EAGAIN and isinstance(error, BlockingIOError)):
        return _name_limit("processes and threads", "RLIMIT_NPROC") or _read_group_limit()
    return ""


def _name_limit(what: str, name: str) -> str:
    try:
        import resource

        soft = resource.getrlimit(getattr(resource, name))[0]
    except (ImportError, OSError, ValueError):
        return ""
    return "" if soft == resource.RLIM_INFINITY else "%s (%d)" % (what, soft)


def _read_group_limit() -> str:
    """Return the limit of processes of this process's control group."""
    try:
        with open("/proc/self/cgroup") as file:
            path = file.read().split("::")[-1].strip()
        with open("/sys/fs/cgroup%s/pids.max" % path) as file:
            most = file.read().strip()
    except OSError:
        return ""
    return "processes and threads (%s)" % most if most.isdigit() else ""


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


def _find_lost_worker(raised: list[Any]) -> BaseException | None:
    """
    Return how a process of PyTorch's loader ended, where none of these exceptions says it; None where none was lost.

    ``raised``: exceptions, each with its traceback. The program may meet the closed socket of that process first. If
    PyTorch has asked whether it runs before Python calls the handler of its SIGCHLD, the handler finds nothing.
    """
    if any("DataLoader worker (pid " in str(one) for one, _ in raised):
        return None
    for one, trace in raised:
        frames = list(_frames(trace))
        loaders = [
            frame.f_locals.get("self") for frame in frames if frame.f_code.co_filename.endswith(_LOADER)
        ]
        if not loaders:
            continue
        if isinstance(one, RuntimeError) and "exited unexpectedly" in str(one):
            return _describe_end(loaders)
        if isinstance(one, (OSError, EOFError)) and any(
            "/multiprocessing/" in frame.f_code.co_filename for frame in frames
        ):
            return _wait_for_end(loaders)
    return None


def _wait_for_end(loaders: list[Any]) -> BaseException | None:
    ask = getattr(sys.modules.get("torch._C"), "_error_if_any_worker_fails", None)
    if ask is None:
        return None
    for _ in range(_MAX_POLLS):
        # PyTorch's handler of SIGCHLD may raise the same at any moment.
        try:
            ask()
            ended = _describe_end(loaders)
            if ended is not None:
                return ended
            sleep(_POLL_INTERVAL_S)
        except RuntimeError as worker:
            return worker
    return None


def _describe_end(loaders: list[Any]) -> BaseException | None:
    """Return what PyTorch would have raised about the first process that failed, in the same words."""
    ended = []
    for loader in loaders:
        for worker in getattr(loader, "_workers", ()):
            try:
                ended.append((worker.exitcode or 0, worker.pid))
            except ValueError:  # It is closed.
                pass
    code, pid = min(ended, default=(0, 0))
    if code < 0:
        return RuntimeError(
            "DataLoader worker (pid %d) is killed by signal: %s. " % (pid, _name_signal(-code))
        )
    code, pid = max(ended, default=(0, 0))
    if code > 0:
        return RuntimeError("DataLoader worker (pid %d) exited unexpectedly with exit code %d." % (pid, code))
    return None


def _name_signal(number: int) -> str:
    try:
        from _signal import strsignal  # Python 3.8 or newer

        return strsignal(number) or str(number)
    except (ImportError, ValueError):
        return str(number)


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
