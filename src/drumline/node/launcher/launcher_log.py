"""The words of a launcher, of which the end of a job quotes the beginning."""

from __future__ import annotations

import re

_MOST_BYTES = 16384
_MOST_TEXT = 200
_WARNING = re.compile(r"\[[^\]]*\] \S+ Warning: ")
"""
Of Open MPI, about what it goes on after, as where a process that it starts was faster than its own look at it. Source:
plm_rsh_module.c, setpgid.
"""


def read_words(log: str) -> str:
    """Return how a launcher's last explanation begins, without lines of signs alone; empty: it said nothing."""
    try:
        with open(log, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MOST_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip(" =") for line in lines if line.strip(" -=*")]
    said = [line for line in said if not _WARNING.match(line)] or said
    return said[0][:_MOST_TEXT] if said else ""
