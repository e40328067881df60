"""A Slurm cluster of a test's own, made by scripts/slurm-cluster; several may run at once."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from waiting import wait_until

_SCRIPT = Path(__file__).parent.parent / "scripts" / "slurm-cluster"
_UNAVAILABLE = 3
_COMMAND_S = 120.0


class Unavailable(Exception):  # noqa: N818 - it is no mistake of anybody's
    """This machine cannot have a cluster; the reason says what is missing."""


class SlurmCluster:
    """Nodes e1, e2, ...; whoever makes one calls `down`."""

    def __init__(self, *options: str, nodes: int = 4) -> None:
        """
        `options` as `scripts/slurm-cluster up` has them. Raises Unavailable, or RuntimeError with what was printed.
        """
        self.nodes = tuple(f"e{number + 1}" for number in range(nodes))
        # Not below pytest's folders: a socket's path has 108 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="dls-", dir="/tmp"))
        self.conf = self.folder / "slurm.conf"
        done = self._script("up", "--nodes", str(nodes), *options)
        if done.returncode:
            self.down()
            if done.returncode == _UNAVAILABLE:
                raise Unavailable(done.stderr.strip())
            raise RuntimeError(done.stderr.strip())

    @property
    def env(self) -> dict[str, str]:
        """This process's environment at this moment, and where the cluster is."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def cut(self, node: str) -> None:
        """The power goes: whatever ran there is gone, and nobody was told."""
        self._do("cut", node)

    def revive(self, node: str) -> None:
        """The power comes back; Slurm may need a second to notice (`wait_until_idle`)."""
        self._do("revive", node)

    def stop(self, what: str, *, kill: bool = False) -> None:
        """Of "slurmctld" or a node the daemon only; what it started lives on."""
        self._do("stop", *(["--kill"] if kill else []), what)

    def start(self, what: str) -> None:
        """Slurm may need a second to know its nodes again (`wait_until_idle`)."""
        self._do("start", what)

    def exec(self, node: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run it inside the node, in the folder where we are, and wait for its end, however that is."""
        return self._script("exec", node, *map(str, command))

    def run(self, *command: str | Path) -> str:
        """What the command printed; it runs on the host. Raises RuntimeError with all of it."""
        done = subprocess.run(
            list(map(str, command)),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command} exited with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def scontrol(self, *arguments: str) -> str:
        return self.run("scontrol", *arguments)

    def squeue(self) -> dict[str, str]:
        """The states (PENDING, RUNNING, ...) of the jobs that have not ended, by id."""
        return dict(line.split() for line in self.run("squeue", "-h", "-o", "%i %T").splitlines())

    def states(self) -> dict[str, str]:
        """As sinfo has them: idle, allocated, idle* (does not answer), down*, ..."""
        return dict(
            line.split() for line in self.run("sinfo", "-hN", "-p", "main", "-o", "%N %T").splitlines()
        )

    def wait_until_idle(self, timeout_s: float = 15.0) -> None:
        """Raises TimeoutError."""
        wait_until(lambda: set(self.states().values()) == {"idle"}, timeout_s, "all nodes are idle")

    def down(self) -> None:
        """Nothing is left of it. May be called again."""
        self._do("down")

    def _do(self, *arguments: str) -> None:
        done = self._script(*arguments)
        if done.returncode:
            raise RuntimeError(done.stderr.strip())

    def _script(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(_SCRIPT), verb, "--dir", str(self.folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
