"""Whether the machine has other work to do: waiting until it has none, and how much it had meanwhile."""

import ctypes
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Self

MOST_OTHERS = 0.15
"""Cores that others may use while something is measured: what a machine does that has nothing to do."""

_WINDOW_S = 5.0
_SAY_S = 30.0
_SAMPLE_S = 10.0
_SUBREAPER = 36


class Reading(NamedTuple):
    """``busy_s``: CPU time of the whole machine so far. ``own_s``: of us and of all that we have started and reaped."""

    at: float
    load: float
    busy_s: float
    own_s: float


def read() -> Reading:
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, file.readline().split()[1:])
    busy_s = (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own_s = sum(one.ru_utime + one.ru_stime for one in own)
    return Reading(time.monotonic(), os.getloadavg()[0], busy_s, own_s)


def others(before: Reading, after: Reading) -> float:
    """How many cores were used by others, on the average."""
    used_s = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return max(0.0, used_s / max(after.at - before.at, 1e-9))


def wait(
    limit: float,
    say: Callable[[str], None],
    *,
    look: Callable[[], Reading] = read,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Until the load is below ``limit`` and others use next to nothing; says every half minute what it waits for."""
    said_at = float("-inf")
    before = look()
    while True:
        sleep(_WINDOW_S)
        now = look()
        used = others(before, now)
        if now.load < limit and used <= MOST_OTHERS:
            return
        if now.at - said_at >= _SAY_S:
            said_at = now.at
            say(
                f"waiting: load {now.load:.2f}, must be below {limit:g}; "
                f"others use {used:.2f} cores, may use {MOST_OTHERS:g}"
            )
        before = now


def reap_all() -> None:
    """Have daemons that our programs leave become our children, so that their CPU time counts as ours."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def reap() -> None:
    """Take in those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


class Watch:
    """``with Watch() as watch``: what else the machine did meanwhile."""

    def __enter__(self) -> Self:
        self.loads = [os.getloadavg()[0]]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        self._before = read()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        reap()
        self.others = others(self._before, read())

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            self.loads.append(os.getloadavg()[0])
