"""The batch job of which this process is the batch step: answers of Slurm about it, its nodes and the settings."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import EngineError
from drumline.engines.slurm.client import Slurm

if TYPE_CHECKING:
    from drumline.contract.plan import Plan

SETTLED_S = 1.0
"""For the controller to say of a job what its processes have noticed."""

_NODES_S = 2.0
"""For which an answer about the nodes serves all of them: they are often lost together."""

_NODES_TIMEOUT_S = 5.0
"""For that answer: the attempt waits for it."""

_SILENCE_S = 30.0
"""After a question about the nodes without an answer, until the next one."""

_NONE = ("None", "N/A", "Unknown", "(null)")


class BatchJob:
    """Answers are empty where Slurm does not answer; nothing raises but ``requeue``."""

    def __init__(self, plan: Plan) -> None:
        self._slurm = Slurm(str(plan.compute.get("slurm_conf") or ""), in_job=True)
        self._number = os.environ.get("SLURM_JOB_ID", "")
        self._restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self._settings: dict[str, str] = {}
        self._nodes: list[dict[str, str]] = []
        self._nodes_until = 0.0
        """In monotonic seconds: when the nodes are to be asked for again."""

    def within(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Give all questions of a block so many seconds together; those for which nothing is left have no answer."""
        return self._slurm.within(seconds)

    def requeue(self) -> None:
        """Put the job back in the queue; this ends all that runs of it, this process included. Raises EngineError."""
        self._slurm.requeue(self._number)

    def read(self) -> dict[str, str]:
        """Return the fields that the controller shows."""
        with contextlib.suppress(EngineError):
            return self._slurm.job(self._number) or {}
        return {}

    def read_when_settled(self, *, is_by_slurm: bool) -> dict[str, str]:
        """Wait a moment for the job's new state: Slurm signals its processes before the controller shows it."""
        deadline = time.monotonic() + SETTLED_S
        job: dict[str, str] = {}
        while True:
            job = self.read() or job
            settled = job.get("JobState", "RUNNING") != "RUNNING" or was_preempted(job)
            if settled or not is_by_slurm or time.monotonic() > deadline:
                return job
            time.sleep(0.05)

    def is_requeued(self, job: dict[str, str]) -> bool:
        """Return whether Slurm has started, or will start, the job again. ``job``: its fields."""
        return parse_seconds(job.get("Restarts"), 0) > self._restarts

    def read_settings(self) -> None:
        """Read the settings of slurm.conf, unless they are known."""
        if not self._settings:
            with contextlib.suppress(EngineError):
                self._settings = self._slurm.config()

    def setting(self, name: str) -> str:
        """Return a setting of slurm.conf; empty where it could not be read yet. Asks nothing."""
        return self._settings.get(name, "")

    def partition_setting(self, partition: str, name: str) -> str:
        with contextlib.suppress(EngineError):
            return (self._slurm.partition(partition) or {}).get(name, "")
        return ""

    def describe_fault(self, node: int, host: str) -> str:
        """
        Return the state of a node that does not work: ``DOWN (Not responding)``; else empty. ``host``: its name; empty:
        the node is known by its place in Slurm's list.
        """
        for place, fields in enumerate(self._list_nodes()):
            state = fields.get("State", "")
            is_it = fields.get("NodeName") == host if host else place == node
            if is_it and re.search(r"DOWN|FAIL|NOT_RESPONDING|REBOOT|POWER|\*", state):
                reason = fields.get("Reason", "")
                return state + (f" ({reason})" if reason not in ("", "none") else "")
        return ""

    def _list_nodes(self) -> list[dict[str, str]]:
        """Return the job's nodes as Slurm has shown them a moment ago; none while it does not answer."""
        if time.monotonic() >= self._nodes_until:
            self._nodes, serves_s = [], _SILENCE_S
            with contextlib.suppress(EngineError), self._slurm.within(_NODES_TIMEOUT_S):
                self._nodes, serves_s = self._slurm.nodes(_node_list()), _NODES_S
            self._nodes_until = time.monotonic() + serves_s
        return self._nodes

    def find_down_nodes(self) -> dict[str, str]:
        """Return name and state of those of the job's nodes that Slurm has given up."""
        with contextlib.suppress(EngineError):
            return {
                fields["NodeName"]: fields["State"]
                for fields in self._slurm.nodes(_node_list())
                if re.search(r"DOWN|FAIL", fields.get("State", ""))
            }
        return {}


def was_preempted(job: dict[str, str]) -> bool:
    """Return whether Slurm has preempted the job with these fields for another one."""
    return job.get("PreemptTime", "None") not in _NONE


def parse_seconds(text: str | None, otherwise: float) -> float:
    """
    Parse ``30 sec``, ``00:00:30``, ``1-00:00:00`` or ``30``.

    >>> parse_seconds("1-00:00:30", 0), parse_seconds("", 5)
    (86430.0, 5)
    """
    found = re.match(r"(?:(\d+)-)?((?:\d+:)*\d+)", text or "")
    if not found:
        return otherwise
    total = 0
    for part in found[2].split(":"):
        total = total * 60 + int(part)
    return float(total + 86400 * int(found[1] or 0))


def _node_list() -> str:
    return os.environ.get("SLURM_JOB_NODELIST", "")
