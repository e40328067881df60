"""Homes: of another user, which that user or this one could not use; on a network file system."""

from __future__ import annotations

import fcntl
import os
import re

from drumline.contract.errors import EngineError, UsageError
from drumline.contract.folder import base_home, private_folder

_NOBODY = 65534
"""Who owns files whose owner the file system does not tell."""


def check_owner(home: str) -> None:
    """
    Raise UsageError for a home of another ordinary user that is not open for reading alone.

    Root would spoil it: also one that is yet to be made in the folder of whoever called ``sudo`` or ``su``.
    """
    place = home
    while not os.path.exists(place):
        place = os.path.dirname(place)
    is_there = place == home
    owner, me = os.stat(place).st_uid, os.geteuid()
    if owner in (0, me, _NOBODY):
        return
    name = _name_of(owner)
    if me == 0:
        is_spoiled = is_there or os.environ.get("SUDO_UID") == str(owner) or _is_in_home_of(owner, place)
        why = f"you are root: {name} could not use it any more"
        hint = f"run the command as {name}, or set DRUMLINE_HOME to a folder of root's"
    else:
        can_read, can_write = os.access(place, os.R_OK | os.X_OK), os.access(place, os.W_OK)
        is_spoiled = can_write or not can_read if is_there else not can_write
        why = "you are another user, who cannot use it"
        hint = "set DRUMLINE_HOME to a folder of your own"
    if is_spoiled:
        raise UsageError(f"the home {home} is {name}'s, and {why}", hint)


def make_home() -> str:
    """Make the base home where it is missing, and return it. Raises as ``check_owner``, and OSError."""
    base = base_home()
    check_owner(base)
    private_folder(base)
    return base


def _is_in_home_of(uid: int, path: str) -> bool:
    import pwd

    try:
        own = os.path.realpath(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return False
    return f"{path}/".startswith(f"{own}/")


def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# network file systems


_NETWORK = re.compile(
    r"nfs|nfs4|lustre|gpfs|beegfs|beegfs_nodev|ceph|cifs|smb3|smbfs|9p|afs|orangefs|pvfs2|panfs|wekafs|ocfs2|gfs2"
    r"|glusterfs|fuse\.(?!fuseblk).*|virtiofs"
)


def is_network(path: str, mounts: str = "/proc/self/mountinfo") -> bool:
    """Return whether a path, which need not exist yet, is on a network file system. False where that is not known."""
    path = os.path.realpath(path)
    best, found = -1, ""
    try:
        with open(mounts, encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                place, kind = _parse(line)
                below = place in ("/", path) or path.startswith(place + "/")
                # Of several at one place the last is on top.
                if below and len(place) >= best:
                    best, found = len(place), kind
    except OSError:
        return False
    return _NETWORK.fullmatch(found) is not None


def lock_file(descriptor: int, operation: int, path: str) -> None:
    """
    Lock an open file as flock(2). Raises BlockingIOError while another process holds it, and EngineError where its file
    system has no locks.
    """
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        raise EngineError(
            f"{path} cannot be locked: {error.strerror}; set DRUMLINE_HOME to a folder on a file system with locks"
        ) from error


def _parse(line: str) -> tuple[str, str]:
    """Return the mount point and the type of a file system. Source: proc(5), mountinfo."""
    before, _, after = line.partition(" - ")
    place = before.split(" ")[4] if before.count(" ") > 4 else ""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place), after.split(" ")[0]
