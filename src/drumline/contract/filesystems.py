"""Network file systems: a file written there shows later elsewhere, and locks are not to be had."""

from __future__ import annotations

import fcntl
import os
import re

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
        from drumline.contract.errors import EngineError

        raise EngineError(
            f"{path} cannot be locked: {error.strerror}; set DRUMLINE_HOME to a folder on a file system with locks"
        ) from error


def _parse(line: str) -> tuple[str, str]:
    """Return the mount point and the type of a file system. Source: proc(5), mountinfo."""
    before, _, after = line.partition(" - ")
    place = before.split(" ")[4] if before.count(" ") > 4 else ""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place), after.split(" ")[0]
