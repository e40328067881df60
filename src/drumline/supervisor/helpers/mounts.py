"""
Inputs that are mounted: a process each beside the ranks of an attempt, and nothing of it left when that has ended.

Each attempt has its own, because whatever is below this process ends between two of them.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.channel import Lines
from drumline.contract.errors import NodeError
from drumline.linux import kernel, mounts
from drumline.supervisor.clocks import wall_time

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

_LIMIT_S = 60.0
"""For one to be mounted: its process starts and may ask for a token."""

_CANCEL_POLL_S = 0.2


class Mounts:
    """The mounts of one attempt; ``job/attempts.py`` ends them with everything else below this process."""

    def __init__(self, folder: RunFolder, plan: Plan) -> None:
        self._folder = folder
        noted = (os.path.join(folder.path, "mounts", f"{fetch.name}.json") for fetch in plan.fetches)
        self._names = [
            fetch.name for fetch, path in zip(plan.fetches, noted, strict=True) if os.path.exists(path)
        ]
        if plan.compute.get("folder"):
            self._environment = {"DRUMLINE_CACHE": os.path.join(str(plan.compute["folder"]), "cache")}
        else:
            self._environment = {}
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self, canceled: Callable[[], bool]) -> None:
        """Mount all, and block until they are mounted or it was ``canceled``. Raises NodeError, OSError."""
        if not self._names:
            return
        mounts.unmount_below(self._folder.path)
        for name in self._names:
            self._start(name)
        until = time.monotonic() + _LIMIT_S
        for name, process in zip(self._names, self._running, strict=True):
            message = _read_answer(process, until, canceled)
            if message is None:
                return
            if message.get("type") != "transferred":
                told = str(message.get("message") or f"{name} could not be mounted; see {self._log}")
                hint = str(message.get("hint") or "")
                raise NodeError(f"{told} ({hint})" if hint else told)
            fields = {key: message[key] for key in e.Transferred._fields if key in message and key != "time"}
            self._folder.append(e.Transferred(wall_time(), **fields))

    @property
    def _log(self) -> str:
        return os.path.join(self._folder.system_logs, "mounts.log")

    def _start(self, name: str) -> None:
        import subprocess

        ours = os.getpid()
        with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as errors:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "drumline.staging.mount", self._folder.path, name],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**self._environment, **os.environ},
                start_new_session=True,
                # From its very beginning, for a moment later this process may be gone.
                preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - no thread here
            )
        self._running.append(process)


def _read_answer(
    process: subprocess.Popen[bytes], until: float, canceled: Callable[[], bool]
) -> dict[str, Any] | None:
    """Read a process's first word; empty where it ended without one, or is late; None when it was ``canceled``."""
    assert process.stdout is not None
    lines = Lines(skips_others=True)
    while time.monotonic() < until:
        if canceled():
            return None
        if not select.select([process.stdout], [], [], _CANCEL_POLL_S)[0]:
            continue
        data = os.read(process.stdout.fileno(), 1 << 16)
        for message in lines.feed(data):
            return message
        if not data:
            break
    return {}
