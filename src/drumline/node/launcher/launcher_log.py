"""The words of a launcher, of which the end of a job quotes the beginning."""

from __future__ import annotations

_MOST_BYTES = 16384
_MOST_TEXT = 200


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
    return said[0][:_MOST_TEXT] if said else ""
