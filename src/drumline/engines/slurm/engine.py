"""The Slurm engine: submits the batch job, and says what Slurm knows of it to whoever asks."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import EngineError
from drumline.contract.filesystems import is_network
from drumline.contract.folder import home, write_once
from drumline.contract.plan import NodeShape, Plan
from drumline.engines.base import Look
from drumline.engines.slurm import options, script, states
from drumline.engines.slurm.client import (
    SUBMIT_TIMEOUT_S,
    AbsentError,
    InQueue,
    RefusedError,
    SilentError,
    Slurm,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.mpi import Mpi
    from drumline.engines.base import Nodes

PATIENCE_S = 120.0
"""For a controller that is down while a job is submitted."""

_LOOK_S = 2.0
"""How old an answer of squeue may be; whoever follows many jobs asks often."""

_FORGOTTEN_S = 30.0
"""After its last event, before a job that Slurm does not know is taken to be gone."""

_ON_ITS_WAY_S = PATIENCE_S + 2 * SUBMIT_TIMEOUT_S
"""As that, while whoever submits it may still be asking."""

_UNDECIDED_S = 10.0
"""After its last event, before a job that can never start is ended: a scheduler that has just begun may be wrong."""

_WITHDRAW_S = 10.0
"""Between two tries to take a canceled job out of the queue."""

_WRITTEN_S = 5.0
"""For whoever was first to write down the number, where the file comes before its content."""

_LOOK_AGAIN_S = 0.02
_ANSWER_S = 1.0
_SETTLED_S = 1.0
_SETTLED_ON_NETWORK_S = 30.0
"""After its end in Slurm: on a network file system the last event may show that much later."""


class SlurmEngine:
    name = "slurm"
    shares_machine = False

    def __init__(self) -> None:
        self._queues: dict[str, tuple[float, dict[str, InQueue] | EngineError]] = {}
        self._withdrawn: dict[str, float] = {}
        self._computes: dict[str, Mapping[str, Any]] = {}
        """By run folder; they never change, and whoever follows a job asks for them again and again."""

    def shapes(self, node_count: int, compute: Mapping[str, Any], instance_type: str = "") -> list[NodeShape]:
        kind = options.instance_type_of(compute, instance_type)
        gpus = int(kind.get("gpus_per_node", compute.get("gpus_per_node")) or 0)
        cores = int(kind.get("cores_per_node", compute.get("cores_per_node")) or 0)
        return [NodeShape((), gpus, cores)] * node_count

    def mpi(self, search_path: str) -> Mpi | None:
        """Of this machine: programs on the PATH are where the nodes have them, or the site has no shared software."""
        from drumline.engines.local.machine import mpi_on

        return mpi_on(search_path)

    def render(self, plan: Plan, folder: RunFolder) -> str:
        return script.render(plan, folder)

    def warnings(self, plan: Plan) -> list[str]:
        return options.check(plan)

    def submit(self, folder: RunFolder, start: Callable[[str], None] | None) -> None:
        """
        Returns when Slurm has the job. Where nobody answers it asks for ``PATIENCE_S``, each time looking first whether
        an earlier attempt has arrived after all. Two of them in the queue would be no harm: the first to start claims
        the run folder (``supervisor/main.py``).
        """
        plan = Plan.read(folder.plan)
        slurm = _slurm(plan.compute)
        text = script.render(plan, folder)
        unset = options.variables_of(options.of(plan, script.log_of(folder)))
        number = self._submit(slurm, text, unset, folder)
        # What cannot be written down here, the job's own supervisor writes down.
        with contextlib.suppress(OSError):
            claim(folder, number)

    def _submit(self, slurm: Slurm, text: str, unset: tuple[str, ...], folder: RunFolder) -> str:
        deadline = time.monotonic() + PATIENCE_S
        pause_s = 1.0
        may_have_arrived = False
        while True:
            try:
                return slurm.sbatch(text, unset)
            except RefusedError as refused:
                if may_have_arrived:
                    # Perhaps for that very reason, such as a limit of jobs in line.
                    raise EngineError(f"Slurm did not take the job: {refused.message}") from refused
                raise
            except SilentError as silent:
                if time.monotonic() > deadline:
                    hint = "if the job comes to Slurm after all, it ends at once"
                    raise EngineError(f"Slurm did not take the job: {silent.message}", hint) from silent
                if pause_s == 1.0:
                    said = "".join(one if one.isprintable() else " " for one in silent.message)
                    sys.stderr.write(f"waiting for Slurm: {said}\n")
                    sys.stderr.flush()
            may_have_arrived = True
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 10.0)
            with contextlib.suppress(SilentError, RefusedError):
                found = next((job.id for job in slurm.mine().values() if _is_of(job, folder)), "")
                if found:
                    return found
                may_have_arrived = False

    def claim(self, folder: RunFolder) -> str:
        number = os.environ.get("SLURM_JOB_ID", "")
        try:
            claim(folder, number)
        except FileExistsError:
            return f"this run folder is of job {number_of(folder)} of Slurm, and this is job {number}"
        return ""

    def nodes(self, plan: Plan, folder: RunFolder) -> Nodes:
        from drumline.engines.slurm.nodes import SlurmNodes

        return SlurmNodes(plan, folder)

    def look(self, folder: RunFolder) -> Look:
        """By the queue, else by what the controller remembers, else by the accounting. Never raises."""
        compute = self._compute_of(folder)
        slurm = _slurm(compute)
        number = number_of(folder)
        try:
            queue = self._queue(slurm, compute)
            if not number:
                number = next((job.id for job in queue.values() if _is_of(job, folder)), "")
            if number in queue and _is_of(queue[number], folder):
                return self._look_at(queue[number], folder, slurm)
            return self._look_back(slurm, number, folder)
        except EngineError as error:
            return Look("unknown", f"Slurm does not answer: {error.message}")
        except OSError as error:
            return Look("unknown", f"the run folder cannot be read: {error.strerror or error}")

    def _look_at(self, job: InQueue, folder: RunFolder, slurm: Slurm) -> Look:
        phase = states.phase(job.state)
        if phase == states.WAITS:
            reason = states.why_waits(job.reason)
            if (
                os.path.exists(folder.cancel)
                and time.monotonic() - self._withdrawn.get(job.id, -_WITHDRAW_S) >= _WITHDRAW_S
            ):
                self._withdrawn[job.id] = time.monotonic()
                # Whoever canceled it may have found nobody who answered.
                with contextlib.suppress(EngineError):
                    slurm.withdraw(job.id)
            if self._can_never_start(job, folder, slurm):
                # Only one that waits is taken out: where it has just begun after all, it runs.
                slurm.withdraw(job.id)
                self._queues.clear()
                return Look("gone", f"it can never start: {reason}", status.FAILED, 1)
            return Look("waits", f"{reason}{f', to start about {job.start}' if job.start else ''}")
        if phase == states.STARTS:
            return Look("starts", f"Slurm makes its nodes ready ({job.state})")
        # One that has ended is in the queue for a moment; its supervisor may yet write.
        return Look("runs", states.of_running(job.state) if phase == states.RUNS else "")

    def _can_never_start(self, job: InQueue, folder: RunFolder, slurm: Slurm) -> bool:
        """Raises EngineError."""
        if not states.may_never_start(job.reason):
            return False
        if time.time() - os.stat(folder.events).st_mtime < _UNDECIDED_S:
            return False
        known = slurm.job(job.id)
        if known is None or known["JobState"] != "PENDING":
            return False
        partition = None if "," in job.partition else slurm.partition(job.partition)
        return states.never_starts(known.get("Reason", ""), known, partition)

    def _look_back(self, slurm: Slurm, number: str, folder: RunFolder) -> Look:
        """At one that neither waits nor runs."""
        known = slurm.job(number) if number else None
        accounted = None
        if known is not None and not _may_be_of(known.get("WorkDir", ""), folder):
            return Look(
                "unknown", f"job {number} of the Slurm that answers here is another: is it another cluster's?"
            )
        if known is not None:
            state = known["JobState"]
            if states.phase(state) != states.ENDED:
                # It came to the queue since that was last asked for.
                return self._look_at(_in_queue(number, known), folder, slurm)
            never_ran = not known.get("BatchHost") and not os.path.exists(folder.supervisor)
            since = _FORGOTTEN_S if never_ran else time.time() - _seconds(known.get("EndTime", ""))
        else:
            accounted = slurm.accounted(number) if number else None
            if accounted is not None and states.phase(accounted[0]) != states.ENDED:
                accounted = None  # Its end was never told to the accounting.
            since = time.time() - os.stat(folder.events).st_mtime
            if accounted is None:
                if since < (_FORGOTTEN_S if number else _ON_ITS_WAY_S):
                    return Look("unknown", "it is on its way to Slurm")
                if _answers(folder):
                    return Look("runs", "Slurm no longer knows it, and its supervisor still runs")
                what = f"job {number}" if number else "a job of this run folder"
                reason = f"Slurm no longer knows {what}, and its supervisor has not told of its end"
                return Look("gone", reason, status.FAILED, 1)
            state = accounted[0]
        if since < (_SETTLED_ON_NETWORK_S if is_network(folder.path) else _SETTLED_S):
            return Look("runs", "")
        by = _by(state, slurm, number) if state.startswith("CANCELLED") else ""
        is_canceled = state.startswith("CANCELLED")
        exit_code = known.get("ExitCode", "") if known is not None else accounted[1] if accounted else ""
        reason = f"{states.why_ended(state, exit_code)}{by}"
        return Look(
            "gone", reason, status.CANCELED if is_canceled else status.FAILED, 130 if is_canceled else 1
        )

    def _queue(self, slurm: Slurm, compute: Mapping[str, Any]) -> dict[str, InQueue]:
        """This user's jobs, asked for once in a while for all of them. Raises RefusedError, SilentError."""
        key = str(compute.get("slurm_conf", ""))
        at, found = self._queues.get(key, (-_LOOK_S, {}))
        if time.monotonic() - at >= _LOOK_S:
            try:
                found = slurm.mine()
            except EngineError as error:
                found = error
            self._queues[key] = (time.monotonic(), found)
        if isinstance(found, EngineError):
            raise found
        return found

    def withdraw(self, folder: RunFolder) -> None:
        """Raises EngineError when Slurm does not answer."""
        number = number_of(folder)
        if number:
            with contextlib.suppress(RefusedError):
                _slurm(self._compute_of(folder)).withdraw(number)
        self._queues.clear()

    def describe_job(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        """What Slurm calls the job, its state, and of one that waits its place and start. Never raises."""
        compute = self._compute_of(folder)
        number = number_of(folder)
        told: dict[str, Any] = {"slurm_job_id": number or None}
        slurm = _slurm(compute)
        try:
            job = self._queue(slurm, compute).get(number)
            if job is None:
                return told
            told |= {"state": job.state, "partition": job.partition}
            if states.phase(job.state) == states.WAITS:
                told |= {"slurm_reason": job.reason, "start_estimate": job.start or None}
                place = None if brief else slurm.position(number, job.partition)
                if place:
                    told |= {"position": place[0], "waiting": place[1]}
        except EngineError as error:
            told["error"] = error.message
        return told

    def _compute_of(self, folder: RunFolder) -> Mapping[str, Any]:
        """The settings that the job was submitted with; empty where its plan is damaged."""
        if folder.path not in self._computes:
            try:
                self._computes[folder.path] = Plan.read(folder.plan).compute
            except (OSError, ValueError, KeyError, TypeError):
                return {}
        return self._computes[folder.path]

    # Computes.

    def is_here(self) -> bool:
        try:
            _slurm({}).partitions()
        except AbsentError:
            return False
        except EngineError:
            return True
        return True

    def check(self, compute: Mapping[str, Any]) -> list[str]:
        """What stands in the way of jobs on this compute, seen from this machine; empty: nothing."""
        slurm = _slurm(compute)
        wrong = []
        try:
            known = {partition.get("PartitionName") for partition in slurm.partitions()}
        except EngineError as error:
            return [error.message]
        for field in ("partition", "spot_partition"):
            name = compute.get(field)
            missing = [one for one in str(name or "").split(",") if one and one not in known]
            if missing:
                there = ", ".join(sorted(filter(None, known)))
                wrong.append(f"{field}: Slurm has no partition {missing[0]!r}; it has {there}")
        folder = str(compute.get("folder") or "")
        if folder and not os.path.isdir(folder):
            wrong.append(f"folder: there is no {folder} on this machine")
        return wrong

    def describe(self, compute: Mapping[str, Any]) -> dict[str, Any]:
        """Raises EngineError."""
        slurm = _slurm(compute)
        name = str(compute.get("partition") or "") or _default_partition(slurm)
        told: dict[str, Any] = {"version": slurm.version(), "partition": name or None}
        found = slurm.partition(name) if name else None
        if found:
            told |= {
                "state": found.get("State"),
                "time_limit": found.get("MaxTime"),
                "nodes": _by_state(self.list_nodes(compute)),
            }
        return told

    def list_nodes(self, compute: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Raises EngineError."""
        slurm = _slurm(compute)
        wanted = {one for one in str(compute.get("partition") or "").split(",") if one}
        return [
            _node(fields)
            for fields in slurm.nodes()
            if not wanted or wanted & set(fields.get("Partitions", "").split(","))
        ]


def claim(folder: RunFolder, number: str) -> None:
    """
    Write down which job of Slurm's this run folder is of; exactly one can. Raises FileExistsError when it is another's.
    """
    try:
        # Whoever submits and the job itself may come here at once.
        write_once(folder.engine, json.dumps({"slurm_job_id": number}))
    except FileExistsError:
        deadline = time.monotonic() + _WRITTEN_S
        while not (known := number_of(folder)) and time.monotonic() < deadline:
            os.listdir(folder.path)  # A network file system then shows what others have just made.
            time.sleep(_LOOK_AGAIN_S)
        if known != number:
            raise


def _is_of(job: InQueue, folder: RunFolder) -> bool:
    """Its folder may have been named to Slurm by a link that leads there."""
    if os.path.basename(job.folder) != folder.name:
        return False
    return job.folder == folder.path or os.path.realpath(job.folder) == os.path.realpath(folder.path)


def _may_be_of(work_dir: str, folder: RunFolder) -> bool:
    """As ``_is_of``, of what scontrol says, which ends at a blank."""
    paths = (folder.path, os.path.join(home(), "jobs", folder.name))
    return not work_dir or any(path == work_dir or path.startswith(f"{work_dir} ") for path in paths)


def _in_queue(number: str, known: Mapping[str, str]) -> InQueue:
    """As squeue would say what scontrol says, which has no blanks in a reason."""
    start = known.get("StartTime", "")
    return InQueue(
        number,
        known["JobState"],
        known.get("Reason", "").replace("_", " "),
        start if _seconds(start) else "",
        known.get("Partition", ""),
        known.get("WorkDir", ""),
    )


def number_of(folder: RunFolder) -> str:
    """Empty while nobody knows it."""
    known = folder.read_json(folder.engine) or {}
    number = str(known.get("slurm_job_id", ""))
    return number if number.isdecimal() else ""


def _slurm(compute: Mapping[str, Any]) -> Slurm:
    return Slurm(str(compute.get("slurm_conf") or ""))


def _answers(folder: RunFolder) -> bool:
    """Whether its supervisor listens, wherever it is."""
    known = folder.read_json(folder.agents) or {}
    for address in known.get("addresses", ()):
        with contextlib.suppress(OSError, ValueError, TypeError):
            socket.create_connection((address, int(known["port"])), _ANSWER_S).close()
            return True
    return False


def _by(state: str, slurm: Slurm, number: str) -> str:
    """Who canceled it, which only the accounting knows."""
    text = state if " by " in state else (slurm.accounted(number) or ("",))[0]
    uid = text.rpartition(" by ")[2]
    if not uid.isdecimal():
        return ""
    import pwd

    try:
        return f" by {pwd.getpwuid(int(uid)).pw_name}"
    except KeyError:
        return f" by user {uid}"


def _seconds(text: str) -> float:
    """Since 1970, of a time as scontrol prints it; 0 for none."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0.0


def _default_partition(slurm: Slurm) -> str:
    return next(
        (one.get("PartitionName", "") for one in slurm.partitions() if one.get("Default") == "YES"), ""
    )


def _by_state(nodes: list[dict[str, Any]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node["state"]] = counts.get(node["state"], 0) + 1
    return dict(sorted(counts.items()))


def _node(fields: Mapping[str, str]) -> dict[str, Any]:
    reason = fields.get("Reason", "")
    return {
        "node": fields.get("NodeName"),
        "state": fields.get("State", "").lower(),
        "cores": _number(fields.get("CPUTot")),
        "cores_in_use": _number(fields.get("CPUAlloc")),
        "gpus": sum(int(count) for count in _gpu_counts(fields.get("Gres", ""))),
        "memory_mb": _number(fields.get("RealMemory")),
        "address": fields.get("NodeAddr"),
        "reason": None if reason in ("", "none") else reason,
        "jobs": None,
    }


def _gpu_counts(gres: str) -> list[str]:
    import re

    return re.findall(r"\bgpu(?::[^:,()]+)?:(\d+)", gres)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


ENGINE = SlurmEngine()
