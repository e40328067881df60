"""
Looks at the stack of a program whose steps nothing follows, as of TensorFlow, JAX and MPI, to tell where its time goes.
A thread looks at the main thread's about three times a second, and counts what it finds.

The counts go into a small file that the agent reads (``node/metrics/step_windows.py`` has its layout too). It is opened
for each write: a program may close what it has open, and a number that it uses again must not be written to. As careful
as ``sitecustomize``: the standard library alone, and where anything is otherwise, no more is counted.

Calls of MPI have no Python frame; the call that a frame is in is read from its source. What blocks lets go of the
interpreter's lock: where the thread had to wait for that, the main thread was running, whatever it has come to since.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Callable

MAGIC = b"DLLOOKS1"
LAYOUT = "<8sQ4Q"
INPUT, COMMUNICATION, IDLE, COMPUTING, UNCOUNTED = range(5)

_FIRST_S = 1.0
_SHORTEST_S, _SPAN_S, _GOLDEN = 0.2, 0.2, 0.618034
"""No two looks are equally far apart, lest they keep pace with the steps."""

_WRITTEN_EVERY = 3
_GONE_S = 0.05
_DEEPEST = 300
_MOST_KNOWN = 4096

_ANYWHERE = (
    (UNCOUNTED, ("<frozen importlib", "/jax/_src/compiler.py", "/jax/_src/interpreters/partial_eval.py")),
    (UNCOUNTED, ("/jax/_src/interpreters/mlir.py", "/tensorflow/python/framework/func_graph.py")),
    (INPUT, ("/tensorflow/python/data/", "/tensorflow_datasets/", "/torch/utils/data/")),
    (INPUT, ("/keras/src/trainers/data_adapters/", "/keras/src/trainers/epoch_iterator.py")),
    (INPUT, ("/engine/data_adapter.py", "-packages/grain/", "-packages/datasets/")),
    (COMMUNICATION, ("-packages/mpi4py/", "-packages/horovod/")),
    (COMMUNICATION, ("/jax/experimental/multihost_utils.py", "/jax/_src/distributed.py")),
)
"""Parts of the files of frames, anywhere in a stack, and what they stand for; the first of these counts."""

_NOT_THEM = ("/mpi4py/run.py", "/mpi4py/__main__.py", "/mpi4py/futures/", "/horovod/runner/")
"""These start the program, and stay on its stack."""

_WAITING = (
    "/subprocess.py",
    "/threading.py",
    "/selectors.py",
    "/asyncio/",
    "/concurrent/futures/",
    "/multiprocessing/connection.py",
    "/multiprocessing/popen_",
    "/multiprocessing/synchronize.py",
    "/tensorflow/python/training/server_lib.py",
)
"""Parts of the file of the innermost frame, where it waits for other threads or processes."""

_MPI = (
    "i?(allgatherv?|allreduce|alltoall[vw]?|barrier|bcast|exscan|fence|gatherv?|m?probe|neighbor_all(gather|toall)v?"
    "|recv|reduce(_scatter(_block)?)?|scan|scatterv?|[bsr]?send|sendrecv(_replace)?|(test|wait)(all|any|some)?)"
)
"""
Methods of mpi4py in lower case; those that return at once begin with an I. Source:
https://mpi4py.readthedocs.io/en/stable/overview.html
"""

_ONLY_TREE = 0x400
"""A flag of ``compile``; the module ``ast`` has it too, but a program may have a file of that name."""

_SLEEPS = ("sleep", "waitpid")
_NOT_MPI = ("cupy", "functools", "jax", "numpy", "operator", "os", "select", "socket", "tensorflow")
"""Modules with functions of such names, as ``numpy.add.reduce``."""


class LookThread:
    """The thread that looks at the thread ``main``. ``steps``: the ring of the rank's steps; its file is beside it."""

    def __init__(self, steps: str, main: int) -> None:
        self._steps = steps
        self._path = steps + ".looks"
        self._main = main
        self._counts = [0, 0, 0, 0]
        self._stop: Any = None
        self._thread = -1
        """The kernel's number of it; negative: not known yet."""

    def begin(self) -> None:
        """Start the thread, to which no signal comes: the program knows nothing of it."""
        from _signal import (  # type: ignore[import-not-found]
            SIG_BLOCK,
            SIG_SETMASK,
            pthread_sigmask,
            valid_signals,
        )
        from _thread import allocate_lock, start_new_thread

        self._stop = allocate_lock()
        self._stop.acquire()
        self._thread = -1
        before = pthread_sigmask(SIG_BLOCK, valid_signals())
        try:
            start_new_thread(self._run, ())
        finally:
            pthread_sigmask(SIG_SETMASK, before)

    def end(self) -> None:
        """End the thread, and wait until it is gone; at most a moment."""
        from time import sleep

        if self._stop is None:
            return
        self._stop.release()
        self._stop = None
        until = monotonic() + _GONE_S
        while monotonic() < until and (
            self._thread < 0 or os.path.exists("/proc/self/task/%d" % self._thread)
        ):
            sleep(0.0002)

    def end_alone(self) -> None:
        """End before a fork if there is no other thread: Python 3.12 warns of a fork in a process with threads."""
        try:
            if self._stop is not None and len(os.listdir("/proc/self/task")) <= 2:
                self.end()
        except OSError:
            pass

    def forget(self) -> None:
        """Leave all to the parent of this process, which was forked."""
        self._stop = None

    def _run(self) -> None:
        stop = self._stop
        try:
            import _thread

            self._thread = getattr(_thread, "get_native_id", int)()
            self._look_until(stop)
        except Exception:
            pass

    def _look_until(self, stop: Any) -> None:
        find, find_frame, at, unwritten = Finder().find, _choose_look(), 0.0, 0
        if stop.acquire(True, _FIRST_S) or not self._may_write():
            return
        while unwritten or not os.path.exists(self._steps):
            at = (at + _GOLDEN) % 1.0
            waits = self._count_waits()
            if stop.acquire(True, _SHORTEST_S + _SPAN_S * at):
                return
            # One wait is that for the time to pass.
            was_running = self._count_waits() > waits + 1
            found = find(find_frame().get(self._main))
            if was_running and found in (COMMUNICATION, IDLE):
                found = COMPUTING
            if found != UNCOUNTED:
                self._counts[found] += 1
                unwritten = (unwritten + 1) % _WRITTEN_EVERY
                if not unwritten:
                    self._write()

    @staticmethod
    def _count_waits() -> int:
        """
        Return how often this thread has waited. Of Linux, not of Python's module ``resource``: a program may have a
        file of that name. Raises OSError, ValueError.
        """
        file = os.open("/proc/thread-self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(file, 1 << 16).partition(b"\nvoluntary_ctxt_switches:")[2].split(b"\n")[0])
        finally:
            os.close(file)

    def _may_write(self) -> bool:
        """Return whether no other process of the rank, that is still there, counts its looks. Raises OSError."""
        from struct import calcsize, unpack

        try:
            os.mkdir(os.path.dirname(self._path), 0o700)
        except FileExistsError:
            pass
        flags = os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            known = os.pread(file, calcsize(LAYOUT), 0)
        finally:
            os.close(file)
        pid = unpack(LAYOUT, known)[1] if len(known) == calcsize(LAYOUT) else 0
        return pid in (0, os.getpid()) or not os.path.exists("/proc/%d" % pid)

    def _write(self) -> None:
        from struct import pack

        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags)
        try:
            os.pwrite(file, pack(LAYOUT, MAGIC, os.getpid(), *self._counts), 0)
        finally:
            os.close(file)


class Finder:
    """Finds what a stack stands for; it remembers files and calls."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._calls: dict[tuple[CodeType, int], int] = {}

    def find(self, frame: FrameType | None) -> int:
        """Return what the stack of this innermost frame stands for."""
        if frame is None:
            return UNCOUNTED
        code, at, line, names = frame.f_code, frame.f_lasti, frame.f_lineno, frame.f_globals
        files = self._files
        best, depth = len(_ANYWHERE), 0
        # A frame that is held on to keeps its variables.
        while frame is not None and depth < _DEEPEST:
            file = frame.f_code.co_filename
            found = files.get(file)
            if found is None:
                if len(files) > _MOST_KNOWN:
                    files.clear()
                found = files[file] = _rank_file(file)
            if found < best:  # noqa: PLR1730 - a call for each frame
                best = found
            frame = frame.f_back
            depth += 1
        del frame
        if best < len(_ANYWHERE):
            return _ANYWHERE[best][0]
        if any(part in code.co_filename for part in _WAITING):
            return IDLE
        if (code, at) not in self._calls:
            if len(self._calls) > _MOST_KNOWN:
                self._calls.clear()
            self._calls[code, at] = _find_kind(code, at, line, names)
        return self._calls[code, at]


def _rank_file(file: str) -> int:
    """Return the place in ``_ANYWHERE`` of what a file stands for; its length: nothing."""
    if not any(part in file for part in _NOT_THEM):
        for place, (_, parts) in enumerate(_ANYWHERE):
            if any(part in file for part in parts):
                return place
    return len(_ANYWHERE)


def _find_kind(code: CodeType, at: int, line: int, names: dict[str, Any]) -> int:
    """Return what the call at that place of a code, in that line, stands for. ``names``: the globals there."""
    from re import fullmatch

    try:
        calls = find_calls(code, at, line)
    except Exception:  # There is no source, or it has changed.
        return COMPUTING
    for name, root in calls:
        owner = names.get(root)
        is_other = isinstance(owner, type(sys)) and owner.__name__.partition(".")[0] in _NOT_MPI
        if name in _SLEEPS:
            return IDLE
        if fullmatch(_MPI, name.lower()) and not is_other:
            return COMMUNICATION
    return COMPUTING


def find_calls(code: CodeType, at: int, line: int) -> list[tuple[str, str]]:
    """
    Return what the call at that place of a code calls, by the name of its function or method, and the name at the
    begin of the expression for it. Before Python 3.11, which knows the place in the line, all calls that begin there.
    """
    with open(code.co_filename, "rb") as source:
        lines = source.read().splitlines(True)
    place: Any = (None,)
    if sys.version_info >= (3, 11):
        from itertools import islice

        place = next(islice(code.co_positions(), at // 2, None))
    if None in place:  # or with -X no_debug_ranges
        from re import findall

        found = findall(r"(?:(\w+)(?:\.\w+)*\.)?(\w+)\(", lines[line - 1].decode("utf-8", "replace"))
        return [(name, root or name) for root, name in found]
    first, last, begin, end = place
    lines = lines[first - 1 : last]
    lines[-1] = lines[-1][:end]
    # Without the arguments: compiling a text in them may warn in the program's log.
    text, depth = b"".join(lines)[begin:], 0
    for index in range(len(text) - 1, -1, -1):
        depth += {b")": 1, b"(": -1}.get(text[index : index + 1], 0)
        if not depth:
            break
    expression: Any = compile(b"(%s)" % text[:index], "<drumline>", "eval", _ONLY_TREE).body
    name = getattr(expression, "attr", None)
    while hasattr(expression, "value"):
        expression = expression.value
    root = getattr(expression, "id", "")
    return [(name or root, root)]


def _choose_look() -> Callable[[], dict[int, FrameType]]:
    """Return a function for the innermost frame of each thread, by its number."""
    if not (3, 11) <= sys.version_info < (3, 11, 12):
        return sys._current_frames
    # There it deadlocks if garbage is collected meanwhile; source: https://github.com/python/cpython/issues/106883
    from _operator import call
    from gc import disable, enable, isenabled

    calls: tuple[Callable[[], Any], ...] = (disable, sys._current_frames, enable)

    def look() -> Any:
        # In one call, so that no other thread runs in between.
        return tuple(map(call, calls))[1] if isenabled() else sys._current_frames()

    return look


def put_into(_module: object, steps: str, main: int) -> None:
    """Look at the thread ``main`` from now on. ``steps``: as of ``LookThread``."""
    has_lock = getattr(sys, "_is_gil_enabled", None)
    if os.environ.get("DRUMLINE_HOOK") == "0" or (has_lock and not has_lock()):
        return
    import atexit

    looks = LookThread(steps, main)
    looks.begin()
    atexit.register(looks.end)
    os.register_at_fork(before=looks.end_alone, after_in_child=looks.forget)
