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

_NONE = ("None", "N/A", "Unknown", "(null)")


class BatchJob:
    """Answers are empty where Slurm does not answer; nothing raises but ``requeue``."""

    def __init__(self, plan: Plan) -> None:
        self._slurm = Slurm(str(plan.compute.get("slurm_conf") or ""), in_job=True)
        self._number = os.environ.get("SLURM_JOB_ID", "")
        self._restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self._config: dict[str, str] | None = None

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
        while True:
            job = self.read()
            settled = job.get("JobState", "RUNNING") != "RUNNING" or was_preempted(job)
            if settled or not is_by_slurm or time.monotonic() > deadline:
                return job
            time.sleep(0.05)

    def is_requeued(self, job: dict[str, str]) -> bool:
        """Return whether Slurm has started, or will start, the job again. ``job``: its fields."""
        return parse_seconds(job.get("Restarts"), 0) > self._restarts

    def setting(self, name: str) -> str:
        """Return a setting of slurm.conf."""
        if self._config is None:
            self._config = {}
            with contextlib.suppress(EngineError):
                self._config = self._slurm.config()
        return self._config.get(name, "")

    def partition_setting(self, partition: str, name: str) -> str:
        with contextlib.suppress(EngineError):
            return (self._slurm.partition(partition) or {}).get(name, "")
        return ""

    def host_of(self, node: int) -> str:
        """Return the host name of a node by its place in Slurm's list."""
        with contextlib.suppress(EngineError):
            names = [fields.get("NodeName", "") for fields in self._slurm.nodes(_node_list())]
            return names[node] if node < len(names) else ""
        return ""

    def describe_fault(self, host: str) -> str:
        """Return the state of a node that does not work: ``DOWN (Not responding)``; else empty."""
        with contextlib.suppress(EngineError):
            for fields in self._slurm.nodes(host) if host else ():
                state = fields.get("State", "")
                if re.search(r"DOWN|FAIL|NOT_RESPONDING|REBOOT|POWER|\*", state):
                    reason = fields.get("Reason", "")
                    return state + (f" ({reason})" if reason not in ("", "none") else "")
        return ""

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
