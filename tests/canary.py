"""A value that nobody may read in a command line, and whoever shows it there."""

import os
import threading
from pathlib import Path

from waiting import wait_until

CANARY = "CANARY-5c2f-a secret"


class Watch:
    """Whoever shows the canary in its command line, from a moment to the end of the block."""

    def __init__(self):
        self.seen = {}
        self.rounds = 0
        self._ends = False
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends = True
        self._thread.join()

    def _look(self):
        while not self._ends:
            for name in filter(str.isdigit, os.listdir("/proc")):
                try:
                    words = Path("/proc", name, "cmdline").read_bytes()
                except OSError:
                    continue
                if CANARY.encode() in words:
                    self.seen[int(name)] = words
            self.rounds += 1

    def another_round(self):
        now = self.rounds
        wait_until(lambda: self.rounds > now + 1, what="a look at every process")
