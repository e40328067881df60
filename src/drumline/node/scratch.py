"""The end of a node's folder for temporary files, whatever ranks have made of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

from drumline.node.containers import rank_containers

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOLDER_FILE = "agent"
"""In a folder: locked by whose it is."""

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a folder in it has a random name and was made exclusively


def choose_shared_memory_folder(path: str) -> str:
    """
    Return the folder of that name in shared memory, where ranks of MPI share data; empty: there is no such memory.
    """
    return (
        os.path.join(_SHARED_MEMORY, os.path.basename(path)) if path and os.path.isdir(_SHARED_MEMORY) else ""
    )


def make_scratch(parent: str, name: str, *, memory: bool = False) -> str:
    """
    Make a folder of that name, for this user alone, and with ``memory`` that in shared memory; return its path.

    Raises OSError, also when it is there already.
    """
    path = os.path.join(parent, name)
    os.mkdir(path, 0o700)
    if memory and choose_shared_memory_folder(path):
        os.mkdir(choose_shared_memory_folder(path), 0o700)
    return path


def hold_scratch(path: str) -> int:
    """
    Hold the folder for a process of this machine as long as the returned descriptor is open. Raises OSError.

    Where files cannot be locked, it is a descriptor of nothing, and nobody removes the folder but its owner.
    """
    partial = os.path.join(path, f".{_HOLDER_FILE}")
    descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.write(descriptor, _read_machine_name())
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.unlink(partial)
    else:
        os.rename(partial, os.path.join(path, _HOLDER_FILE))
    return descriptor


@contextlib.contextmanager
def keep_from_cleaners(path: str) -> Iterator[None]:
    """
    Keep the folder, and all below it, from what removes old files of /tmp, as systemd does after ten days.

    It passes by a folder on which somebody has a BSD lock. Source: tmpfiles.d(5), Age.
    """
    descriptor = -1
    # Without locks, as on some network file systems, the folder is as old as its last change.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def remove_abandoned(path: str) -> bool:
    """Remove a folder that was somebody's of this machine and is nobody's any more; whether it was. Never raises."""
    try:
        descriptor = os.open(
            os.path.join(path, _HOLDER_FILE), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return False  # Of one who does not hold what is his, or not yet.
    try:
        # On a shared file system a lock of another machine may not be seen.
        if os.read(descriptor, 512) != _read_machine_name():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        remove_scratch(path)
        remove_scratch(choose_shared_memory_folder(path))
        return True
    finally:
        os.close(descriptor)


def _read_machine_name() -> bytes:
    return os.fsencode(os.uname().nodename)


def remove_scratch(path: str) -> None:
    """Remove the folder, also one that is too deep for Python, or closed to its owner. Never raises."""
    if not path or not os.path.isdir(path):
        return
    rank_containers.remove_containers(path)
    import shutil

    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if os.path.isdir(path):
        for command in (("chmod", "-R", "u+rwx", "--", path), ("rm", "-rf", "--", path)):
            try:
                os.spawnvp(os.P_WAIT, command[0], command)  # noqa: S606 - a path that we made
            except OSError:
                return
