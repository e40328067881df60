"""The same job at several sizes, one after the other: each is stopped when its steps are measured."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import WORKSPACE, current_workspace
from drumline.contract.record import NamedTuple
from drumline.contract.steps import DETAIL
from drumline.contract.words import format_count
from drumline.control.driver import tune_trials
from drumline.control.facts.steps import read_steps
from drumline.control.jobs import ending
from drumline.control.jobs.ending import wait_for_end
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.measure.measured_sizes import NodePair, RankSteps, SizeRun
from drumline.control.measure.refusals import FEWEST_STEPS, Emulation, MemoryUse, ProcessorUse
from drumline.control.submission import planning
from drumline.control.submission.run_folder import ISOLATION
from drumline.control.submission.submit import submit
from drumline.engines.engine_table import is_elsewhere
from drumline.plan.search.tuning import count_warm_steps, find_number, list_measured_settings
from drumline.spec import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome
    from drumline.contract.plan import Plan
    from drumline.control.facts.steps import StepHistory


WARM_STEPS = 10
"""Not measured, at least: PyTorch chooses its buckets anew after the first step, and caches fill."""

_POLL_S = 0.25
_POLL_ELSEWHERE_S = 2.0
"""The same of a cluster, whose scheduler is asked too."""

_PATIENCE_S = 60.0
"""After which it is said that no step has come, and ranks without steps are not waited for while others make some."""

_FARTHEST = 1_000_000
"""The most nodes of a prediction."""

_BY_MEASURED = "drumline scale: its steps are measured"
_BY_HANG = "drumline scale: it hangs"
_BY_INTERRUPT = "drumline scale: it was interrupted"


class ScaleRequest(NamedTuple):
    """What to measure. ``nodes``: ascending. ``procs``: of each node; None: the job's own. ``steps``: of each size."""

    nodes: tuple[int, ...]
    procs: int | None = None
    steps: int = 60


def plan_sizes(job: Any, request: ScaleRequest) -> list[Plan]:
    """
    Return the plan of each size; nothing is created, and the job does not change.

    Raises SpecError, PlanError, UsageError.
    """
    if job.type != "command":
        raise UsageError(
            f"a {job.type} job cannot be measured: it has jobs, and those have ranks", "measure a step"
        )
    plans = [planning.plan(_resize(job, request, nodes)) for nodes in request.nodes]
    tune_trials.check_followed(plans[0])
    return plans


def _resize(job: Any, request: ScaleRequest, nodes: int) -> Any:
    """Return a copy of that size. Raises UsageError for processes of a job that has no number of them."""
    job = copy.deepcopy(job)
    job.name = None
    job.set_resources(instance_count=nodes)
    distribution = job.distribution
    if request.procs is not None:
        if not hasattr(distribution, "process_count_per_instance"):
            kind = distribution.type if distribution else "plain"
            raise UsageError(f"--procs needs a job with the distribution pytorch or mpi; this one is {kind}")
        distribution.process_count_per_instance = request.procs
    if getattr(distribution, "worker_count", None) is not None:
        distribution.worker_count = nodes
    job.drumline = list_measured_settings(job.drumline or {})
    job.environment_variables = {**(job.environment_variables or {}), DETAIL: "1"}
    return job


def find_emulation(job: Any, plans: Sequence[Plan], tell: Callable[[str], None]) -> Emulation | None:
    """
    Return what is known of the links that this machine plays, None for real ones. Runs a job that does nothing, whose
    checks measure what the nodes reach without limits.
    """
    largest = plans[-1]
    if largest.compute.get("isolation") != "namespace":
        return None
    from drumline.engines.local.isolation.isolation_settings import read_link

    rate = read_link(largest.compute).rate_bits
    count = len(largest.nodes)
    if not rate or count < 2:
        return Emulation()
    job = copy.deepcopy(job)
    job.name = None
    job.command = "true"
    job.set_resources(instance_count=count)
    job.properties = {**(job.properties or {}), ISOLATION: json.dumps({"isolation": "namespace", "link": {}})}
    job.display_name = "the links of this machine without limits"
    with JobGuard() as guard:
        folder = _start(job, guard)
        tell(f"{format_count(count, 'node')} without limits of their links: job {folder.name}")
        _wait(folder, tell)
    rates = sorted(pair.bytes_per_s for pair in list_pairs(read_outcome(folder)))
    # Half of the nodes send at the same time, each to one of the others.
    capacity = rates[len(rates) // 2] * (count // 2) if rates else 0.0
    return Emulation(rate / 8, capacity)


def run_sizes(
    job: Any, request: ScaleRequest, plans: Sequence[Plan], tell: Callable[[str], None]
) -> Iterator[SizeRun]:
    """
    Run the job at each size, and yield it once it is measured. Blocks; an interrupt cancels the job that runs. ``tell``
    takes a line on progress.

    Raises as ``submit`` before a size was measured; then one that cannot be submitted is yielded with the reason.
    """
    has_measured = False
    memory = MemoryUse()
    warm_steps = count_warm_steps(find_number("workers", job)[1], WARM_STEPS)
    with JobGuard() as guard:
        for number, (nodes, plan) in enumerate(zip(request.nodes, plans, strict=True), start=1):
            prefix = f"{number} of {len(plans)}: {format_count(nodes, 'node')}: "
            ranks = _count_ranks(plan)
            if plan.engine == "local" and (lack := memory.explain_lack(ranks)):
                tell(prefix + lack)
                yield SizeRun(nodes, ranks, "", why_not=lack)
                continue
            try:
                folder = _start(_resize(job, request, nodes), guard)
            except DrumlineError as error:
                if not has_measured:
                    raise
                why_not = f"not run: {error.message}"
                tell(prefix + why_not)
                yield SizeRun(nodes, ranks, "", why_not=why_not)
                continue
            tell(f"{prefix}job {folder.name}")
            run = _measure(folder, plan, request.steps, tell, warm_steps)
            memory.add(folder)
            count = min((len(one.step_s) for one in run.steps), default=0)
            has_measured |= count > 0
            tell(prefix + (run.why_not or f"{count} steps measured"))
            yield run


def _start(job: Any, guard: JobGuard) -> RunFolder:
    """Submit a job that ends with this process. Raises as ``submit``."""
    job.name = paths.random_name()
    guard.watch(job.name)
    return submit(job).folder


def _measure(
    folder: RunFolder, plan: Plan, steps: int, tell: Callable[[str], None], warm_steps: int = WARM_STEPS
) -> SizeRun:
    """Follow a job until its steps are measured, and stop it; or until it ends, or hangs."""
    ranks, wanted = _count_ranks(plan), warm_steps + steps
    pause_s = _POLL_ELSEWHERE_S if is_elsewhere(plan.engine) else _POLL_S
    patience = missing_until = time.monotonic() + _PATIENCE_S
    by = _BY_INTERRUPT
    queue = _Queue(tell)
    use = ProcessorUse()
    try:
        while True:
            now = time.monotonic()
            outcome = read_outcome(folder)
            history = read_history(folder, outcome)
            done = count_steps(history, ranks)
            if done < warm_steps:
                use.begin()
            seen = count_steps(history, 1)
            if seen < wanted:
                missing_until = now + _PATIENCE_S
            if outcome.is_final or outcome.hang or done >= wanted or now > missing_until:
                by = _BY_HANG if outcome.hang else _BY_MEASURED
                break
            if queue.look(folder, outcome):
                patience = now + _PATIENCE_S
            if not seen and now > patience:
                tell(f"job {folder.name} has made no step of an optimizer yet; Ctrl-C ends it")
                patience += _PATIENCE_S
            time.sleep(max(pause_s, tune_trials.LEISURE * (time.monotonic() - now)))
        share = use.find_share() if done > warm_steps else None
    finally:
        use.close()
        if not read_outcome(folder).is_final:
            ending.cancel(folder.name, at_once=True, by=by)
        wait_for_end(folder)
    return _describe(folder, plan, outcome, steps, share, warm_steps)


def _count_ranks(plan: Plan) -> int:
    return sum(len(node.ranks) for node in plan.nodes)


def _describe(
    folder: RunFolder, plan: Plan, outcome: Outcome, steps: int, share: float | None, warm_steps: int
) -> SizeRun:
    """``outcome``: before the job was stopped, if it was."""
    history = read_history(folder, outcome)
    ranks = list_ranks(history, warm_steps, steps)
    failed = outcome.is_final and outcome.status not in (status.COMPLETED, status.CANCELED)
    why_not = f"job {folder.name} failed: {outcome.reason}" if failed else ""
    made = max((len(history.list_seconds(one, "step")) for one in history.ranks), default=0)
    if not ranks and not why_not and not outcome.hang:
        why_not = _explain_absence(folder.name, made, warm_steps)
    elif outcome.is_final and not why_not and made < warm_steps + FEWEST_STEPS:
        why_not = f"job {folder.name} ended by itself after {made} steps, and {warm_steps + FEWEST_STEPS} are needed"
    return SizeRun(
        len(plan.nodes),
        _count_ranks(plan),
        folder.name,
        tuple(ranks),
        history.find_bucket_bytes(),
        tuple(list_pairs(outcome)),
        share if plan.engine == "local" and len(plan.nodes) > 1 else None,
        name_sources(history),
        outcome.hang,
        why_not,
        history.find_latest_rank(),
    )


def _explain_absence(job: str, made: int, warm_steps: int) -> str:
    """``made``: how many steps a rank of it made, which are too few."""
    if made:
        steps = format_count(made, "step")
        return f"job {job} ended after {steps}, and the first {warm_steps} are not measured"
    return f"no steps were seen in job {job}: its ranks make none with an optimizer of PyTorch"


class _Queue:
    """Tells why a job waits, each time that this changes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told = ""

    def look(self, folder: RunFolder, outcome: Outcome) -> bool:
        """Return whether the job waits."""
        reason = outcome.reason if outcome.status in (status.NOT_STARTED, status.QUEUED) else ""
        if reason and reason != self._told:
            self._tell(f"job {folder.name} is in line: {reason}")
            self._told = reason
        return bool(reason)


def _wait(folder: RunFolder, tell: Callable[[str], None]) -> None:
    """Wait for the end of a job that needs no steps; an interrupt cancels it."""
    queue = _Queue(tell)
    try:
        while not wait_for_end(folder, time.monotonic() + _POLL_ELSEWHERE_S):
            queue.look(folder, read_outcome(folder))
    except KeyboardInterrupt:
        ending.cancel(folder.name, at_once=True, by=_BY_INTERRUPT)
        wait_for_end(folder)
        raise


def check_request(request: ScaleRequest, to: int, fewest_steps: int) -> None:
    """Raise UsageError for a request that cannot be measured."""
    if len(request.nodes) != len(set(request.nodes)) or min(request.nodes) < 1:
        raise UsageError("--nodes: numbers of nodes from 1 on, each once", "--nodes 1,2,4")
    tune_trials.check_count(request.steps, fewest_steps, "a median")
    if request.procs is not None and request.procs < 1:
        raise UsageError("--procs must be 1 or more")
    if to < max(request.nodes):
        raise UsageError(f"--to must be {max(request.nodes)} or more, which is measured")
    if to > _FARTHEST:
        raise UsageError(f"--to must be {_FARTHEST} or less")


# figures of a run


_PHASES = ("step", "input", "forward", "backward", "comm", "overlap")


def read_history(folder: RunFolder, outcome: Outcome) -> StepHistory:
    """Return the steps of the job's newest attempt."""
    return read_steps(folder.path, len(outcome.attempts))


def count_steps(history: StepHistory, ranks: int) -> int:
    """Return how many steps are known of each rank that makes some; 0 while those are fewer than ``ranks``."""
    counts = [len(history.list_seconds(rank, "step")) for rank in history.ranks]
    return min(counts, default=0) if len(counts) >= ranks else 0


def list_ranks(history: StepHistory, first: int, count: int) -> list[RankSteps]:
    """Return up to ``count`` steps of each rank, after the ``first`` ones."""
    found = []
    for rank in history.ranks:
        columns = [_fill(history.list_seconds(rank, phase)[first : first + count]) for phase in _PHASES]
        if columns[0]:
            found.append(RankSteps(rank, history.nodes[rank], *columns))
    return found


def _fill(values: Sequence[float | None]) -> tuple[float, ...]:
    """Return the values, with the median in the place of those that are not known; empty where most are not."""
    known = [one for one in values if one is not None]
    if 2 * len(known) < len(values) or not known:
        return ()
    middle = statistics.median(known)
    return tuple(middle if one is None else one for one in values)


def name_sources(history: StepHistory) -> str:
    """Return where the figures come from, in a few words."""
    found = [source for windows in history.ranks.values() for one in windows for source in one.sources]
    return ", ".join(dict.fromkeys(found))


def list_pairs(outcome: Outcome) -> list[NodePair]:
    """List the links that the checks before the job have measured."""
    links = outcome.preflight.detail.get("links") or () if outcome.preflight else ()
    return [
        NodePair(one["from"], one["to"], float(one["bytes_per_s"]), float(one.get("seconds") or 0.0))
        for one in links
    ]


# the guard, which cancels the job of a measurement whose command was killed


_BY = "drumline scale (its command was ended)"


class JobGuard:
    """Cancels the job that it was told of last, if that has not ended when this process leaves or is killed."""

    def __enter__(self) -> JobGuard:
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-P", "-m", "drumline.control.measure.scale_run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, WORKSPACE: current_workspace()},
            # What ends the command's whole group must not end this.
            start_new_session=True,
        )
        return self

    def watch(self, name: str) -> None:
        """Watch over the job of that name, which may not exist yet, and over none before it."""
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None, "a pipe"
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Read names of jobs until there are no more, and cancel the last one."""
    name = ""
    for line in sys.stdin:
        name = line.strip()
    if name:
        with contextlib.suppress(DrumlineError, OSError):
            ending.cancel(name, at_once=True, by=_BY)


if __name__ == "__main__":
    main()
