"""
Slurm's commands as small programs that say what a test wants, alone on its PATH.

That real ones say such things is for tests/integration/slurm to see.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class FakeSlurm:
    """``bin``: the folder to put on the PATH; there is nothing else in it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self._told = folder / "told"
        for one in (self.bin, self._told):
            one.mkdir(parents=True)

    def says(
        self, program: str, out: str | bytes = "", *, err: str = "", rc: int = 0, first: str = ""
    ) -> None:
        """From now on. ``first``: lines of sh before that; what reads standard input is here already."""
        said = self._told / f"{program}.out"
        said.write_bytes(out if isinstance(out, bytes) else out.encode())
        calls, given = (shlex.quote(str(self._told / f"{program}.{what}")) for what in ("calls", "input"))
        lines = [
            "#!/bin/sh",
            f'printf "%s\\n" "$*" >> {calls}',
            f"/bin/cat > {given}",
            first,
            f"/bin/cat {shlex.quote(str(said))}",
            f"printf '%s' {shlex.quote(err)} >&2",
            f"exit {rc}",
        ]
        # Replaced, not written over: it may be running.
        fresh = self.bin / f".{program}"
        fresh.write_text("\n".join(lines) + "\n")
        fresh.chmod(0o700)
        fresh.replace(self.bin / program)

    def silent(self, *programs: str) -> None:
        """As while its controller is down."""
        for program in programs:
            err = f"{program}: error: Unable to contact slurm controller (connect failure)\n"
            self.says(program, err=err, rc=1)

    def hangs(self, program: str) -> None:
        self.says(program, first=f"exec {shlex.quote(sys.executable)} -c 'import signal; signal.pause()'")

    def calls(self, program: str) -> list[str]:
        """The arguments of each call, with blanks between."""
        path = self._told / f"{program}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def given(self, program: str) -> str:
        """The standard input of the last call."""
        return (self._told / f"{program}.input").read_text()
