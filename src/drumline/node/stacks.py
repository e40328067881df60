"""
Where the ranks of a node are: the Python stack of each, its state in the kernel, the CPU time that it has used.

A Python that has the hook (``hook/sitecustomize.py``) writes its stacks into memory of its own when it is sent
``SIGNAL``, even while it waits in native code; nobody else is sent it, for it would end them. For a Python without the
hook there is py-spy, where that is installed and allowed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.node import collectives, descendants, failures, kernel, spins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SIGNAL = int(signal.SIGRTMAX) - 4
MARK_SIGNAL = int(signal.SIGRTMAX) - 6
MEMORY_NAME = "drumline-stacks"
WENT_ON = b"went on\n"
"""
Written by the main thread when it next runs Python after ``MARK_SIGNAL``, which follows each stack: a native call that
has not returned writes none. The hook has all four too: it cannot import this.
"""

_ANSWER_S = 0.5
_SPY_S = 3.0
_LOOK_S = 0.002
_STILL_LOOKS = 5
_SETTLED_S = 0.5
_MOST_BYTES = 1 << 18
_MOST_FRAMES = 60
_MOST_BELOW = 8

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_MOST_THREADS = 100
"""Which faulthandler writes. Source: CPython, Python/traceback.c, MAX_NTHREADS."""

_LAUNCHING = ("subprocess.py", "multiprocessing/popen_fork.py", "torch/distributed/elastic/")

# By machine: futex; pause, rt_sigsuspend and rt_sigtimedwait; poll and ppoll, which wait for a signal when they have no
# descriptors. Source: the kernel's tables of system calls.
_FUTEX, _WAIT_FOR_SIGNALS, _POLLS = {
    "x86_64": ("202", ("34", "130", "128"), ("7", "271")),
    "aarch64": ("98", ("133", "137"), ("73",)),
}.get(os.uname().machine, ("", (), ()))

_TICKS = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """By a process and all below it, so far. ``io_bytes``: read and written; sockets are not counted."""

    cpu_s: float
    io_bytes: int

    def since(self, before: Used) -> Used:
        return Used(self.cpu_s - before.cpu_s, self.io_bytes - before.io_bytes)


def used(*pids: int) -> Used:
    tree = [one for pid in pids for one in (pid, *descendants.of(pid))]
    return Used(sum(map(_cpu_s, tree)), sum(map(_io_bytes, tree)))


def of(
    ranks: Mapping[int, int], cwd: str, path: str, notes: Mapping[int, str]
) -> dict[int, list[dict[str, Any]]]:
    """
    For each rank the processes that tell where it is, as pid, name, state, waits_in, frames (file, line, function; the
    innermost first; empty when there is no Python or it did not answer), threads, collective (``collectives.of``; None
    where that is not known), went_on (whether its main thread has run Python since the stack before; None where that is
    not known), spin (``spins.Spin``, as a dictionary).

    ``ranks``: to the pid of each one's first process. ``path``: where py-spy is looked for. ``notes``: the file of each
    rank's. Blocks, for some seconds at most.
    """
    trees = {rank: [pid, *descendants.of(pid)] for rank, pid in ranks.items()}
    answering = {rank: [pid for pid in tree if _answers(pid)] for rank, tree in trees.items()}
    dumps = _ask([pids[0] for pids in answering.values() if pids])
    # A launcher that waits for what it started says nothing: those are asked instead.
    below = {
        rank: pids[1 : 1 + _MOST_BELOW]
        for rank, pids in answering.items()
        if len(pids) > 1 and _is_launching(dumps.get(pids[0], _SILENT).text)
    }
    dumps.update(_ask([pid for pids in below.values() for pid in pids]))
    first = {rank: (answering[rank] or tree[-1:])[0] for rank, tree in trees.items()}
    silent = [pid for pid in first.values() if pid not in dumps]
    spied = _spy(silent, path)
    shown = {rank: below.get(rank) or [first[rank]] for rank in trees}
    asked = collectives.of((notes.get(rank, ""), pid) for rank, pids in shown.items() for pid in pids)
    return {
        rank: [
            {**_answered(pid, dumps.get(pid, _SILENT), spied.get(pid), cwd), "collective": asked.get(pid)}
            for pid in pids
        ]
        for rank, pids in shown.items()
    }


def _answered(pid: int, said: _Said, spied: list[list[Any]] | None, cwd: str) -> dict[str, Any]:
    frames, joins = _shown_thread(said.text)[:2] if said.text else (spied or [], False)
    spin = spins.of(pid, frames[0] if frames else None, cwd, joins=joins)
    return {**_process(pid, said.text, spied, cwd), "went_on": said.went_on, "spin": spin._asdict()}


def _process(pid: int, dump: str, spied: list[list[Any]] | None, cwd: str) -> dict[str, Any]:
    frames, _, threads = _shown_thread(dump) if dump else (spied or [], False, 1)
    state, name = _status(pid)
    return {
        "pid": pid,
        "name": failures.printable(name, 100),
        "state": state,
        "waits_in": failures.printable(_read(f"/proc/{pid}/wchan"), 100),
        "frames": [
            [failures.shown(file, cwd), int(line), failures.printable(function, 200)]
            for file, line, function in frames[:_MOST_FRAMES]
        ],
        "threads": threads,
    }


def state_of(pid: int) -> dict[str, Any]:
    """pid, name, state, waits_in: as in ``of``."""
    process = _process(pid, "", None, "")
    return {name: process[name] for name in ("pid", "name", "state", "waits_in")}


class _Said(NamedTuple):
    """What a process wrote when it was asked. ``went_on``: as of ``of``."""

    text: str
    went_on: bool | None


_SILENT = _Said("", None)


def _ask(pids: Iterable[int]) -> dict[int, _Said]:
    """What each writes when it is asked; one that does not in time is left out."""
    memories: dict[int, int] = {}
    begins: dict[int, int] = {}
    asked: dict[int, int] = {}
    went_on: dict[int, bool | None] = {}
    for pid in pids:
        memory = _memory_of(pid)
        if memory is None:
            continue
        memories[pid] = memory
        with contextlib.suppress(OSError):
            went_on[pid] = _has_gone_on(memory)
            begins[pid] = _begin(memory)
            thread = _thread_to_ask(pid)
            # It may have become another program meanwhile, which the signal would end.
            if thread and _is_settled(memory) and _answers(pid):
                kernel.send_to_thread(pid, thread, SIGNAL)
                asked[pid] = thread
    sizes, still, said = dict(begins), dict.fromkeys(begins, 0), {}
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline and any(count < _STILL_LOOKS for count in still.values()):
        time.sleep(_LOOK_S)
        for pid, begin in begins.items():
            size = os.fstat(memories[pid]).st_size
            # It has begun, and written nothing since: it is whole.
            still[pid] = still[pid] + 1 if size > begin and size == sizes[pid] else 0
            sizes[pid] = size
    for pid, begin in begins.items():
        if sizes[pid] > begin:
            text = os.pread(memories[pid], _MOST_BYTES, begin).decode(errors="replace")
            said[pid] = _Said(text, went_on[pid])
            # Only now, so that the mark does not come into the middle of the stack.
            if pid in asked and _answers(pid, MARK_SIGNAL):
                with contextlib.suppress(OSError):
                    kernel.send_to_thread(pid, asked[pid], MARK_SIGNAL)
    for memory in memories.values():
        os.close(memory)
    return said


def _has_gone_on(memory: int) -> bool | None:
    """Whether the main thread has run Python since the last stack; None when there was none."""
    size = os.fstat(memory).st_size
    return os.pread(memory, len(WENT_ON), max(0, size - len(WENT_ON))) == WENT_ON if size else None


def _begin(memory: int) -> int:
    """Where in it the next answer begins; what is too much is dropped."""
    size = os.fstat(memory).st_size
    if size <= _MOST_BYTES:
        return size
    os.ftruncate(memory, 0)
    return 0


def _is_settled(memory: int) -> bool:
    """
    Whether its program has run for a moment, or has answered before: one that becomes another again and again could do
    so between our last look and the signal.
    """
    known = os.fstat(memory)
    return known.st_size > 0 or time.time() - known.st_ctime >= _SETTLED_S


def _answers(pid: int, number: int = SIGNAL) -> bool:
    """Whether it catches the signal: the default is to be ended by it."""
    return _has(f"/proc/{pid}/status", "SigCgt", number)


def _has(status: str, field: str, number: int = SIGNAL) -> bool:
    """Whether the signal is in that set of signals."""
    found = re.search(rf"^{field}:\s*([0-9a-f]+)", _read(status), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def _thread_to_ask(pid: int) -> int:
    """
    The thread that is sent the signal, which may be any: each tells of all. 0: none, without disturbing it.

    A system call is interrupted by the signal, and few programs that call pause() or sigsuspend() expect that one. A
    thread that waits for a lock goes on waiting.
    """
    asked = 0
    for thread in map(int, _names(f"/proc/{pid}/task")):
        words = _read(f"/proc/{pid}/task/{thread}/syscall").split()
        if not words:
            continue
        if words[0] == _FUTEX and not _has(f"/proc/{pid}/task/{thread}/status", "SigBlk"):
            return thread
        waits_for_signal = words[0] in _WAIT_FOR_SIGNALS or (words[0] in _POLLS and int(words[2], 16) == 0)
        if thread == pid and not waits_for_signal:
            asked = thread
    return asked


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder), key=int, reverse=True)
    except OSError:
        return []


def has_hook(pid: int) -> bool:
    """Whether that process has memory of the hook's: any other may mean something else by a signal that it catches."""
    memory = _memory_of(pid)
    if memory is not None:
        os.close(memory)
    return memory is not None


def _memory_of(pid: int) -> int | None:
    """A descriptor of the memory into which it writes."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        # The hook's descriptor has a high number.
        for name in _names(folder):
            if os.readlink(f"{folder}/{name}").startswith(f"/memfd:{MEMORY_NAME}"):
                return os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC)
    return None


def _shown_thread(dump: str) -> tuple[list[list[Any]], bool, int]:
    """The frames of the main thread, or of the one that it has joined; whether it has; how many threads there are."""
    if dump.removesuffix(WENT_ON.decode()).rstrip().endswith("\n..."):
        return (
            [],
            False,
            _MOST_THREADS,
        )  # The main thread comes last, and is not among those that were written.
    starts = [match.end() for match in _THREAD.finditer(dump)]
    ends = [*[match.start() for match in _THREAD.finditer(dump)][1:], len(dump)]
    threads: list[list[Any]] = [failures.FRAME.findall(dump[start:end]) for start, end in zip(starts, ends)]
    if not threads:
        return [], False, 0
    main = threads[-1]
    joins = any(frame[0].endswith("/threading.py") and frame[2] == "join" for frame in main[:3])
    own = [
        thread
        for thread in threads[:-1]
        if any(not failures.OF_LIBRARIES.search(frame[0]) for frame in thread)
    ]
    is_joined = joins and bool(own)
    return (max(own, key=len) if is_joined else main), is_joined, len(threads)


def _is_launching(dump: str) -> bool:
    frames, _, _ = _shown_thread(dump)
    return any(part in str(frame[0]) for frame in frames[:6] for part in _LAUNCHING)


def _spy(pids: list[int], path: str) -> dict[int, list[list[Any]]]:
    # They take 9 ms to import, which is a fifth of an agent's start.
    import shutil
    import subprocess

    program = shutil.which("py-spy", path=path)
    pythons = [pid for pid in pids if "python" in os.path.basename(_executable(pid))]
    if program is None or not pythons:
        return {}
    spies = {
        pid: subprocess.Popen(  # noqa: S603 - found on the job's own path
            [program, "dump", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for pid in pythons
    }
    deadline = time.monotonic() + _SPY_S
    found = {}
    for pid, spy in spies.items():
        try:
            out, _ = spy.communicate(timeout=max(0.1, deadline - time.monotonic()))
            threads = json.loads(out)
            main = next((one for one in threads if one["thread_name"] == "MainThread"), threads[-1])
            found[pid] = [[one["filename"], one["line"], one["name"]] for one in main["frames"]]
        except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
            spy.kill()
            spy.wait()
    return found


def _executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _cpu_s(pid: int) -> float:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # utime, stime, and those of children that were waited for. Source: proc_pid_stat(5).
    return sum(map(int, fields[11:15])) / _TICKS if len(fields) > 14 else 0.0


def _io_bytes(pid: int) -> int:
    # rchar and wchar. Source: proc_pid_io(5).
    return sum(int(line.split()[1]) for line in _read(f"/proc/{pid}/io").splitlines()[:2])


def _status(pid: int) -> tuple[str, str]:
    """The letter of its state, and its name."""
    text = _read(f"/proc/{pid}/status")
    state = re.search(r"^State:\s*(\w)", text, re.MULTILINE)
    name = re.search(r"^Name:\s*(.*)$", text, re.MULTILINE)
    return (state[1] if state else ""), (name[1] if name else "")


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return ""
