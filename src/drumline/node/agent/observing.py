"""The agent's view of the ranks: output, use and progress while they run, and evidence of why they ended."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from drumline.linux import ports
from drumline.node.agent.first_output import FirstOutputWatcher
from drumline.node.diagnostics import exhaustion, failures, last_words
from drumline.node.diagnostics.exhaustion import OomWatcher
from drumline.node.metrics.log_files import LogTimes
from drumline.node.metrics.sampling import Sampler

if TYPE_CHECKING:
    import select
    from collections.abc import Callable, Mapping, Sequence

    from drumline.contract import messages as m
    from drumline.contract.evidence import ExitEvidence
    from drumline.linux import descendants
    from drumline.linux.inotify import Inotify
    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.agent.inspection import Inspector
    from drumline.node.metrics.step_windows import StepWindows


_IDLE_S = 1.0
_FIRST_LOOK_S = 0.9
"""From the start of the ranks to the first look at their logs: shorter jobs pay nothing for it."""


class Observer:
    """
    Observes the ranks of this node. ``inotify`` is as of FirstOutputWatcher; ``tell`` sends a message to the
    supervisor.
    """

    def __init__(
        self,
        environment: JobEnvironment,
        poller: select.epoll,
        inotify: Inotify | None,
        tell: Callable[[m.FromAgent], object],
    ) -> None:
        self._environment = environment
        self._tell = tell
        self.memory = OomWatcher()
        self.first_output = FirstOutputWatcher(poller, tell, inotify)
        self._sampler: Sampler | None = None
        self._log_times: LogTimes | None = None
        self._log_times_due = float("inf")
        self._steps: StepWindows | None = None
        self._inspector: Inspector | None = None

    def begin_sampling(self) -> None:
        """Sample what the ranks use from now on, if the job wants that."""
        launch = self._environment.launch
        if launch.log_times:
            self._log_times_due = time.monotonic() + _FIRST_LOOK_S
        if launch.samples:
            self._sampler = Sampler(launch.samples.path, launch.samples.attempt, launch.cores)

    def due_in_s(self) -> float:
        """Return for how many seconds the agent may sleep."""
        return min(_IDLE_S, self._sampler.due_in_s()) if self._sampler else _IDLE_S

    def look(self, ready: Sequence[int]) -> None:
        """Look at what is cheap to look at. ``ready``: descriptors. To be called whenever the agent wakes up."""
        self.memory.look()
        self.first_output.look(ready)
        if time.monotonic() >= self._log_times_due:
            self._look_at_logs()

    def _look_at_logs(self) -> None:
        """Note how far logs have come, if it is time for that."""
        if self._log_times is None:
            launch = self._environment.launch
            self._log_times = LogTimes(launch.log_times, {rank.rank: rank.log for rank in launch.ranks})
        self._log_times.look()
        self._look_at_steps()

    def _look_at_steps(self, *, last: bool = False) -> None:
        """Note what steps the ranks have made; the first time that there is one, load what that takes."""
        environment = self._environment
        if self._steps is None:
            if not (environment.steps and os.path.isdir(environment.steps)):
                return
            from drumline.node.metrics.step_windows import StepWindows

            ranks = [rank.rank for rank in environment.launch.ranks]
            self._steps = StepWindows(environment.launch.steps, environment.steps, ranks)
        self._steps.look(last=last)

    def sample(self, ranks: Mapping[int, int]) -> None:
        """Sample the use of the ranks, given by process id. To be called when there is nothing else to do."""
        if self._sampler:
            self._sampler.work(ranks)

    def note_end(self, rank: int, ended: descendants.EndedProcess, at: float) -> None:
        """Look at a rank for the last time. To be called before its end is told."""
        self.first_output.note_end(rank, at)
        if self._sampler:
            self._sampler.note_exit(ended.pid, rank, ended.cpu_s, ended.peak_bytes)

    def forget_gpus(self) -> None:
        """End the process that asks the GPUs."""
        if self._sampler:
            self._sampler.forget_gpus()

    def end_sampling(self) -> None:
        if self._log_times:
            self._log_times.close()
            self._log_times = None
        self._log_times_due = float("inf")
        self._look_at_steps(last=True)
        if self._steps:
            self._steps.close()
            self._steps = None
        if self._sampler:
            self._sampler.forget_gpus()
            self._sampler.finish()
            self._sampler = None

    def answer(
        self,
        question: m.PollProgress | m.InspectRanks | m.ListConnections,
        ranks: Mapping[int, int],
        children: Sequence[int],
    ) -> None:
        """
        Tell how far ranks have come, what they are doing, or which connections they have. ``ranks``: by process id;
        ``children``: all processes right below the agent.
        """
        # This takes a while to load, and a launch has no need of it.
        from drumline.node.agent.inspection import Inspector

        self._inspector = self._inspector or Inspector(self._environment)
        sampler = self._sampler.helper_pid if self._sampler else 0
        others = [pid for pid in children if pid not in ranks and pid != sampler]
        self._tell(self._inspector.answer(question, ranks, others))

    def describe(self, pids: Sequence[int]) -> list[m.ProcessState]:
        """Return what the kernel says of those processes."""
        if not pids:
            return []
        from drumline.node.diagnostics import stacks

        return [stacks.read_process_state(pid) for pid in pids]


# evidence of an end


_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


def collect_evidence(
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
    code = ended.exit_code
    evidence = failures.read_failure(
        environment.notes_of(rank), ended.pid, code, cwd, since, time.monotonic()
    )
    notes = {f"rank {task.rank}": environment.notes_of(task.rank) for task in environment.launch.ranks}
    now = time.monotonic()
    if code == 0:
        if evidence.terminated_at is None:
            return evidence
        sender = failures.find_sender(notes, ended.pid, signal.SIGTERM, since, now, cwd)
        is_own = (
            sender.startswith(("sent by itself", f"sent by rank {rank} ")) or sender == f"sent by rank {rank}"
        )
        if is_own:
            return evidence._replace(terminated_at=None)
        return evidence._replace(facts={"sent_by": sender} if sender else None)
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
    where_known = {
        "gave_up": report.said,
        "crash": (failures.parse_crash(log, cwd) if is_crash else None) or report.place,
        "shared_memory": failures.describe_shared_memory() if has_bus_error else "",
        "sent_by": failures.find_sender(notes, ended.pid, -code, since, now, cwd) if code < 0 else "",
    }
    facts: Any = {
        "said": said,
        "peak_bytes": ended.peak_bytes,
        "memory_ran_out": memory.ran_out(pids, ended.peak_bytes),
        "port_holder": failures.make_printable(holder, 200),
        "full_disk": exhaustion.describe_full_disk(failures.list_failures(evidence), cwd),
        "warm_process": lost,
        **{name: fact for name, fact in where_known.items() if fact},
    }
    return evidence._replace(reported=reported, facts=facts)
