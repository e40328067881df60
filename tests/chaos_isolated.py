"""Jobs on isolated nodes to which bad things happen: of their mounts and interfaces nothing may be left either."""

import os
import re
from pathlib import Path

from chaos import SOON_S, Trial
from waiting import wait_until

_OURS = re.compile(r"port\d+|far\d+|gap\d+|switch|group\d+|probe\d?")
"""Interfaces that are in namespaces of the nodes' network alone."""


class IsolatedTrial(Trial):
    """As a trial, on two isolated nodes."""

    options = ("--isolate",)

    def list_inside(self) -> list[int]:
        """The processes that see a node's own files: those of its scratch folder, whose name has a random number."""
        names = [os.path.basename(path).encode() for path in self._list_scratch()]
        pids = map(int, filter(str.isdigit, os.listdir("/proc")))
        return [pid for pid in pids if any(name in read_mounts(pid) for name in names)]

    def _check_rest(self) -> None:
        super()._check_rest()
        wait_until(lambda: not self.list_inside(), SOON_S, "every process gone that is on a node")
        assert not list(filter(_OURS.fullmatch, os.listdir("/sys/class/net")))


def read_mounts(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/mountinfo").read_bytes()
    except OSError:
        return b""
