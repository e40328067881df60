"""
The wishes of a job, as options of sbatch: pure. Whatever has no meaning for Slurm is refused before the queue.

Source of the options: sbatch(1) of 22.05 to 25.05.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, Problem
from drumline.contract.sbatch import OURS, USERS
from drumline.contract.words import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


STAGING_S = 300.0
"""For code and local inputs, on top of the ranks' time limit."""

TRANSFER_S = 7200.0
"""As that, for a job that builds its environment, downloads inputs or uploads outputs."""

WARNING_S = 30.0
"""On top of the grace period: how long before Slurm's own time limit the ranks are told to save."""

LOW_NICE = 1000

_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")
"""Of which sbatch takes one."""

_MOST_WARNING_S = 65535.0
"""Source: sbatch(1), --signal."""


_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")


def make_options(plan: Plan, log: str) -> dict[str, str | None]:
    """
    Return long name to value, in the order in which they stand in the script; None: an option without a value.

    ``log``: where the batch step's own output goes. Raises PlanError that names each field that Slurm cannot honour.
    """
    compute, kind = plan.compute, instance_type_of(plan.compute, plan.asked.instance_type)
    own = _own(plan)
    options: dict[str, str | None] = {
        "job-name": plan.job,
        "nodes": str(len(plan.nodes)),
        "ntasks-per-node": "1",
        "chdir": _folder_of(log),
        "output": log.replace("%", "%%"),
        "open-mode": "append",
    }
    _put(options, "partition", kind.get("partition") or compute.get("partition"))
    _put(options, "account", compute.get("account"))
    _put(options, "qos", compute.get("qos"))
    priority = plan.asked.priority
    own_options = (compute.get("priorities") or {}).get(priority)
    if own_options is not None:
        options |= {name: str(value) for name, value in own_options.items()}
    elif priority == "low":
        # It waits behind others; only an operator's QOS or partition puts a job before them.
        options["nice"] = str(LOW_NICE)
    if _is_spot(plan):
        _put(options, "partition", compute.get("spot_partition"))
        _put(options, "qos", compute.get("spot_qos"))
    options["cpus-per-task"] = str(cores_of(plan))
    _put(options, "gpus-per-node", max((node.gpu_count for node in plan.nodes), default=0))
    _put(options, "mem", kind.get("memory_per_node") or compute.get("memory_per_node"))
    _put(options, "time", _time_limit(plan))
    for line in (*compute.get("sbatch_options", ()), *kind.get("sbatch_options", ())):
        name, has_value, value = line.removeprefix("--").partition("=")
        _set(options, name, value if has_value else None)
    for name, value in own.items():
        _set(options, name, value)
    options["requeue" if may_requeue(plan) else "no-requeue"] = None
    options["signal"] = f"B:USR2@{warning_s(plan):.0f}"
    return options


def cores_of(plan: Plan) -> int:
    """
    Return the cores to ask for on each node: what the compute or its instance type says, else what its ranks need.
    """
    kind = instance_type_of(plan.compute, plan.asked.instance_type)
    given = kind.get("cores_per_node", plan.compute.get("cores_per_node"))
    if given:
        return int(given)
    nodes = max(1, len(plan.nodes))
    return max(1, math.ceil(plan.cores_wanted / nodes), *(len(node.ranks) for node in plan.nodes))


def warning_s(plan: Plan) -> float:
    return min(plan.grace_s + WARNING_S, _MOST_WARNING_S)


def may_requeue(plan: Plan) -> bool:
    """Return whether Slurm may start the job again: the job, its compute or its tier asks for that."""
    for said in (_read_given(plan).get("requeue"), plan.compute.get("requeue")):
        if said is not None:
            return bool(said)
    return _is_spot(plan) or plan.max_restarts > 0


def _is_spot(plan: Plan) -> bool:
    return plan.asked.job_tier == "spot" or plan.compute.get("tier") == "low_priority"


def instance_type_of(compute: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return what a compute says of an instance type; empty for none, and for one that it does not know."""
    found = (compute.get("instance_types") or {}).get(name)
    return dict(found) if isinstance(found, dict) else {}


def _time_limit(plan: Plan) -> str | None:
    """
    Return the time limit in minutes: the ranks' own, and what is around them. The supervisor keeps theirs to the
    second.

    The time for transfers is long, because a job that Slurm ends during them has done nothing; where the compute has a
    ``time_limit``, it is shortened to stay within that.
    """
    limit = plan.compute.get("time_limit")
    if plan.timeout_s is None:
        return limit
    least_s = plan.timeout_s + plan.grace_s + STAGING_S
    if plan.build is None and not plan.fetches and not plan.uploads:
        return str(math.ceil(least_s / 60))
    wanted_s = plan.timeout_s + plan.grace_s + TRANSFER_S
    most_s = _seconds(limit)
    return str(math.ceil(max(least_s, wanted_s if most_s is None else min(wanted_s, most_s)) / 60))


def _own(plan: Plan) -> dict[str, str | None]:
    """Return ``resources.properties.slurm`` of the job: sbatch's long names, with - or _. Raises PlanError."""
    wrong = _problems(plan)
    if wrong:
        raise PlanError(wrong)
    return {
        name: None if value is True else str(value)
        for name, value in _read_given(plan).items()
        if value is not False and value is not None and name != "requeue"
    }


def _read_given(plan: Plan) -> dict[str, Any]:
    return {_long(key): _plain(value) for key, value in plan.asked.options.items()}


def _problems(plan: Plan) -> list[Problem]:
    wrong = []
    for key, value in plan.asked.options.items():
        path = f"resources.properties.slurm.{key}"
        problem = _refusal(_long(key), _plain(value))
        if problem:
            wrong.append(Problem(f"{path}: {problem}", path=path, hint=_hint(_long(key))))
    return wrong


def _plain(value: Any) -> Any:
    """Turn the texts ``true`` and ``false`` into booleans: ``--set`` makes texts of all, and no option has these."""
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value


def _long(key: object) -> str:
    return str(key).lstrip("-").replace("_", "-")


def _refusal(name: str, value: Any) -> str:
    if name in OURS:
        return f"--{name} is not to be set; {OURS[name]}"
    if name == "no-requeue":
        return "write requeue: false"
    if name == "requeue" and not isinstance(value, (bool, type(None))):
        return "it is true or false"
    if name not in USERS:
        return f"sbatch has no option --{name}"
    if isinstance(value, (dict, list)):
        return "an option of sbatch has one value; several are written as a,b"
    if _has_control(str(value)):
        return "a value is one line of text"
    return ""


def _hint(name: str) -> str:
    import difflib

    if name in OURS or name in USERS or name == "no-requeue":
        return ""
    close = difflib.get_close_matches(name, USERS, n=1)
    return f"did you mean {close[0]!r}?" if close else "long names of sbatch's options, without --"


def check(plan: Plan) -> list[str]:
    """List warnings about the job on this compute. Raises PlanError for what the compute does not have."""
    wrong = _problems(plan)
    asked, compute = plan.asked, plan.compute
    known = compute.get("instance_types") or {}
    if asked.instance_type and asked.instance_type not in known:
        there = f"it has {', '.join(sorted(known))}" if known else "it has none"
        hint = f"{there}; instance_types of the compute says what each one is"
        what = f"resources.instance_type: compute {compute.get('name')!r} has no {asked.instance_type!r}"
        wrong.append(Problem(what, path="resources.instance_type", hint=hint))
    most = compute.get("max_instances")
    if most and len(plan.nodes) > int(most):
        what = f"resources.instance_count: {len(plan.nodes)} nodes, and compute {compute.get('name')!r} gives {most}"
        wrong.append(Problem(what, path="resources.instance_count"))
    if wrong:
        raise PlanError(wrong)
    warnings = []
    if asked.priority == "high" and not (compute.get("priorities") or {}).get("high"):
        warnings.append(
            "queue_settings.priority: high is as medium here; Slurm lets a user only wait longer (priorities of the"
            " compute can name a QOS)"
        )
    limit_s = _seconds(_own(plan).get("time") or _time_limit(plan))
    if limit_s is not None and limit_s <= warning_s(plan):
        warnings.append(
            f"Slurm's time limit is {format_seconds(limit_s)}; ranks are told to save "
            f"{format_seconds(warning_s(plan))} before it (30 s and the grace period), for which there is no time: "
            "Slurm ends them when it comes"
        )
    if asked.job_tier == "spot" and not compute.get("spot_partition") and not compute.get("spot_qos"):
        warnings.append(
            "queue_settings.job_tier: spot: the compute names no spot_partition; it may be requeued, no more"
        )
    return warnings


def _seconds(time: str | None) -> float | None:
    """
    Return the seconds of a time as sbatch takes it; None for one without an end, or in another form.

    >>> _seconds("2"), _seconds("1:30"), _seconds("1:00:00"), _seconds("1-2")
    (120.0, 90.0, 3600.0, 93600.0)
    """
    found = _TIME.fullmatch(time or "")
    if not found:
        return None
    days, *parts = found.groups()
    numbers = [float(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:
        numbers = [0.0, *numbers]
    hours, minutes, seconds = [*numbers, 0.0, 0.0][:3]
    return float(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds


def _put(options: dict[str, str | None], name: str, value: Any) -> None:
    if value:
        options[name] = str(value)


def _set(options: dict[str, str | None], name: str, value: str | None) -> None:
    """Set an option that somebody wrote out; of options of which there can be only one, it becomes that one."""
    if name in _MEMORY:
        for other in _MEMORY:
            options.pop(other, None)
    options[name] = value


def _folder_of(log: str) -> str:
    """
    Return the run folder of a log. Raises PlanError for one that cannot stand in a batch script, or in an output's
    name.
    """
    folder = os.path.dirname(os.path.dirname(log))
    if _has_control(folder) or "\\" in folder:
        hint = "folder of the compute, else DRUMLINE_HOME, says where it is"
        raise PlanError(f"Slurm cannot write to {folder!r}, for a character in its name", hint)
    return folder


def _has_control(text: str) -> bool:
    return any(ord(character) < 32 or ord(character) == 127 for character in text)


def variables_of(options: Mapping[str, str | None]) -> tuple[str, ...]:
    """
    List the variables by which sbatch takes these options too; they come before the options of the script.

    Source: sbatch(1), INPUT ENVIRONMENT VARIABLES.
    """
    odd = {"time": "TIMELIMIT", "mem": "MEM_PER_NODE", "switches": "REQ_SWITCH"}
    never = (
        "EXPORT GET_USER_ENV WAIT ARRAY_INX NO_REQUEUE REQUEUE ERROR INPUT CLUSTERS NO_KILL WAIT_ALL_NODES"
    )
    names = never.split()
    for option in options:
        # One of those that exclude each other stands for all of them.
        for one in _MEMORY if option in _MEMORY else (option,):
            names.append(odd.get(one, one.upper().replace("-", "_")))
    return tuple(f"SBATCH_{name}" for name in dict.fromkeys(names))


# The batch script of a job: pure, and what ``drumline plan`` shows.

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]&|*-]*")


def log_of(folder: RunFolder) -> str:
    return os.path.join(folder.system_logs, "slurm.log")


def interpreter_of(plan: Plan) -> str:
    return str(plan.compute.get("python") or sys.executable)


def render(plan: Plan, folder: RunFolder) -> str:
    """Return the script that ``sbatch`` reads. Raises PlanError as ``options.make_options``."""
    lines = ["#!/bin/bash"]
    for name, value in make_options(plan, log_of(folder)).items():
        lines.append(f"#SBATCH --{name}" + ("" if value is None else f"={_quote(value)}"))
    base = os.path.dirname(os.path.dirname(folder.root)) if plan.workspace else folder.root
    lines.append(f"export DRUMLINE_HOME={shlex.quote(base)}")
    if plan.workspace:
        lines.append(f"export DRUMLINE_WORKSPACE={shlex.quote(plan.workspace)}")
    if plan.compute.get("setup"):
        lines += str(plan.compute["setup"]).splitlines()
    program = [interpreter_of(plan), "-P", "-m", "drumline.supervisor", "--batch", folder.path]
    lines.append("exec " + " ".join(map(shlex.quote, program)))
    return "\n".join(lines) + "\n"


def _quote(value: str) -> str:
    """Quote a word for sbatch's lines in its script: double quotes, and a backslash before what would end them."""
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
