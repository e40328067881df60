"""Evidence of when and why a rank ended: its notes, the end of its log, the machine."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from drumline.linux import ports
from drumline.node.diagnostics import exhaustion, failures, last_words

if TYPE_CHECKING:
    from drumline.contract.evidence import ExitEvidence
    from drumline.linux import descendants
    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.diagnostics.exhaustion import OomWatcher

_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


def collect(
    environment: JobEnvironment,
    rank: int,
    ended: descendants.EndedProcess,
    since: float,
    memory: OomWatcher,
    lost: int,
) -> ExitEvidence:
    """
    Return all but ``told_at``. ``since``: when the rank was started; ``lost``: the warm interpreter that was killed
    with it, 0 for none.
    """
    cwd = environment.launch.cwd
    code = os.waitstatus_to_exitcode(ended.status)
    evidence = failures.read_failure(
        environment.notes_of(rank), ended.pid, code, cwd, since, time.monotonic()
    )
    if code == 0:
        return evidence
    if environment.launch.container:
        for one in failures.list_failures(evidence):
            # The user can install nothing for a Python of the image.
            one.pop("python", None)
    log = failures.read_log_end(environment.log_of(rank))
    reported = last_words.parse_report(log)
    evidence = failures.add_killed_worker(evidence, log)
    evidence = failures.add_logged(
        evidence, last_words.find_traceback(log), ended.pid, code, cwd, time.monotonic()
    )
    told = failures.join_messages(evidence)
    said = last_words.find_last_words(log)
    holder = ports.find_port_holder(f"{told} {said}")
    ended_by = {-code if code < 0 else code - 128, *(one["signal"] for one in reported)}
    has_bus_error = signal.SIGBUS in ended_by or "killed by signal: Bus error" in told
    pids = [ended.pid, lost, *(one["pid"] for one in reported), *failures.find_killed_workers(told)]
    is_crash = bool(ended_by & _CRASHES)
    report = last_words.find_report(log, cwd) if code > 0 or is_crash else last_words.EndReport("", None)
    notes = {f"rank {one.rank}": environment.notes_of(one.rank) for one in environment.launch.ranks}
    sender = failures.find_sender(notes, ended.pid, -code, since, time.monotonic(), cwd) if code < 0 else ""
    return evidence._replace(
        sent_by=sender,
        reported=reported,
        said=said,
        gave_up=report.said,
        crash=(failures.parse_crash(log, cwd) if is_crash else None) or report.place,
        peak_bytes=ended.peak_bytes,
        memory_ran_out=memory.ran_out(pids, ended.peak_bytes),
        shared_memory=failures.describe_shared_memory() if has_bus_error else "",
        port_holder=failures.make_printable(holder, 200),
        full_disk=exhaustion.describe_full_disk(failures.list_failures(evidence), cwd),
        warm_process=lost,
    )
