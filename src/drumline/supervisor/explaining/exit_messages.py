"""The messages about the end of a rank, for a person at 2 a.m."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

from drumline.contract.record import compile_late
from drumline.contract.words import format_size
from drumline.node.diagnostics.failures import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.events import RankExited
    from drumline.contract.evidence import RecordedEvidence, RecordedFailure, ReportedProcess
    from drumline.contract.messages import CommandEnded, LauncherExited

_MEANINGS = {
    "SIGKILL": "killed from outside; nothing says that memory had run out",
    "SIGTERM": "sent from outside, not by drumline",
    "SIGSEGV": "it touched memory that is not its own",
    "SIGBUS": "often a full /dev/shm",
    "SIGABRT": "it gave up by itself, often a failed check in native code",
    "SIGFPE": "an arithmetic error in native code",
    "SIGILL": "an instruction that this processor does not have",
    "SIGXCPU": "its CPU time limit was reached",
    "SIGXFSZ": "its file size limit was reached",
}


def name_rank(label: str, node: int) -> str:
    return f"rank {label} on node {node}"


def add_host(reason: str, hosts: Mapping[int, str]) -> str:
    """
    Add the machine's name after the first node that is named, where machines have names that tell them apart.

    >>> add_host("rank 3 on node 1 failed first, 2 s in", {1: "gpu-17"})
    'rank 3 on node 1 (gpu-17) failed first, 2 s in'
    """
    found = re.search(r"\bnode (\d+)\b", reason)
    host = hosts.get(int(found[1]), "") if found else ""
    return f"{reason[: found.end()]} ({host}){reason[found.end() :]}" if found and host else reason


def describe_failure(label: str, exit_: RankExited) -> str:
    """Describe how a rank ended, without what came of it: ``rank 3 on node 1: exit code 1``."""
    if exit_.error:
        return f"{name_rank(label, exit_.node)} did not start: {exit_.error}"
    return f"{name_rank(label, exit_.node)} failed: {describe_cause(exit_)}"


def describe_termination(exit_: RankExited) -> str:
    """Return `` after SIGTERM (sent by rank 0)`` for a rank that ended with 0; else nothing."""
    evidence = exit_.evidence or {}
    sender = evidence.get("sent_by") or "it is not known who sent it"
    return f" after SIGTERM ({sender})" if "terminated" in evidence else ""


def describe_cause(exit_: RankExited) -> str:
    """
    Describe what ended a rank: the exception and its place, else the signal or exit code and what it means.

    ``ValueError: bad batch (train.py:88, in step)``
    """
    evidence = exit_.evidence or {}
    failure = evidence.get("failure")
    if failure and failure.get("inner"):
        return _describe_inner_process(failure["inner"], evidence)
    if failure:
        message = f"{failure['type']}: {failure['message']}" if failure["message"] else failure["type"]
        place = format_place(failure)
        if "inner_rank" in failure:
            place += f", in rank {failure['inner_rank']} of its launcher"
        said = _name_chosen_code(exit_, failure) or message
        return _join_clauses(
            said + place,
            _explain_killed_worker(message, evidence),
            evidence.get("full_disk", ""),
            evidence.get("port_holder", ""),
            _name_interpreter(failure),
            *failure.get("circumstances", ()),
            _hint(message),
        )
    if exit_.signal and evidence.get("warm_process"):
        why = "by the kernel, for memory had run out" if evidence.get("memory_ran_out") else "from outside"
        process = evidence["warm_process"]
        # A rank ends with the process that had forked it.
        return (
            f"killed with process {process}, the warm interpreter that had forked it, which was killed {why}"
        )
    if exit_.signal:
        return f"killed by {describe_signal(exit_.signal, evidence)}"
    code = exit_.code or 0
    if 128 < code < 128 + 65:
        return f"exit code {code}: a command in it was killed by {describe_signal(code - 128, evidence)}"
    words = _describe_code(code, evidence)
    return _join_clauses(words, evidence.get("port_holder", ""), _hint(words))


def _join_clauses(*clauses: str) -> str:
    return "; ".join(clause for clause in clauses if clause)


def _describe_code(code: int, evidence: RecordedEvidence) -> str:
    """Describe an exit code with what the log reports, or with the line of its end that says most."""
    said = str(evidence.get("said", ""))
    if evidence.get("gave_up"):
        return f"exit code {code}: {evidence['gave_up']}{format_place(evidence.get('crash') or {})}"
    if code in (126, 127) or (code == 2 and _PYTHONS_OWN.search(said)):
        meaning = {126: "a command could not be executed", 127: "a command was not found"}.get(code, "")
        return f"exit code {code}: {said or meaning}"
    return f'exit code {code}, after it said "{shorten(said, _MOST_SAID)}"' if said else f"exit code {code}"


_MOST_SAID = 120


def _name_chosen_code(exit_: RankExited, failure: RecordedFailure) -> str:
    """Describe an end with a code that the program chose: by its own words, or by the exception that it handled."""
    if not failure.get("handled") or not exit_.code:
        return ""
    if failure["type"] == "SystemExit":
        return f"exit code {exit_.code}: {failure['message']}"
    return f"exit code {exit_.code}, after {failure['type']}: {failure['message']}".rstrip(": ")


_HINTS = (
    (
        compile_late(r"'[^']*\\r'|\\r: |\^M: bad interpreter"),
        "the script has Windows line ends (CRLF); save it with those of Unix",
    ),
    (
        compile_late(r"cannot execute: required file not found|bad interpreter: No such file"),
        "the program in its first line is not there, or the script has Windows line ends (CRLF)",
    ),
    (
        compile_late(
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected"
            r"|^KeyError: '(?:RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT)'"
        ),
        "a job has this variable only with a distribution: add `distribution: {type: pytorch}`",
    ),
)
"""What to do about errors that do not say it themselves."""


def _hint(cause: str) -> str:
    return next((hint for pattern, hint in _HINTS if pattern.search(cause)), "")


_PYTHONS_OWN = compile_late(
    r"python[\d.]*: can't open file|: No module named |^usage: |error: "
    r"|: line \d+: (?:syntax error|unexpected EOF)|: \d+: Syntax error"
)
"""And the shell's own: with code 2 the last line is the reason."""


def format_place(found: Mapping[str, Any]) -> str:
    """Return `` (train.py:88, in step)``; empty when there is no place."""
    if not found.get("file"):
        return ""
    inside = found.get("function")
    return f" ({found['file']}:{found['line']}{f', in {inside}' if inside else ''})"


def _explain_killed_worker(message: str, evidence: RecordedEvidence) -> str:
    """Explain why a process of PyTorch's loader was killed: the loader says that it was, and not why."""
    if "is killed by signal: Bus error" in message and evidence.get("shared_memory"):
        return evidence["shared_memory"]
    if "is killed by signal: Killed" not in message:
        return ""
    if evidence.get("memory_ran_out"):
        return "memory had run out"
    return "often because memory has run out, but nothing says so here"


def _name_interpreter(failure: RecordedFailure) -> str:
    """Say which Python has no such module, and how to give it one."""
    python = failure.get("python")
    if not python:
        return ""
    if _BUILT.search(python):
        return f"the Python is {python}: add the package to the job's environment"
    return f"the Python is {python}: install the package there, or name another Python with --python"


_BUILT = compile_late(r"/environments/[0-9a-f]{32}/")
"""Finds an environment that Drumline has built."""


def _describe_inner_process(process: ReportedProcess, evidence: RecordedEvidence) -> str:
    """Describe the end of a process that a launcher inside the rank started, and that left no exception."""
    name = f"rank {process['rank']} of its launcher"
    if process["signal"]:
        return f"{name} was killed by {describe_signal(process['signal'], {**evidence, 'peak_bytes': 0})}"
    return f"{name} ended with {_describe_code(process['code'] or 0, evidence)}"


def list_survivors(processes: Sequence[Mapping[str, Any]]) -> str:
    """List survivors: ``process 71 (python, state D in nfs_wait_bit_killable)``."""
    said = []
    for process in processes:
        where = f" in {process['waits_in']}" if process["waits_in"] not in ("", "0") else ""
        said.append(f"process {process['pid']} ({process['name']}, state {process['state']}{where})")
    return ", ".join(said)


def describe_completion(awaited: Sequence[str], stopped: Sequence[str]) -> str:
    """
    Describe which ranks ended by themselves and which were then ended by us, which is no failure; both by label.

    >>> describe_completion(["0", "1", "2", "3"], [])
    'all 4 ranks ended with exit code 0'
    >>> describe_completion(["chief"], ["0", "1", "ps0"])
    'the chief ended with exit code 0; the 2 workers and the parameter server were then stopped'
    """
    said = f"{_name_awaited(awaited, stopped)} ended with exit code 0"
    if not stopped:
        return said
    verb = "was" if len(stopped) == 1 else "were"
    return f"{said}; {_list_roles(stopped)} {verb} then stopped"


def _name_awaited(awaited: Sequence[str], stopped: Sequence[str]) -> str:
    if any(not label.isdigit() for label in awaited):
        return _list_roles(sorted(awaited, key=str.isdigit))
    roles = {_name_role(label) for label in stopped}
    what = "worker" if roles - {"Ray node"} else "rank"
    return f"its only {what}" if len(awaited) == 1 else f"all {len(awaited)} {what}s"


def _list_roles(labels: Sequence[str]) -> str:
    """List the roles of labels in their order: ``the chief and the 2 workers``."""
    roles = [_name_role(label) for label in labels]
    said = []
    for role in dict.fromkeys(roles):
        count = roles.count(role)
        said.append(f"the {role}" if count == 1 else f"the {count} {role}s")
    return " and ".join((", ".join(said[:-1]), said[-1])) if len(said) > 1 else said[0]


def _name_role(label: str) -> str:
    """Return the word by which people call a rank of that label."""
    role = label.rstrip("0123456789")
    return {"": "worker", "ps": "parameter server", "ray": "Ray node"}.get(role, role)


def describe_signal(number: int, evidence: RecordedEvidence | None = None) -> str:
    """Describe a signal and what was seen besides: ``signal 9 (SIGKILL: killed from outside ...)``."""
    evidence = evidence or {}
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    meaning = _MEANINGS.get(name, "")
    if name == "SIGKILL" and evidence.get("memory_ran_out"):
        peak = f" at {format_size(evidence['peak_bytes'])}" if evidence.get("peak_bytes") else ""
        meaning = f"the kernel killed it{peak}, for memory had run out"
    if name == "SIGABRT" and evidence.get("gave_up"):
        meaning = str(evidence["gave_up"])
    if evidence.get("shared_memory"):
        meaning = str(evidence["shared_memory"])
    meaning = str(evidence.get("sent_by") or meaning)
    crash = evidence.get("crash")
    return f"signal {number} ({name}{': ' if meaning else ''}{meaning})" + (
        format_place(crash) if crash else ""
    )


def describe_program_end(what: str, how: CommandEnded | LauncherExited) -> str:
    """Return how a program that is no rank ended: ``mpirun exited with code 213``."""
    if how.error:
        return f"{what} did not start: {how.error}"
    return (
        f"{what} was killed by {describe_signal(how.signal)}"
        if how.signal
        else f"{what} exited with code {how.code}"
    )


def quote_launcher(said: str, log: str) -> str:
    """Quote how a launcher's explanation begins, and where all of it is; empty when it said nothing."""
    return f" ({said} ... see {log})" if said else ""
