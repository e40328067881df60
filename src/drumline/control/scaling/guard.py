"""A process that cancels the job of a measurement whose command was killed: nobody else would ever stop that job."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError
from drumline.contract.folder import WORKSPACE, current_workspace
from drumline.control.jobs import cancel

if TYPE_CHECKING:
    from types import TracebackType

_BY = "drumline scale (its command was ended)"


class JobGuard:
    """Cancels the job that it was told of last, if that has not ended when this process leaves or is killed."""

    def __enter__(self) -> JobGuard:
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-P", "-m", "drumline.control.scaling.guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, WORKSPACE: current_workspace()},
            # What ends the command's whole group must not end this.
            start_new_session=True,
        )
        return self

    def watch(self, name: str) -> None:
        """Watch over the job of that name, which may not exist yet, and over none before it."""
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Read names of jobs until there are no more, and cancel the last one."""
    name = ""
    for line in sys.stdin:
        name = line.strip()
    if name:
        with contextlib.suppress(DrumlineError, OSError):
            cancel.cancel(name, at_once=True, by=_BY)


if __name__ == "__main__":
    main()
