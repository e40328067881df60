"""
The places of a node's ranks: the Python stack of each, its state in the kernel, the CPU time that it has used.

A Python that has the hook (``hook/sitecustomize.py``) writes its stacks into memory of its own when it is sent
``SIGNAL``, even while it waits in native code; nobody else is sent it, for it would end them. For a Python without the
hook there is py-spy, where that is installed and allowed. Exceptions in flight are asked for in the same way.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract.record import NamedTuple
from drumline.linux import cgroups, descendants, kernel, process_usage
from drumline.node.diagnostics import failures, waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.contract.evidence import RaisedException
    from drumline.contract.messages import ProcessStack, ProcessState


_HIGHEST = int(getattr(signal, "SIGRTMAX", 64))  # Systems without it import this, and run no ranks.
SIGNAL = _HIGHEST - 4
IN_FLIGHT_SIGNAL = _HIGHEST - 5
MARK_SIGNAL = _HIGHEST - 6
MEMORY_NAME = "drumline-stacks"
WENT_ON = b"went on\n"
"""
Written by the main thread when it next runs Python after ``MARK_SIGNAL``, which follows each stack: a native call that
has not returned writes none. The hook has all five too: it cannot import this.
"""

_AT_END = "_shutdown"
"""The function of Python's threading in which a process waits when its program has ended."""

_ENDS = (("threading.py", _AT_END), ("util.py", "_exit_function"))
"""Where the stack of a main thread begins then: the second is multiprocessing's, which waits for processes."""

_ANSWER_TIMEOUT_S = 0.5
_SPY_TIMEOUT_S = 3.0
_POLL_INTERVAL_S = 0.002
_UNCHANGED_POLLS = 5
_SETTLED_AFTER_S = 0.5
_MAX_BYTES = 1 << 18
_MAX_FRAMES = 60
_MAX_BELOW = 8

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)
_MAX_THREADS = 100
"""Which faulthandler writes. Source: CPython, Python/traceback.c, MAX_NTHREADS."""

_LAUNCHING = ("subprocess.py", "multiprocessing/popen_fork.py", "torch/distributed/elastic/")

_HELPER = re.compile(r"\b(?:resource_tracker|forkserver) import main\b")
"""
On the command line. Source: CPython, Lib/multiprocessing/resource_tracker.py and forkserver.py; loky has a tracker too.
"""

# By machine: futex; pause, rt_sigsuspend and rt_sigtimedwait; poll and ppoll, which wait for a signal when they have no
# descriptors. Source: the kernel's tables of system calls.
_FUTEX, _WAIT_FOR_SIGNALS, _POLLS = {
    "x86_64": ("202", ("34", "130", "128"), ("7", "271")),
    "aarch64": ("98", ("133", "137"), ("73",)),
}.get(os.uname().machine, ("", (), ()))


class UsedSoFar(NamedTuple):
    """The use of a process and all below it, so far. ``io_bytes``: read and written; sockets are not counted."""

    cpu_s: float
    io_bytes: int

    def since(self, before: UsedSoFar) -> UsedSoFar:
        return UsedSoFar(self.cpu_s - before.cpu_s, self.io_bytes - before.io_bytes)


def measure_used(*pids: int) -> UsedSoFar:
    """Return what these processes and all below them have used."""
    tree = [one for pid in pids for one in (pid, *descendants.list_descendants(pid))]
    stats = [stat for pid in tree if (stat := process_usage.read_stat(pid)) is not None]
    io = [counts for pid in tree if (counts := process_usage.read_io(pid)) is not None]
    return UsedSoFar(
        sum(stat.own + stat.waited for stat in stats) / process_usage.TICKS_PER_S,
        sum(read + written for read, written, _, _ in io),
    )


def read_stacks(
    ranks: Mapping[int, int], cwd: str, path: str, notes: Mapping[int, str]
) -> dict[int, list[ProcessStack]]:
    """
    Return for each rank the processes that tell where it is. ``collective`` is as of ``waits.read_collectives``,
    None where it is not known; ``went_on``: whether its main thread has run Python since the stack before; ``spin``: a
    ``waits.Spin`` as a dictionary.

    ``ranks``: to the pid of each one's first process. ``path``: where py-spy is looked for. ``notes``: the file of each
    rank's. Blocks, for some seconds at most.
    """
    trees = {rank: [pid, *descendants.list_descendants(pid)] for rank, pid in ranks.items()}
    answering = {rank: [pid for pid in tree if _handles_signal(pid)] for rank, tree in trees.items()}
    dumps = _request_dumps([pids[0] for pids in answering.values() if pids])
    # A launcher that waits for what it started says nothing: those are asked instead.
    below = {
        rank: [pid for pid in pids[1:] if not _is_python_helper(pid)][:_MAX_BELOW]
        for rank, pids in answering.items()
        if len(pids) > 1
        and any(
            part in str(frame[0])
            for frame in _choose_thread(dumps.get(pids[0], _SILENT).text)[0][:6]
            for part in _LAUNCHING
        )
    }
    dumps.update(_request_dumps([pid for pids in below.values() for pid in pids]))
    first = {rank: (answering[rank] or tree[-1:])[0] for rank, tree in trees.items()}
    silent = [pid for pid in first.values() if pid not in dumps]
    spied = _run_py_spy(silent, path)
    raised = {rank: failures.read_uncaught(notes.get(rank, ""), cwd) for rank in trees}
    shown = {}
    for rank, pid in first.items():
        # What outlives its program is lost, or kept by what it started.
        is_over = _read_inner_pid(pid) in raised[rank] or _is_done(dumps.get(pid, _SILENT).text)
        shown[rank] = [pid, *below.get(rank, [])] if is_over else below.get(rank) or [pid]
    asked = waits.read_collectives((notes.get(rank, ""), pid) for rank, pids in shown.items() for pid in pids)
    return {
        rank: [
            _describe_process(
                pid,
                dumps.get(pid, _SILENT),
                spied.get(pid),
                cwd,
                asked.get(pid),
                raised[rank].get(_read_inner_pid(pid)),
                failures.read_in_flight(notes.get(rank, ""), pid, cwd) or [],
            )
            for pid in pids
        ]
        for rank, pids in shown.items()
    }


def _describe_process(
    pid: int,
    said: _Dump,
    spied: list[list[Any]] | None,
    cwd: str,
    collective: waits.Collective | None,
    raised: RaisedException | None,
    handled: list[RaisedException],
) -> ProcessStack:
    frames, joins, threads = _choose_thread(said.text) if said.text else (spied or [], False, 1)
    spin = waits.measure_spin(pid, frames[0] if frames else None, cwd, joins=joins)
    return {
        **read_process_state(pid),
        "frames": [
            [failures.show_path(file, cwd), int(line), failures.make_printable(function, 200)]
            for file, line, function in frames[:_MAX_FRAMES]
        ],
        "threads": threads,
        "went_on": said.went_on,
        "is_done": _is_done(said.text),
        "spin": spin._asdict(),
        "collective": collective and collective._asdict(),
        "raised": raised,
        "handled": handled[0] if handled else None,
    }


def read_process_state(pid: int) -> ProcessState:
    """Return what the kernel says of a process."""
    status = cgroups.read_text(f"/proc/{pid}/status")
    name = failures.make_printable(_find_field(status, "Name"), 100)
    waits_in = failures.make_printable(cgroups.read_text(f"/proc/{pid}/wchan"), 100)
    return {"pid": pid, "name": name, "state": _find_field(status, "State")[:1], "waits_in": waits_in}


def _find_field(status: str, field: str) -> str:
    """Return a field in the text of a ``status`` file; empty where it has none."""
    found = re.search(rf"^{field}:[ \t]*(.*)$", status, re.MULTILINE)
    return found[1] if found else ""


class _Dump(NamedTuple):
    """The answer of a process to a request for its stacks. ``went_on``: as of ``of``."""

    text: str
    went_on: bool | None


_SILENT = _Dump("", None)


def _request_dumps(pids: Iterable[int]) -> dict[int, _Dump]:
    """Request a dump of each process; one that does not write in time is left out."""
    memories: dict[int, int] = {}
    begins: dict[int, int] = {}
    asked: dict[int, int] = {}
    went_on: dict[int, bool | None] = {}
    for pid in pids:
        memory = _open_memory(pid)
        if memory is None:
            continue
        memories[pid] = memory
        with contextlib.suppress(OSError):
            # None where there was no stack before.
            end = os.fstat(memory).st_size
            last = os.pread(memory, len(WENT_ON), max(0, end - len(WENT_ON)))
            went_on[pid] = last == WENT_ON if end else None
            begins[pid] = _make_room(memory)
            thread = _thread_to_ask(pid)
            # It may have become another program meanwhile, which the signal would end.
            if thread and _is_settled(memory) and _handles_signal(pid):
                kernel.signal_thread(pid, thread, SIGNAL)
                asked[pid] = thread
    sizes, still, said = dict(begins), dict.fromkeys(begins, 0), {}
    deadline = time.monotonic() + _ANSWER_TIMEOUT_S
    while time.monotonic() < deadline and any(count < _UNCHANGED_POLLS for count in still.values()):
        time.sleep(_POLL_INTERVAL_S)
        for pid, begin in begins.items():
            size = os.fstat(memories[pid]).st_size
            # It has begun, and written nothing since: it is whole.
            still[pid] = still[pid] + 1 if size > begin and size == sizes[pid] else 0
            sizes[pid] = size
    for pid, begin in begins.items():
        if sizes[pid] > begin:
            text = os.pread(memories[pid], _MAX_BYTES, begin).decode(errors="replace")
            said[pid] = _Dump(text, went_on[pid])
            # Only now, so that the mark does not come into the middle of the stack.
            if pid in asked and _handles_signal(pid, MARK_SIGNAL):
                with contextlib.suppress(OSError):
                    kernel.signal_thread(pid, asked[pid], MARK_SIGNAL)
    for memory in memories.values():
        os.close(memory)
    return said


def _make_room(memory: int) -> int:
    """Return where in it the next answer begins; too much of it is dropped."""
    size = os.fstat(memory).st_size
    if size <= _MAX_BYTES:
        return size
    os.ftruncate(memory, 0)
    return 0


def _is_settled(memory: int) -> bool:
    """
    Return whether the process's program has run for a moment, or has answered before.

    One that becomes another again and again could do so between our last look and the signal.
    """
    known = os.fstat(memory)
    return known.st_size > 0 or time.time() - known.st_ctime >= _SETTLED_AFTER_S


def _handles_signal(pid: int, number: int = SIGNAL) -> bool:
    """Return whether a process catches the signal: the default is to be ended by it."""
    return _is_in_signal_set(f"/proc/{pid}/status", "SigCgt", number)


def _is_in_signal_set(status: str, field: str, number: int = SIGNAL) -> bool:
    """Return whether the signal is in that set of signals."""
    signals = int(_find_field(cgroups.read_text(status), field) or "0", 16)
    return bool(signals >> (number - 1) & 1)


def _thread_to_ask(pid: int) -> int:
    """
    Choose the thread to send the signal to, which may be any: each tells of all. 0: none, without disturbing it.

    A system call is interrupted by the signal, and few programs that call pause() or sigsuspend() expect that one. A
    thread that waits for a lock goes on waiting.
    """
    asked = 0
    for thread in map(int, _list_numbers(f"/proc/{pid}/task")):
        words = cgroups.read_text(f"/proc/{pid}/task/{thread}/syscall").split()
        if not words:
            continue
        if words[0] == _FUTEX and not _is_in_signal_set(f"/proc/{pid}/task/{thread}/status", "SigBlk"):
            return thread
        waits_for_signal = words[0] in _WAIT_FOR_SIGNALS or (words[0] in _POLLS and int(words[2], 16) == 0)
        if thread == pid and not waits_for_signal:
            asked = thread
    return asked


def _list_numbers(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder), key=int, reverse=True)
    except OSError:
        return []


def has_hook(pid: int) -> bool:
    """
    Return whether that process has the hook's memory; without it a signal that it catches may mean something else.
    """
    memory = _open_memory(pid)
    if memory is not None:
        os.close(memory)
    return memory is not None


def _open_memory(pid: int) -> int | None:
    """Return a descriptor of the memory into which a process writes; None where it has none."""
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        # The hook's descriptor has a high number.
        for name in _list_numbers(folder):
            if os.readlink(f"{folder}/{name}").startswith(f"/memfd:{MEMORY_NAME}"):
                return os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC)
    return None


def _choose_thread(dump: str) -> tuple[list[list[Any]], bool, int]:
    """
    Return the frames of the main thread, or of the one that it has joined; whether it has; how many threads there are.
    """
    if dump.removesuffix(WENT_ON.decode()).rstrip().endswith("\n..."):
        # The main thread comes last, and is not among those that were written.
        return [], False, _MAX_THREADS
    starts = [match.end() for match in _THREAD.finditer(dump)]
    ends = [*[match.start() for match in _THREAD.finditer(dump)][1:], len(dump)]
    threads: list[list[Any]] = [failures.FRAME.findall(dump[start:end]) for start, end in zip(starts, ends)]
    if not threads:
        return [], False, 0
    main = threads[-1]
    joins = any(frame[0].endswith("/threading.py") and frame[2] in ("join", _AT_END) for frame in main[:3])
    own = [
        thread
        for thread in threads[:-1]
        if any(not failures.LIBRARY_FILE.search(frame[0]) for frame in thread)
    ]
    is_joined = joins and bool(own)
    return (max(own, key=len) if is_joined else main), is_joined, len(threads)


def _is_done(dump: str) -> bool:
    """Return whether the main thread has left the program, and waits for other threads or for processes."""
    main = failures.FRAME.findall(_THREAD.split(dump)[-1])
    return bool(main) and (main[-1][0].rpartition("/")[2], main[-1][2]) in _ENDS


def _is_python_helper(pid: int) -> bool:
    """
    Return whether a process is a resource tracker or a fork server of multiprocessing: they run nothing of the program.

    A process that a fork server has forked has its command line.
    """
    words = cgroups.read_text(f"/proc/{pid}/cmdline")
    if not _HELPER.search(words):
        return False
    stat = process_usage.read_stat(pid)
    return stat is None or cgroups.read_text(f"/proc/{stat.parent}/cmdline") != words


def _run_py_spy(pids: list[int], path: str) -> dict[int, list[list[Any]]]:
    # They take 9 ms to import, which is a fifth of an agent's start.
    import shutil
    import subprocess

    program = shutil.which("py-spy", path=path)
    if program is None:
        return {}
    pythons = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
                pythons.append(pid)
    spies = {
        pid: subprocess.Popen(  # noqa: S603 - found on the job's own path
            [program, "dump", "--json", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for pid in pythons
    }
    deadline = time.monotonic() + _SPY_TIMEOUT_S
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


def _read_inner_pid(pid: int) -> int:
    """Return the process id by which a process knows itself, which may be in a container."""
    pids = _find_field(cgroups.read_text(f"/proc/{pid}/status"), "NSpid").split()
    return int(pids[-1]) if pids else pid


# Exceptions in flight while a rank still cleans up: those that its main thread handles, asked before it is ended.


_EXCEPTION_TIMEOUT_S = 0.1
_MAX_PROCESSES = 8


def read_in_flight(
    ranks: Mapping[int, int], notes: Mapping[int, str], cwd: str
) -> dict[int, list[RaisedException]]:
    """
    Return the exceptions in flight as ``read_answers`` does, by rank, of the ranks that answer.

    ``ranks``: to the pid of each one's first process. ``notes``: the file of each rank's. Blocks, for a tenth of a
    second at most.
    """
    asked = {rank: send_request(pid, notes[rank]) for rank, pid in ranks.items()}
    told: dict[int, list[RaisedException]] = {}
    deadline = time.monotonic() + _EXCEPTION_TIMEOUT_S
    while any(pids and rank not in told for rank, pids in asked.items()) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
        for rank, pids in asked.items():
            one = read_answers(pids, notes[rank], cwd) if rank not in told else None
            if one is not None:
                told[rank] = one
    return told


def send_request(pid: int, notes: str) -> list[int]:
    """Ask a rank's processes, of which ``pid`` is the first; those that may answer."""
    asked: list[int] = []
    for one in (pid, *descendants.list_descendants(pid)):
        if notes and len(asked) < _MAX_PROCESSES and _handles_signal(one, IN_FLIGHT_SIGNAL) and has_hook(one):
            # An answer to an earlier question.
            with contextlib.suppress(OSError):
                os.unlink(failures.IN_FLIGHT % (notes, one))
            with contextlib.suppress(OSError):
                kernel.signal_thread(one, one, IN_FLIGHT_SIGNAL)
                asked.append(one)
    return asked


def read_answers(asked: Iterable[int], notes: str, cwd: str) -> Optional[list[RaisedException]]:
    """Return the exceptions as of ``failures.read_in_flight``. Empty: there is none. None: nobody has answered."""
    answers = (failures.read_in_flight(notes, pid, cwd) for pid in asked)
    return max((one for one in answers if one is not None), key=len, default=None)
