"""
Work in the namespaces of isolated nodes, done by a child of this process: the supervisor itself never leaves its own.

As root it enters them directly. Another user's are in a user namespace in which that user may do what root may.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.linux import namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_MOST_DESCRIPTORS = 200
"""In one message; the kernel allows 253."""

_WHERE = "/usr/sbin:/sbin:/usr/local/sbin"
"""Where Debian keeps ip and tc, which the PATH of an ordinary user lacks."""

_PROGRAM_TIMEOUT_S = 60.0


def call_in_child(work: Callable[[], Sequence[int]]) -> list[int]:
    """
    Have a forked child do the work, and return the descriptors that it returns. Blocks. Raises EngineError.

    To be called in the main thread of a process without others: a user namespace can be entered by no other.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _work_in_child(work, ours, theirs)
    theirs.close()
    found: list[int] = []
    word = b""
    with ours:
        while not word:
            word, descriptors, _, _ = socket.recv_fds(ours, 4096, _MOST_DESCRIPTORS)
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            found += descriptors
            if word == b"more":
                word = b""
            elif not word:
                word = b"its process was killed"
    os.waitpid(pid, 0)
    if word != b"done":
        for descriptor in found:
            os.close(descriptor)
        what, _, hint = word.decode(errors="replace").partition("\n")
        raise EngineError(f"isolated nodes: {what}", hint)
    return found


def _work_in_child(work: Callable[[], Sequence[int]], ours: socket.socket, theirs: socket.socket) -> None:
    """Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        ours.close()
        try:
            found = list(work())
            for start in range(0, len(found), _MOST_DESCRIPTORS):
                socket.send_fds(theirs, [b"more"], found[start : start + _MOST_DESCRIPTORS])
            theirs.send(b"done")
        except EngineError as error:
            theirs.send(f"{error.message}\n{error.hint or ''}".encode()[:4000])
        except OSError as error:
            theirs.send((error.strerror or str(error)).encode()[:4000])
    finally:
        os._exit(0)


def begin_namespaces() -> bool:
    """Enter a new network, if need be in a new user namespace; return whether there is one. Raises EngineError."""
    try:
        namespaces.unshare(namespaces.NETWORK)
    except PermissionError:
        pass
    else:
        return False
    try:
        namespaces.enter_new_user_namespace()
        namespaces.unshare(namespaces.NETWORK)
        namespaces.pass_on_capabilities()
    except OSError as error:
        raise explain_refusal(error) from error
    return True


def enter_network(user: int | None, network: int) -> None:
    """Enter a network, in its user namespace if there is one. Raises OSError."""
    if user is not None:
        namespaces.enter(user, namespaces.USER)
        namespaces.pass_on_capabilities()
    namespaces.enter(network, namespaces.NETWORK)


def run_batch(program: str, lines: Sequence[str], descriptors: Sequence[int] = ()) -> None:
    """Run ``ip`` or ``tc`` with lines of input, which may speak of ``descriptors``. Raises EngineError, OSError."""
    if not lines:
        return
    done = subprocess.run(  # noqa: S603 - iproute2's own programs, no shell
        [find_program(program), "-batch", "-"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=_PROGRAM_TIMEOUT_S,
        pass_fds=tuple(descriptors),
    )
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise EngineError(f"{program} could not do it: {said[0] if said else done.returncode}")


def find_program(name: str) -> str:
    """Return the path of ``ip`` or ``tc``. Raises EngineError."""
    path = shutil.which(name) or shutil.which(name, path=_WHERE)
    if path is None:
        raise EngineError(f"there is no program {name!r} on this machine", "install iproute2")
    return path


# The reasons for which a kernel lets a user make no namespaces, and how an administrator allows it.


_SWITCHES = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""What keeps an ordinary user from namespaces, and what an administrator runs against it."""


def explain_refusal(error: OSError) -> EngineError:
    """Return the sentence for a kernel that lets us make no namespaces."""
    what = f"this machine lets you make no network of your own ({error.strerror})"
    if os.geteuid() == 0:
        return EngineError(
            what, "in a container: it needs --privileged, or --cap-add SYS_ADMIN --cap-add NET_ADMIN"
        )
    for path, off, remedy in _SWITCHES:
        try:
            with open(path) as file:
                if file.read().strip() == off:
                    return EngineError(what, f"an administrator allows it: {remedy}")
        except OSError:
            continue
    return EngineError(what, "run it as root, or outside of a container")
