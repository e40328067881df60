"""A home that root would spoil for the user whose it is."""

from __future__ import annotations

import os


def check_owner(home: str) -> None:
    """
    Raise UsageError where root would write into another user's home: that user could not use it any more.

    That is a home that belongs to somebody else, and under ``sudo`` one that is yet to be made in the caller's folder.
    """
    if os.geteuid() != 0:
        return
    place, is_there = _nearest(home)
    owner = os.stat(place).st_uid
    if owner == 0 or not (is_there or os.environ.get("SUDO_UID") == str(owner)):
        return
    from drumline.contract.errors import UsageError

    name = _name_of(owner)
    raise UsageError(
        f"the home {home} is {name}'s, and you are root: {name} could not use it any more",
        f"run the command as {name}, or set DRUMLINE_HOME to a folder of root's",
    )


def _nearest(path: str) -> tuple[str, bool]:
    """Return the path, or the first folder above it that exists; and whether it is the path itself."""
    place = path
    while not os.path.exists(place):
        place = os.path.dirname(place)
    return place, place == path


def _name_of(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
