"""Rules for when to try again, and when to give up."""

from __future__ import annotations

import random
import time

TRIES = 5
LIMIT_S = 120.0
"""After which there is no further try."""

TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)
"""What a server says that may be over soon."""

FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 20.0


class Tries:
    """The attempts at one piece of work."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start counting anew, after progress."""
        self._failed = 0
        self._until = time.monotonic() + LIMIT_S

    def again(self, wished_s: float = 0.0) -> bool:
        """Wait after a failure, ``wished_s`` at least, and return True; False if it was one too many."""
        self._failed += 1
        own = FIRST_PAUSE_S * 4 ** (self._failed - 1) * random.uniform(0.5, 1)  # noqa: S311  # nothing secret
        pause = min(_LONGEST_PAUSE_S, max(wished_s, own))
        if self._failed >= TRIES or time.monotonic() + pause > self._until:
            return False
        time.sleep(pause)
        return True
