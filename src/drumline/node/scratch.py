"""The end of a node's folder for temporary files, whatever ranks have made of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re

from drumline.node import containers

_HELD = "agent"
"""In a folder: locked by whose it is."""

_MEMORY = "/dev/shm"  # noqa: S108 - a folder in it has a random name and was made exclusively


def memory_of(path: str) -> str:
    """The folder of the same name in shared memory, where ranks of MPI have what they share; empty: no such memory."""
    return os.path.join(_MEMORY, os.path.basename(path)) if path and os.path.isdir(_MEMORY) else ""


def make(parent: str, name: str, *, memory: bool = False) -> str:
    """
    The folder of that name, for this user alone, and with ``memory`` that in shared memory; its path.

    Raises OSError, also when it is there already.
    """
    path = os.path.join(parent, name)
    os.mkdir(path, 0o700)
    if memory and memory_of(path):
        os.mkdir(memory_of(path), 0o700)
    return path


def hold(path: str) -> int:
    """
    A descriptor, as long as which is open the folder is somebody's of this machine; where files cannot be locked, one
    of nothing, and nobody removes the folder but its owner. Raises OSError.
    """
    partial = os.path.join(path, f".{_HELD}")
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(descriptor, _machine())
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.unlink(partial)
    else:
        os.rename(partial, os.path.join(path, _HELD))
    return descriptor


def end_abandoned(path: str) -> bool:
    """Remove a folder that was somebody's of this machine and is nobody's any more; whether it was. Never raises."""
    try:
        descriptor = os.open(
            os.path.join(path, _HELD), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return False  # Of one who does not hold what is his, or not yet.
    try:
        # On a shared file system a lock of another machine may not be seen.
        if os.read(descriptor, 512) != _machine():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        remove(path)
        remove(memory_of(path))
        return True
    finally:
        os.close(descriptor)


def _machine() -> bytes:
    return os.fsencode(os.uname().nodename)


def is_named_so(path: str) -> bool:
    """Whether that is the name of a node's folder or control group, which holds a random number."""
    return re.fullmatch(r"drumline-[0-9a-f]{8}-n\d+", os.path.basename(path)) is not None


def remove(path: str) -> None:
    """Never raises; folders that are too deep for Python, or closed to their owner, go too."""
    if not path or not os.path.isdir(path):
        return
    containers.end(path)
    import shutil

    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path):
        for command in (("chmod", "-R", "u+rwx", "--", path), ("rm", "-rf", "--", path)):
            try:
                os.spawnvp(os.P_WAIT, command[0], command)  # noqa: S606 - a path that we made
            except OSError:
                return
