"""The words of a launcher, of which the end of a job quotes an explanation."""

from __future__ import annotations

_MOST_BYTES = 16384
_MOST_TEXT = 200


def read_words(log: str) -> str:
    """Return a launcher's first explanation; empty: it said nothing."""
    from drumline.node.diagnostics import last_words

    try:
        with open(log, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MOST_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return last_words.find_first_words(text)[:_MOST_TEXT]
