"""The programs beside the ranks, each below a process of ours that speaks for it (``service.py``)."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from drumline.linux import kernel

if TYPE_CHECKING:
    import subprocess

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


class ServicePrograms:
    """The programs of services. They end with everything below the supervisor; each attempt has them started again."""

    def __init__(self, folder: RunFolder, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the services that do not run. Raises OSError."""
        for service in self._plan.services:
            before = self._running.get(service.name)
            if before is None or before.poll() is not None:
                self._running[service.name] = self._start_program(service.name)

    def _start_program(self, name: str) -> subprocess.Popen[bytes]:
        import subprocess

        ours = os.getpid()
        plain = "".join(one if one.isascii() and (one.isalnum() or one in "-_") else "_" for one in name)[
            :100
        ]
        log = os.path.join(self._folder.system_logs, f"service-{plain}.log")
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            return subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "drumline.supervisor.helpers.service", self._folder.path, name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # From its very beginning, for a moment later this process may be gone.
                preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - no thread here
            )
