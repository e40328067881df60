"""The few things of the kernel that Python has no name for. Each returns False where the machine cannot do it."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWUSER = 0x10000000


def die_with_parent(signal_number: int, parent: int) -> bool:
    """
    Have the kernel send this process the signal when its parent dies; True when armed.

    The kernel means the *thread* that forked it: fork from a main thread only. Survives exec.
    Ends this process at once when ``parent`` is gone already.
    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    armed = _prctl(_PR_SET_PDEATHSIG, signal_number)
    if armed and os.getppid() != parent:
        os._exit(128 + signal_number)
    return armed


def adopt_orphans(*, wanted: bool = True) -> bool:
    """Adopt descendants whose parent dies. Source: prctl(2), PR_SET_CHILD_SUBREAPER."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


def set_process_name(name: str) -> bool:
    """Set what ``ps -o comm`` shows; at most 15 bytes."""
    return _prctl(_PR_SET_NAME, name.encode()[:15])


def take_host_name(name: str) -> bool:
    """
    Give the machine another name for this process and all that it starts, and for nobody else.

    Where only root may do that, in a user namespace in which this user is itself.
    Source: unshare(2), CLONE_NEWUTS; user_namespaces(7).
    """
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        if libc.unshare(_CLONE_NEWUTS) != 0 and not (
            _succeeds_in_child(_enter_user_namespace) and _enter_user_namespace()
        ):
            return False
        return bool(libc.sethostname(name.encode(), len(name)) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _enter_user_namespace() -> bool:
    """Enter a user namespace and one of host names. OSError half way: some systems allow that, and nothing in it."""
    import ctypes

    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(_CLONE_NEWUTS | _CLONE_NEWUSER) != 0:
        return False
    maps = (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"))
    for file, text in maps:
        with open(f"/proc/self/{file}", "w") as opened:
            opened.write(text)
    return True


def _succeeds_in_child(step: Callable[[], bool]) -> bool:
    """Return whether a child of this process can do it."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if step() else 1)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


_FREE_DESCRIPTORS = 64


def allow_open_files(count: int) -> None:
    """
    Allow this process so many open files besides a few, as far as it may: many systems begin with 1,024.

    Programs that it starts afterwards inherit that.
    """
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _FREE_DESCRIPTORS
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


_core_limit: tuple[int, int] | None = None
"""Of core files, before ``forbid_core``."""


def forbid_core() -> None:
    """
    Have no core file written of this process and of what it forks: a core holds the job's secrets.

    One byte is too little for a file, and ends the pipe to a program as well, which no byte does not. Programs of the
    user get the limit of before (``restore_core_limit``), and debuggers may attach as ever.
    Source: the kernel's fs/coredump.c; core(5).
    """
    import resource

    global _core_limit  # noqa: PLW0603 - of the process, as the limit is
    now, most = resource.getrlimit(resource.RLIMIT_CORE)
    if _core_limit is None and most != 0:
        _core_limit = (now, most)
        resource.setrlimit(resource.RLIMIT_CORE, (1, most))


def restore_core_limit() -> None:
    """Undo ``forbid_core``, in a child that becomes a program of the user."""
    if _core_limit is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, _core_limit)


def find_core_undoing() -> Callable[[], None] | None:
    """Return what ``subprocess`` must call in the child for that; None if there is nothing to undo."""
    return restore_core_limit if _core_limit is not None else None


def signal_thread(pid: int, thread: int, signal_number: int) -> None:
    """Signal that thread of the process, where the C library can; else the process. Raises OSError when it is gone."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.tgkill(pid, thread, signal_number) != 0:
            raise OSError(ctypes.get_errno(), "tgkill")
    except (ImportError, AttributeError):
        os.kill(pid, signal_number)


def become_ordinary() -> None:
    """Undo what Python and we have changed in this process, for a program of the user that follows in it."""
    restore_core_limit()
    # Python ignores SIGPIPE, which a shell pipeline in a job's command must not inherit.
    for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def open_signal_descriptor(number: int) -> int:
    """
    Return a descriptor that is readable when this process was sent that signal, which then does nothing else.

    Source: signalfd(2). Where there is none, a handler writes into a pipe.
    """
    try:
        import ctypes

        signal.pthread_sigmask(signal.SIG_BLOCK, (number,))
        mask = (ctypes.c_uint64 * 16)(1 << (number - 1))
        descriptor = int(ctypes.CDLL(None).signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC))
        if descriptor >= 0:
            return descriptor
    except (ImportError, OSError, AttributeError):
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)
    return reader


def read_signal_sender(descriptor: int) -> str:
    """
    Take in a signal from ``readable_on_signal``; `` from process 71 (bash)``, or empty where that is not known.
    """
    record = os.read(descriptor, 128)
    # ssi_pid, and 0 for one that this machine's view does not show.
    pid = int.from_bytes(record[12:16], sys.byteorder) if len(record) == 128 else 0
    return f" from {describe_process(pid)}" if pid else ""


def describe_process(pid: int) -> str:
    """Return ``process 71 (bash)``."""
    try:
        with open(f"/proc/{pid}/comm", errors="replace") as file:
            name = file.read().strip()
    except OSError:
        name = "it has ended since"
    return f"process {pid} ({name})"


def detach_streams(log: str, kept: int = 2) -> None:
    """
    Close the input, append the output to that file, and close all else that was inherited, but for ``kept``.

    A shell may wait for the end of our pipes.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    append_output(log)
    close_inherited_descriptors(kept)


def append_output(log: str, more_flags: int = 0) -> None:
    """Append the output of this process to that file; lose it where there can be none, as on a full disk."""
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | more_flags, 0o600)
    except OSError:
        output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    lose_output_without_room()


def lose_output_without_room() -> None:
    """Have ``print`` raise nothing: no process of a job ends because the disk of its log is full, or a reader gone."""
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(_Log(number), "utf-8", "backslashreplace", line_buffering=True)  # type: ignore[type-var]
        for number in (1, 2)
    )


class _Log(io.RawIOBase):
    """A log, which has lost what could not be written. Unlike a FileIO, it is made without a call of the kernel."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data)
        with contextlib.suppress(OSError):
            while left:
                left = left[os.write(self._descriptor, left) :]
        return len(data)


def close_inherited_descriptors(kept: int = 2) -> None:
    """
    Close every descriptor but standard input, output and error, and ``kept``.

    Garbage from before stays where it is: what holds a descriptor would close it by its number, which by then is that
    of another.
    """
    gc.freeze()
    try:
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    except (OSError, ValueError):
        highest = 1023
    os.closerange(3, max(3, kept))
    os.closerange(max(3, kept + 1), highest + 1)


def become_helper(parent: int, kept: int) -> None:
    """
    Make this fork a helper of ``parent``: in a session of its own, without its handlers and descriptors but ``kept``,
    and killed when it dies. Fork from a main thread only.
    """
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with_parent(signal.SIGKILL, parent)
    close_inherited_descriptors(kept=kept)


def _prctl(option: int, value: int | bytes) -> bool:
    try:
        import ctypes

        word = ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value)
        return bool(ctypes.CDLL(None).prctl(option, word, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False
