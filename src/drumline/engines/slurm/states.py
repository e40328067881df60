"""
Slurm's states and reasons, in ours and in plain words. Every state that it has is here; what a newer one adds is shown
as it is.

Source: squeue(1), JOB STATE CODES and JOB REASON CODES, of 22.05 to 25.05.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
