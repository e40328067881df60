"""
Jobs to which bad things happen, and what must hold whatever that was. Used by tests/acceptance/test_chaos.py, and for
hours by scripts/chaos.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from waiting import wait_until

from drumline.contract.errors import NotFoundError
from drumline.control.facts import description
from drumline.control.jobs.ending import cancel

RANK = Path(__file__).parent / "jobs" / "chaos.py"
KILLED_AT = Path(__file__).parent / "jobs" / "killed_at.py"
_RANKS = 2
FINAL = ("Completed", "Failed", "Canceled")
SOON_S = 5.0
"""For processes to be gone, when whoever ended them was killed itself."""

SUPERVISOR_POINTS = (
    "JobStarting",
    "AgentJoined",
    "RankStarted",
    "JobRunning",
    "CancelRequested",
    "JobStopping",
    "RankExited",
    "JobFinalizing",
    "JobEnded",
)
AGENT_POINTS = ("PrepareNode", "ConnectToFirst", "LaunchRanks", "TerminateRanks", "KillRanks", "EmptyNode")
POINTS = [
    *[f"{moment} {name}" for name in SUPERVISOR_POINTS for moment in ("before", "after")],
    *[f"{moment} {name} of node 1" for name in AGENT_POINTS for moment in ("before", "after")],
]
BEHAVIOURS = ("", "ignore", "children", "children,ignore")


def carrying(token: str) -> list[int]:
    """The live processes with that word in their command line."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                if token.encode() in file.read():
                    found.append(int(name))
    return found


class Trial:
    """One job of two ranks on two nodes, from its command until nothing of it is left."""

    options: tuple[str, ...] = ()

    def __init__(
        self, folder: Path, behaviour: str = "", point: str = "", number: int = signal.SIGKILL
    ) -> None:
        self.name = f"j{uuid.uuid4().hex[:10]}"
        self.token = f"token-{uuid.uuid4().hex}"
        self.home = Path(os.environ["DRUMLINE_HOME"])
        self.copies = folder / self.name
        self.copies.mkdir()
        self._stopped: set[int] = set()
        self._touched = time.monotonic()
        """When something was last done to it."""
        self.gone_s = 0.0
        """From then until it had ended and nothing of it was left."""
        words = ["run", "--name", self.name, "--nodes", "2", "--grace", "0.3", *self.options, "--"]
        words += [sys.executable, "-S", str(RANK), self.token, str(self.copies), behaviour]
        head = [str(KILLED_AT), point, str(int(number))] if point else ["-m", "drumline"]
        self.command = subprocess.Popen(
            [sys.executable, *head, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def show(self) -> dict[str, Any]:
        """Empty before it is there."""
        try:
            return description.show_job(self.name)
        except NotFoundError:
            return {}

    def wait_until_submitted(self) -> None:
        wait_until(lambda: self.show() or self.command.poll() is not None, 20, "the job")

    def wait_until_it_prints(self) -> None:
        """All its ranks, or until it has ended."""
        wait_until(
            lambda: len(list(self.copies.iterdir())) == _RANKS or self.show().get("status") in FINAL,
            20,
            "the ranks",
        )

    def pid_of(self, target: str, chance: random.Random) -> int | None:
        """Of ``cli``, ``supervisor``, ``agent``, ``rank`` or ``child``; None when there is none now."""
        if target == "cli":
            return self.command.pid if self.command.poll() is None else None
        processes = self.show().get("processes") or {}
        if target == "supervisor":
            return processes.get("supervisor")
        if target == "agent":
            return chance.choice(processes["agents"]) if processes.get("agents") else None
        ranks = [rank["pid"] for rank in processes.get("ranks", [])]
        if target == "rank":
            return chance.choice(ranks) if ranks else None
        if len(ranks) < _RANKS:
            return None  # One of which nothing is known yet would be taken for a child.
        known = {self.command.pid, processes.get("supervisor"), *processes.get("agents", []), *ranks}
        others = [pid for pid in carrying(self.token) if pid not in known]
        return chance.choice(others) if others else None

    def send(self, pid: int, number: int) -> None:
        self._touched = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            if number == signal.SIGSTOP:
                self._stopped.add(pid)

    def go_on(self) -> None:
        """Those that were stopped."""
        self._touched = time.monotonic()
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def cancel(self) -> None:
        """Counts as something that is done to it only where it runs: one whose supervisor was killed is past that."""
        if self.show().get("status") not in FINAL:
            self._touched = time.monotonic()
        with contextlib.suppress(NotFoundError):
            cancel(self.name)

    def finish(self) -> dict[str, Any]:
        """Have it ended, if it has not, and look whether all holds that must; what is shown of it at last."""
        self.go_on()
        self.wait_until_submitted()
        self.cancel()
        if not self.show():
            # Its command was ended before there was a job.
            wait_until(lambda: not carrying(self.token), SOON_S, "every process gone")
            assert not (self.home / "jobs" / self.name / "events.jsonl").exists()
            return {}
        wait_until(lambda: self.show().get("status") in FINAL, 40, "the end of the job")
        shown = self.show()
        self._check_end(shown)
        self._check_logs()
        self._check_rest()
        later = self.show()
        changed = {
            name: (shown.get(name), later.get(name))
            for name in {*shown, *later}
            if shown.get(name) != later.get(name)
        }
        assert not changed, f"the end of a job never changes again: {changed}"
        return shown

    def _check_end(self, shown: dict[str, Any]) -> None:
        assert shown["reason"], "it says why"
        assert (shown["exit_code"] == 0) == (shown["status"] == "Completed")

    def _check_rest(self) -> None:
        def all_gone() -> bool:
            return not [pid for pid in carrying(self.token) if pid != self.command.pid]

        wait_until(all_gone, SOON_S, "every process gone")
        self.gone_s = time.monotonic() - self._touched
        wait_until(lambda: self.command.poll() is not None, SOON_S, "the end of the command")
        for path in self._list_scratch():
            assert not os.path.exists(path), "scratch folders and control groups go with the job"

    def _list_scratch(self) -> list[str]:
        scratch = self.home / "jobs" / self.name / "scratch"
        return scratch.read_text().splitlines() if scratch.exists() else []

    def _check_logs(self) -> None:
        """Every byte that a rank wrote is in its log: the copy may be ahead by the line it was ended in."""
        logs = self.home / "jobs" / self.name / "user_logs"
        last = max((int(path.name.partition("-")[0]) for path in self.copies.iterdir()), default=0)
        for copy in self.copies.iterdir():
            attempt, _, rank = copy.name.partition("-")
            folder = (
                logs
                if int(attempt) == last and not (logs / f"attempt-{last}").exists()
                else logs / f"attempt-{attempt}"
            )
            written = copy.read_bytes()
            logged = (folder / f"std_log_process_{int(rank):02d}.txt").read_bytes()
            # A shell of the rank says so of a child that was killed.
            logged = logged.replace(b"\nKilled\n", b"\n")
            assert written.startswith(logged), f"the log of rank {rank} has what it never wrote"
            assert written[len(logged) :].count(b"\n") <= 1, f"the log of rank {rank} lacks lines"


def wait_a_moment(chance: random.Random, most_s: float) -> None:
    """A random time: this is the moment at which something happens, not a wait for something."""
    time.sleep(chance.random() * most_s)
