"""Slurm's knowledge of jobs: where each stands, and what Slurm calls it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import EngineError
from drumline.contract.folder import home, write_once
from drumline.contract.ownership import is_network
from drumline.contract.plan import Plan
from drumline.engines.base import JobView
from drumline.engines.slurm.slurm_commands import (
    PATIENCE_S,
    SUBMIT_TIMEOUT_S,
    InQueue,
    RefusedError,
    open_slurm,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.engines.slurm.slurm_commands import Slurm


# The job of Slurm's that a run folder is of.

_WRITTEN_S = 30.0
"""For whoever was first to write down the number, where the file comes before its content, on a slow disk."""

_CLAIM_POLL_S = 0.02
_ANSWER_S = 1.0


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
            time.sleep(_CLAIM_POLL_S)
        if known != number:
            raise


def is_of(job: InQueue, folder: RunFolder) -> bool:
    """Return whether a job in the queue is of that run folder, which may have been named to Slurm by a link to it."""
    if os.path.basename(job.folder) != folder.name:
        return False
    return job.folder == folder.path or os.path.realpath(job.folder) == os.path.realpath(folder.path)


def may_be_of(work_dir: str, folder: RunFolder) -> bool:
    """Return whether a job may be of that run folder, by what scontrol says of its folder, which ends at a blank."""
    paths = (folder.path, os.path.join(home(), "jobs", folder.name))
    return not work_dir or any(path == work_dir or path.startswith(f"{work_dir} ") for path in paths)


def number_of(folder: RunFolder) -> str:
    """Return the number of a run folder's job; empty while it is not known."""
    known = folder.read_json(folder.engine) or {}
    number = str(known.get("slurm_job_id", ""))
    return number if number.isdecimal() else ""


def is_answering(folder: RunFolder) -> bool:
    """Return whether the job's supervisor listens, wherever it is."""
    known = folder.read_json(folder.agents) or {}
    for address in known.get("addresses", ()):
        with contextlib.suppress(OSError, ValueError, TypeError):
            socket.create_connection((address, int(known["port"])), _ANSWER_S).close()
            return True
    return False


_QUEUE_MAX_AGE_S = 2.0
"""How old an answer of squeue may be; whoever follows many jobs asks often."""

_FORGOTTEN_S = 30.0
"""After its last event, before a job that Slurm does not know is taken to be gone."""

_ON_ITS_WAY_S = PATIENCE_S + 2 * SUBMIT_TIMEOUT_S
"""As that, while whoever submits it may still be asking."""

_UNDECIDED_S = 10.0
"""After its last event, before a job that can never start is ended: a scheduler that has just begun may be wrong."""

_WITHDRAW_S = 10.0
"""Between two tries to take a canceled job out of the queue."""

_SETTLED_S = 1.0
_SETTLED_ON_NETWORK_S = 30.0
"""After its end in Slurm: on a network file system the last event may show that much later."""


class SlurmJobs:
    """The jobs of this user. Answers that cost Slurm something are kept for a moment."""

    def __init__(self) -> None:
        self._queues: dict[str, tuple[float, dict[str, InQueue] | EngineError]] = {}
        self._withdrawn: dict[str, float] = {}
        self._computes: dict[str, Mapping[str, Any]] = {}
        """By run folder; they never change, and whoever follows a job asks for them again and again."""

    def forget_queues(self) -> None:
        """Ask Slurm again the next time."""
        self._queues.clear()

    def view(self, folder: RunFolder, *, may_withdraw: bool = False) -> JobView:
        """Look the job up in the queue, else in the controller's memory, else in the accounting. Never raises."""
        compute = self._compute_of(folder)
        slurm = open_slurm(compute)
        number = number_of(folder)
        try:
            queue = self._queue(slurm, compute)
            if not number:
                number = next((job.id for job in queue.values() if is_of(job, folder)), "")
            if number in queue and is_of(queue[number], folder):
                return self._look_at(queue[number], folder, slurm, may_withdraw)
            return self._look_back(slurm, number, folder, may_withdraw)
        except EngineError as error:
            return JobView("unknown", f"Slurm does not answer: {error.message}")
        except OSError as error:
            return JobView("unknown", f"the run folder cannot be read: {error.strerror or error}")

    def _look_at(self, job: InQueue, folder: RunFolder, slurm: Slurm, may_withdraw: bool) -> JobView:
        job_phase = phase(job.state)
        if job_phase == WAITS:
            reason = why_waits(job.reason)
            if (
                may_withdraw
                and os.path.exists(folder.cancel)
                and time.monotonic() - self._withdrawn.get(job.id, -_WITHDRAW_S) >= _WITHDRAW_S
            ):
                self._withdrawn[job.id] = time.monotonic()
                # Whoever canceled it may have found nobody who answered.
                with contextlib.suppress(EngineError):
                    slurm.withdraw(job.id)
            if self._can_never_start(job, folder, slurm):
                if may_withdraw:
                    # Only one that waits is taken out: where it has just begun after all, it runs.
                    slurm.withdraw(job.id)
                    self.forget_queues()
                return JobView("gone", f"it can never start: {reason}", status.FAILED, 1)
            return JobView("waits", f"{reason}{f', to start about {job.start}' if job.start else ''}")
        if job_phase == STARTS:
            return JobView("starts", f"Slurm makes its nodes ready ({job.state})")
        # One that has ended is in the queue for a moment; its supervisor may yet write.
        return JobView("runs", explain_halt(job.state) if job_phase == RUNS else "")

    def _can_never_start(self, job: InQueue, folder: RunFolder, slurm: Slurm) -> bool:
        """Return whether the job cannot start as it is. Raises EngineError."""
        if not may_never_start(job.reason):
            return False
        if time.time() - os.stat(folder.events).st_mtime < _UNDECIDED_S:
            return False
        known = slurm.job(job.id)
        if known is None or known["JobState"] != "PENDING":
            return False
        partition = None if "," in job.partition else slurm.partition(job.partition)
        return never_starts(known.get("Reason", ""), known, partition)

    def _look_back(self, slurm: Slurm, number: str, folder: RunFolder, may_withdraw: bool) -> JobView:
        """Return the state of a job that neither waits nor runs."""
        job = slurm.job(number) if number else None
        if job is None:
            ended = slurm.read_accounting(number) if number else None
            since_s = time.time() - os.stat(folder.events).st_mtime
            if ended is None or phase(ended[0]) != ENDED:
                # The accounting may never have heard of its end.
                return _judge_unknown(number, folder, since_s)
            state, exit_code = ended
        elif not may_be_of(job.get("WorkDir", ""), folder):
            what = f"job {number} of the Slurm that answers here is another: is it another cluster's?"
            return JobView("unknown", what)
        elif phase(job["JobState"]) != ENDED:
            # It came to the queue since that was last asked for.
            return self._look_at(_in_queue(number, job), folder, slurm, may_withdraw)
        else:
            state, exit_code = job["JobState"], job.get("ExitCode", "")
            never_ran = not job.get("BatchHost") and not os.path.exists(folder.supervisor)
            since_s = _FORGOTTEN_S if never_ran else time.time() - _seconds(job.get("EndTime", ""))
        if since_s < (_SETTLED_ON_NETWORK_S if is_network(folder.path) else _SETTLED_S):
            return JobView("runs", "")
        reason = why_ended(state, exit_code)
        if state.startswith("CANCELLED"):
            return JobView("gone", reason + _by(state, slurm, number), status.CANCELED, 130)
        return JobView("gone", reason, status.FAILED, 1)

    def _queue(self, slurm: Slurm, compute: Mapping[str, Any]) -> dict[str, InQueue]:
        """Return this user's jobs; Slurm is asked once in a while for all of them. Raises RefusedError, SilentError."""
        key = str(compute.get("slurm_conf", ""))
        at, found = self._queues.get(key, (-_QUEUE_MAX_AGE_S, {}))
        if time.monotonic() - at >= _QUEUE_MAX_AGE_S:
            try:
                found = slurm.mine()
            except EngineError as error:
                found = error
            self._queues[key] = (time.monotonic(), found)
        if isinstance(found, EngineError):
            raise found
        return found

    def describe(self, folder: RunFolder, *, brief: bool = False) -> dict[str, Any]:
        """Return what Slurm calls the job, its state, and, while it waits, its place and start. Never raises."""
        compute = self._compute_of(folder)
        number = number_of(folder)
        told: dict[str, Any] = {"slurm_job_id": number or None}
        slurm = open_slurm(compute)
        try:
            job = self._queue(slurm, compute).get(number)
            if job is None:
                return told
            told |= {"state": job.state, "partition": job.partition}
            if phase(job.state) == WAITS:
                told |= {"slurm_reason": job.reason, "start_estimate": job.start or None}
                place = None if brief else slurm.position(number, job.partition)
                if place:
                    told |= {"position": place[0], "waiting": place[1]}
        except EngineError as error:
            told["error"] = error.message
        return told

    def withdraw(self, folder: RunFolder) -> None:
        """Remove the job from the queue. Raises EngineError when Slurm does not answer."""
        number = number_of(folder)
        if number:
            with contextlib.suppress(RefusedError):
                open_slurm(self._compute_of(folder)).withdraw(number)
        self.forget_queues()

    def _compute_of(self, folder: RunFolder) -> Mapping[str, Any]:
        """Return the settings that the job was submitted with; empty where its plan is damaged."""
        if folder.path not in self._computes:
            try:
                self._computes[folder.path] = Plan.read(folder.plan).compute
            except (OSError, ValueError, KeyError, TypeError):
                return {}
        return self._computes[folder.path]


def _judge_unknown(number: str, folder: RunFolder, since_s: float) -> JobView:
    """Return the state of a job that Slurm does not know, so long after its last event."""
    if since_s < (_FORGOTTEN_S if number else _ON_ITS_WAY_S):
        return JobView("unknown", "it is on its way to Slurm")
    if is_answering(folder):
        return JobView("runs", "Slurm no longer knows it, and its supervisor still runs")
    what = f"job {number}" if number else "a job of this run folder"
    reason = f"Slurm no longer knows {what}, and its supervisor has not told of its end"
    return JobView("gone", reason, status.FAILED, 1)


def _in_queue(number: str, known: Mapping[str, str]) -> InQueue:
    """Return what scontrol says in squeue's form; scontrol has no blanks in a reason."""
    start = known.get("StartTime", "")
    return InQueue(
        number,
        known["JobState"],
        known.get("Reason", "").replace("_", " "),
        start if _seconds(start) else "",
        known.get("Partition", ""),
        known.get("WorkDir", ""),
    )


def _by(state: str, slurm: Slurm, number: str) -> str:
    """Return who canceled the job, which only the accounting knows."""
    text = state if " by " in state else (slurm.read_accounting(number) or ("",))[0]
    uid = text.rpartition(" by ")[2]
    if not uid.isdecimal():
        return ""
    import pwd

    try:
        return f" by {pwd.getpwuid(int(uid)).pw_name}"
    except KeyError:
        return f" by user {uid}"


def _seconds(text: str) -> float:
    """Return the seconds since 1970 of a time as scontrol prints it; 0 for none."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0.0


# Slurm's states and reasons, in ours and in plain words. Every state that it has is here; what a newer one adds is
# shown as it is.


WAITS, STARTS, RUNS, ENDED = "waits", "starts", "runs", "ended"

PHASES = {
    "PENDING": WAITS,
    "REQUEUED": WAITS,
    "REQUEUE_FED": WAITS,
    "REQUEUE_HOLD": WAITS,
    "RESV_DEL_HOLD": WAITS,
    "SPECIAL_EXIT": WAITS,
    "CONFIGURING": STARTS,
    "POWER_UP_NODE": STARTS,
    "RUNNING": RUNS,
    "COMPLETING": RUNS,
    "EXPEDITING": RUNS,
    "RESIZING": RUNS,
    "SIGNALING": RUNS,
    "STAGE_OUT": RUNS,
    "STOPPED": RUNS,
    "SUSPENDED": RUNS,
    "UPDATE_DB": RUNS,
    "BOOT_FAIL": ENDED,
    "CANCELLED": ENDED,
    "COMPLETED": ENDED,
    "DEADLINE": ENDED,
    "FAILED": ENDED,
    "LAUNCH_FAILED": ENDED,
    "NODE_FAIL": ENDED,
    "OUT_OF_MEMORY": ENDED,
    "PREEMPTED": ENDED,
    "RECONFIG_FAIL": ENDED,
    "REVOKED": ENDED,
    "TIMEOUT": ENDED,
}

_HELD = {
    "SUSPENDED": "Slurm has suspended it; it goes on when Slurm lets it",
    "STOPPED": "Slurm has stopped its processes; it goes on when Slurm lets it",
}

_ENDS = {
    "BOOT_FAIL": "a node that it was given did not boot",
    "CANCELLED": "it was canceled with scancel",
    "COMPLETED": "its batch script ended without a word of its supervisor",
    "DEADLINE": "its deadline came",
    "FAILED": "its batch script failed before its supervisor could say why",
    "LAUNCH_FAILED": "Slurm could not start its batch script",
    "NODE_FAIL": "a node of it failed",
    "OUT_OF_MEMORY": "the batch step ran out of the memory that Slurm allows",
    "PREEMPTED": "another job took its nodes, and Slurm does not start it again",
    "RECONFIG_FAIL": "Slurm could not reconfigure a node of it",
    "REVOKED": "another cluster of the federation runs it",
    "TIMEOUT": "Slurm's time limit was reached",
}

_REASONS = {
    "Resources": "nodes that it needs are busy",
    "Priority": "others before it have a higher priority",
    "BeginTime": "it may not start yet",
    "Dependency": "it waits for another job's end",
    "DependencyNeverSatisfied": "the job that it depends on ended otherwise than it asks for, so it never starts",
    "JobHeldUser": "its owner holds it (scontrol release lets it go)",
    "JobHeldAdmin": "an operator holds it",
    "Licenses": "licenses that it needs are in use",
    "PartitionDown": "the partition takes no jobs",
    "PartitionInactive": "the partition starts no jobs at the moment",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives a job, so it never starts",
    "PartitionTimeLimit": "it asks for more time than the partition gives a job, so it never starts",
    "PartitionConfig": "it asks for what the partition does not allow",
    "AccountNotAllowed": "its account may not use the partition, so it never starts",
    "QOSNotAllowed": "its QOS may not use the partition, so it never starts",
    "InvalidAccount": "its account is not valid, so it never starts",
    "InvalidQOS": "its QOS is not valid, so it never starts",
    "BadConstraints": "no node is what it asks for, so it never starts",
    "NodeDown": "a node that it needs is down",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted",
    "Prolog": "Slurm prepares its nodes",
    "BurstBufferResources": "the burst buffer is full",
    "BurstBufferStageIn": "its data is brought to the burst buffer",
    "DeadLine": "it cannot end before its deadline",
    "MaxMemPerLimit": "it asks for more memory a core or node than a job may have",
    "SchedDefer": "Slurm looks at it a while later",
    "InactiveLimit": "it did nothing for as long as Slurm allows",
    "JobLaunchFailure": "Slurm could not start it",
    "NonZeroExitCode": "it failed when it was last started",
    "TimeLimit": "it reached its time limit when it was last started",
    "Cleaning": "Slurm tidies up after its last start",
    "JobArrayTaskLimit": "as many tasks of its array as may run do",
    "MaxRequeue": "it was started again as often as Slurm allows",
    "JobHoldMaxRequeue": "it was started again as often as Slurm allows, and is held",
    "None": "Slurm has not looked at it yet",
    "WaitingForScheduling": "Slurm has not looked at it yet",
    "FrontEndDown": "a front end that it needs is down",
    "SystemFailure": "Slurm itself failed",
    "AssociationJobLimit": "its account may run no more jobs at once",
    "AssociationResourceLimit": "its account has all the resources that it may have",
    "AssociationTimeLimit": "its account has used the time that it may use",
    "QOSJobLimit": "its QOS may run no more jobs at once",
    "QOSResourceLimit": "its QOS has all the resources that it may have",
    "QOSTimeLimit": "its QOS has used the time that it may use",
    "QOSUsageThreshold": "its QOS has used what it may use",
}

_NEVER = frozenset({"BadConstraints", "DependencyNeverSatisfied", "MaxMemPerLimit"})
"""
Of a job that cannot start as it is: no other job's end changes that. ReqNodeNotAvail and full quotas pass, and so may
what is said of accounts and QOS: Slurm says it too while its accounting is away.
"""

_UNITS = {
    "billing": "billing units", "cpu": "cores", "gres": "GPUs or the like", "job": "jobs", "jobs": "jobs",
    "mem": "memory", "memory": "memory", "node": "nodes", "wall": "time", "wallduration": "time",
    "submitjob": "queued jobs", "submitjobs": "queued jobs", "license": "licenses", "bb": "burst buffer",
    "cpuminutes": "core minutes", "cpurunminutes": "core minutes",
    "gresminutes": "GPU minutes", "gresrunminutes": "GPU minutes",
    "memminutes": "memory minutes", "memrunminutes": "memory minutes",
}  # fmt: skip

_LAUNCH_FAILED = "53"
"""Instead of a signal, where the batch step's folder or output could not be opened."""


def phase(state: str) -> str:
    """Return one of the four phases; RUNS for a state that is not known: nothing is decided for it."""
    return PHASES.get(_word(state), RUNS)


def _word(state: str) -> str:
    """Return the word of a state: ``CANCELLED by 1000`` and ``CANCELLED+`` are CANCELLED."""
    return re.split(r"[ +]", state, maxsplit=1)[0]


def explain_halt(state: str) -> str:
    """Return why a job that has its nodes does not go on; empty when it does."""
    word = _word(state)
    if word in _HELD:
        return _HELD[word]
    return "" if word in PHASES else f"Slurm says {word}, which is not known here"


def why_ended(state: str, exit_code: str = "") -> str:
    """Explain how a job ended. ``exit_code`` as Slurm has it, ``CODE:SIGNAL``."""
    word = _word(state)
    number = exit_code.partition(":")[2]
    if number == _LAUNCH_FAILED:
        return (
            f"Slurm could not start its batch script; is the run folder there on the node? ({word} in Slurm)"
        )
    if word in ("FAILED", "COMPLETED") and number not in ("", "0"):
        return f"its supervisor was killed by {_signal(number)} ({word} in Slurm)"
    return f"{_ENDS.get(word, 'it is over')} ({word} in Slurm)"


def _signal(number: str) -> str:
    try:
        return signal.Signals(int(number)).name
    except ValueError:
        return f"signal {number}"


def may_never_start(reason: str) -> bool:
    """Return whether it is worth asking for the facts that ``never_starts`` needs."""
    word = re.split(r"[ ,(]", reason.strip(" ()"), maxsplit=1)[0]
    return word in ("PartitionTimeLimit", "PartitionNodeLimit") or never_starts(word, {}, None)


def never_starts(reason: str, job: Mapping[str, str], partition: Mapping[str, str] | None) -> bool:
    """
    Return whether Slurm's reason means that the job cannot start as it is. ``job``, ``partition``: as scontrol shows
    them.

    Slurm gives a partition's limits as the reason also while nodes are down, so those are compared.
    """
    word = re.split(r"[ ,(]", reason.strip(" ()"), maxsplit=1)[0]
    if word == "PartitionTimeLimit":
        asked, most = minutes(job.get("TimeLimit", "")), minutes((partition or {}).get("MaxTime", ""))
        return asked is not None and most is not None and asked > most
    if word == "PartitionNodeLimit":
        asked_nodes = re.match(r"\d+", job.get("NumNodes", ""))
        limits = [(partition or {}).get(name, "") for name in ("MaxNodes", "TotalNodes")]
        most_nodes = [int(limit) for limit in limits if limit.isdecimal()]
        return asked_nodes is not None and bool(most_nodes) and int(asked_nodes.group()) > min(most_nodes)
    return word in _NEVER or re.fullmatch(r"(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?", word) is not None


def minutes(text: str) -> float | None:
    """
    Return the minutes of ``[DAYS-]HOURS:MINUTES:SECONDS``, as scontrol has a time limit; None for ``UNLIMITED``.

    >>> minutes("1-02:03:30"), minutes("UNLIMITED")
    (1563.5, None)
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not found:
        return None
    days, hours, mins, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + mins + seconds / 60


def why_waits(reason: str) -> str:
    """Explain in plain words why a job waits, with Slurm's own word in brackets."""
    reason = reason.strip(" ()")
    if not reason:
        return "Slurm does not say why"
    if "requeued held" in reason or "requeued in held" in reason:
        return f"Slurm could not start it, and holds it; scontrol release lets it go ({reason})"
    word = re.split(r"[ ,(]", reason, maxsplit=1)[0]
    if word.startswith("ReqNodeNotAvail") or reason.startswith("Nodes required"):
        nodes = re.search(r"UnavailableNodes:\s*([^\s)]+)", reason)
        which = f": {nodes.group(1)}" if nodes else ""
        return f"nodes that it needs are down, drained or reserved{which} (ReqNodeNotAvail)"
    plain = _REASONS.get(word) or _of_limit(word)
    return f"{plain} ({word})" if plain else f"Slurm says {reason}"


def _of_limit(word: str) -> str:
    """Explain a limit such as ``QOSMaxGRESPerUser`` or ``AssocGrpCpuLimit``: whose it is, and of what."""
    found = re.fullmatch(
        r"(Assoc|QOS)(Max|Grp|Min)(.+?)(?:Per(User|Account|Job|Node))?(?:Limit|NotSatisfied)?", word
    )
    if not found:
        return ""
    kind, what, each = found.group(2, 3, 4)
    whose = "account" if found.group(1) == "Assoc" else "QOS"
    unit = _UNITS.get(what.lower(), what)
    if kind == "Min":
        return f"it asks for less {unit} than its {whose} wants"
    if each in ("Job", "Node"):
        return f"it asks for more {unit} than its {whose} gives a {each.lower()}"
    if each:
        return f"its {each.lower()} has as much of the {unit} in use as its {whose} allows"
    return f"its {whose} has as much of its {unit} in use as it may have"
