"""File systems that a job has mounted, and their end: they outlive whoever served them and was killed."""

from __future__ import annotations

import os
import re

NAME = "drumline"
KIND = f"fuse.{NAME}"
"""The type by which they are known, as mountinfo has it."""

PROGRAMS = ("fusermount3", "fusermount")
"""Of libfuse 3 and 2: what mounts and unmounts for a user who is not root."""

_DETACH = 2 | 8
"""MNT_DETACH: out of sight at once, whoever has files open there; UMOUNT_NOFOLLOW. Source: umount(2)."""

_UNMOUNT_TIMEOUT_S = 5.0


def list_mounts(folder: str) -> list[str]:
    """Return where a job has mounted something below the folder, the last one first."""
    folder = os.path.realpath(folder)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.partition(" - ") for line in file]
    except OSError:
        return []
    # Source: proc(5), mountinfo.
    ours = [before.split(" ")[4] for before, _, after in lines if after.split(" ")[0] == KIND]
    places = [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place) for place in ours]
    return [place for place in reversed(places) if place == folder or place.startswith(folder + "/")]


def unmount_below(folder: str) -> int:
    """Unmount what is mounted below the folder, even if it is in use; return how many there were. Quick."""
    found = list_mounts(folder)
    for place in found:
        _unmount(place)
    return len(found)


def find_unmount_program() -> str:
    """Return the program that unmounts for a user who is not root; empty if there is none."""
    import shutil

    return next((path for name in PROGRAMS if (path := shutil.which(name))), "")


def _unmount(place: str) -> None:
    if os.geteuid() == 0 and _detach_mount(place):
        return
    found = find_unmount_program()
    if found:
        import subprocess

        try:
            subprocess.run(  # noqa: S603 - what the machine has for it
                [found, "-u", "-z", "-q", "--", place],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_UNMOUNT_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return


def _detach_mount(place: str) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).umount2(ctypes.c_char_p(os.fsencode(place)), _DETACH) == 0)
    except (ImportError, OSError, AttributeError):
        return False
