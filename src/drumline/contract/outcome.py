"""The outcome of a job, as one fold over its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status

if TYPE_CHECKING:
    from collections.abc import Iterable


class RankOutcome:
    def __init__(self, rank: int, node: int, pid: int | None = None, started: float | None = None) -> None:
        self.rank = rank
        self.node = node
        self.pid = pid
        self.started = started
        self.ended: float | None = None
        self.lost: float | None = None
        """When its node was lost, or the job ended, before anyone saw its end."""
        self.code: int | None = None
        self.signal: int | None = None
        self.error = ""
        self.collectives: int | None = None
        """Of all ranks of its world, that it has entered, of a rank that left in order; None: not known."""
        self.world = 0
        self.is_stopped = False
        """Whether it ended with 0 after a SIGTERM of which nobody knows the sender."""

    @property
    def state(self) -> str:
        """Return ``running``, ``lost``, ``done``, or what ended it."""
        if self.ended is None:
            return "running" if self.lost is None else "lost"
        if self.signal:
            return f"signal {self.signal}"
        return "done" if self.code == 0 else f"exit {self.code}"


class StepOutcome:
    """A step of a pipeline, or a trial of a sweep. Times are as in Outcome."""

    def __init__(self, step: str, job: str, started: float, detail: dict[str, Any] | None) -> None:
        self.step = step
        self.job = job
        self.started: float | None = started
        self.ended: float | None = None
        self.status = ""
        """One of status.TERMINAL, or Skipped; empty while it is under way."""
        self.reason = ""
        self.detail: dict[str, Any] = dict(detail or {})

    def run_seconds(self, own: Outcome | None, now: float) -> float | None:
        """Return how long the ranks of its job have run; None without any. ``own``: the job's, until its end."""
        if own is not None:
            return own.run_seconds(now)
        if "ran_s" in self.detail:
            known = self.detail["ran_s"]
            return float(known) if isinstance(known, (int, float)) else None
        # An older driver did not write it down.
        return None if self.started is None or self.ended is None else max(0.0, self.ended - self.started)


class DrillOutcome:
    """A drill of a job. Times are as in Outcome; ``reason``: why it ended, or was refused."""

    def __init__(self, drill: str, kind: str, node: int | None = None, rank: int | None = None) -> None:
        self.drill = drill
        self.kind = kind
        self.node = node
        self.rank = rank
        self.by = ""
        self.attempt: int | None = None
        """In which it began; None: it did not."""
        self.settings: dict[str, Any] = {}
        self.began: float | None = None
        self.ended: float | None = None
        self.reason = ""


class ExperimentOutcome:
    """An experiment of DeepSpeed's autotuner. Times are as in Outcome; ``status``: empty while it is under way."""

    def __init__(self, experiment: str, number: int | None, began: float | None) -> None:
        self.experiment = experiment
        self.number = number
        self.began = began
        self.ended: float | None = None
        self.status = ""
        self.reason = ""


class Outcome:
    """Times are seconds since 1970, None while that has not happened."""

    def __init__(self) -> None:
        self.status = status.NOT_STARTED
        self.reason = ""
        """Why it waits, or in one sentence how it ended."""
        self.exit_code: int | None = None
        self.failed_rank: int | None = None
        self.failed_node: int | None = None
        self.verdict: dict[str, Any] | None = None
        """Of a rank that failed: ``contract.events.JobEnded``."""
        self.user = ""
        self.engine = ""
        self.kind = "command"
        """Or pipeline, or sweep."""
        self.steps: dict[str, StepOutcome] = {}
        self.created: float | None = None
        self.started: float | None = None
        """When the ranks were started."""
        self.ended: float | None = None
        self.hang = ""
        """Since when no rank goes on, and where they are; empty when they do."""
        self.archived = False
        self.edits: dict[str, Any] = {}
        self.pruned: dict[str, float] = {}
        """Which parts of its run folder were removed, and when."""
        self.attempts: list[e.AttemptEnded] = []
        """Those that failed or were preempted, and were followed by another."""
        self.began: dict[int, float] = {}
        """When each attempt began, by its number."""
        self.warnings: list[e.JobWarned] = []
        """Of the latest attempt."""
        self.drills: dict[str, DrillOutcome] = {}
        self.experiments: dict[str, ExperimentOutcome] = {}
        """Of all attempts; one of a later attempt takes the place of one of the same name."""
        self.ranks: dict[int, RankOutcome] = {}
        """Of the latest attempt."""
        self.agents: dict[int, int] = {}
        """Node to the process id of its agent."""
        self.hosts: dict[int, str] = {}
        """Node to the name of its machine, where that is not always the same."""
        self.network: e.NetworkChosen | None = None
        self.preflight: e.PreflightEnded | None = None
        """The checks of the nodes of the latest attempt that had some."""
        self.registered: dict[str, e.OutputRegistered] = {}
        """By output, which assets they have become."""
        self.transfers: dict[str, e.TransferProgress | e.Transferred] = {}
        """By input or output, what was last heard of its data on its way."""
        self.environment: e.EnvironmentBuilding | e.EnvironmentReady | None = None
        self.services: dict[str, e.ServiceStarted] = {}
        """By name; of several nodes ``name@node``, but for node 0."""
        self.containment = ""
        """The weakest of its agents': as in AgentJoined; empty before there is one."""

    @property
    def is_final(self) -> bool:
        return self.status in status.TERMINAL

    def run_seconds(self, now: float) -> float | None:
        """Return how long its ranks have run until ``now``; None if they never began."""
        return None if self.started is None else max(0.0, (self.ended or now) - self.started)

    def list_failed_experiments(self) -> list[str]:
        """List a sentence about each that failed: ``experiment z1 failed: RuntimeError: out of memory``."""
        failed = [one for one in self.experiments.values() if one.status == status.FAILED]
        return [f"experiment {one.experiment} failed: {one.reason}" for one in failed]

    @property
    def why(self) -> str:
        """Return why it waits, that it hangs, or how it ended."""
        return f"hangs: {self.hang}" if self.hang and not self.is_final else self.reason


_STATUS_AFTER: dict[type[e.Event], str] = {
    e.JobSubmitted: status.NOT_STARTED,
    e.JobWaiting: status.QUEUED,
    e.JobPreparing: status.PREPARING,
    e.JobStarting: status.STARTING,
    e.JobRunning: status.RUNNING,
    e.CancelRequested: status.CANCEL_REQUESTED,
    e.JobFinalizing: status.FINALIZING,
}


_BEGINS = (e.JobStarting, e.AgentJoined, e.RankStarted)


def fold(events: Iterable[e.Event], before: Outcome | None = None) -> Outcome:
    """
    Return the outcome after these events, in the order of the file. The first terminal status stays.

    ``before``: the outcome of the events before these, which is changed.
    """
    outcome = before or Outcome()
    for event in events:
        if isinstance(event, _BEGINS):
            outcome.began.setdefault(len(outcome.attempts), event.time)
        _apply(outcome, event)
    return outcome


def _apply(outcome: Outcome, event: e.Event) -> None:
    after = _STATUS_AFTER.get(type(event))
    if after and not outcome.is_final:
        outcome.status = after
        outcome.reason = event.reason if isinstance(event, e.JobWaiting) else ""
    if isinstance(event, e.JobSubmitted):
        outcome.created, outcome.user, outcome.engine = event.time, event.user, event.engine
        outcome.kind = event.kind
    elif isinstance(event, e.AgentJoined):
        outcome.agents[event.node] = event.pid
        if event.host:
            outcome.hosts[event.node] = event.host
        if outcome.containment in ("", "cgroup"):
            outcome.containment = event.containment
    elif isinstance(event, e.NetworkChosen):
        outcome.network = event
    elif isinstance(event, e.RankStarted):
        outcome.started = _earliest(outcome.started, event.time)
        outcome.ranks[event.rank] = RankOutcome(event.rank, event.node, event.pid, event.time)
    elif isinstance(event, e.RankExited):
        rank = outcome.ranks.setdefault(event.rank, RankOutcome(event.rank, event.node))
        rank.ended, rank.code, rank.signal, rank.error = event.time, event.code, event.signal, event.error
        evidence = event.evidence or {}
        rank.collectives, rank.world = evidence.get("collectives"), evidence.get("world", 0)
        rank.is_stopped = "terminated" in evidence and "sent_by" not in evidence
    elif isinstance(event, e.JobEnded) and not outcome.is_final:
        outcome.status, outcome.reason, outcome.exit_code = event.status, event.reason, event.exit_code
        outcome.failed_rank, outcome.failed_node, outcome.ended = event.rank, event.node, event.time
        outcome.verdict = event.verdict
        _lose_ranks(outcome.ranks.values(), event.time)
    else:
        _apply_around(outcome, event)
        _apply_to_attempt(outcome, event)
        _apply_to_step(outcome, event)
        _apply_drill(outcome, event)
        _apply_experiment(outcome, event)
        _apply_users(outcome, event)


def _earliest(known: float | None, time: float) -> float:
    """Return the earlier time: events are in the order in which they arrived, not in that of their times."""
    return time if known is None else min(known, time)


def _apply_around(outcome: Outcome, event: e.Event) -> None:
    """Apply what happens around the ranks."""
    if isinstance(event, e.WarmAsked):
        # What each rank would begin with is done for all of them.
        outcome.started = _earliest(outcome.started, event.time)
    if isinstance(event, e.PreflightEnded):
        outcome.preflight = event
    if isinstance(event, e.JobWarned):
        outcome.warnings.append(event)
    if isinstance(event, (e.TransferProgress, e.Transferred)):
        outcome.transfers[event.name] = event
    elif isinstance(event, (e.EnvironmentBuilding, e.EnvironmentReady)):
        outcome.environment = event
    elif isinstance(event, e.ServiceStarted):
        outcome.services[event.name if not event.node else f"{event.name}@{event.node}"] = event


def _apply_to_attempt(outcome: Outcome, event: e.Event) -> None:
    """Apply the end of an attempt, and what need not be the end."""
    if isinstance(event, e.Preempted) and not outcome.is_final:
        outcome.reason = event.reason
    elif isinstance(event, e.AgentSilent) and not outcome.is_final:
        outcome.reason = f"the agent of node {event.node} {event.reason}" if event.reason else ""
    elif isinstance(event, e.NodeLost):
        _lose_ranks((rank for rank in outcome.ranks.values() if rank.node == event.node), event.time)
    elif isinstance(event, (e.JobHung, e.JobWentOn)):
        outcome.hang = event.reason if isinstance(event, e.JobHung) else ""
    elif isinstance(event, e.AttemptEnded):
        outcome.hang = ""
        outcome.attempts.append(event)
        for experiment in outcome.experiments.values():
            if not experiment.status:
                experiment.ended, experiment.status = event.time, status.FAILED
                experiment.reason = "its attempt ended"
        outcome.ranks.clear()
        outcome.warnings.clear()
        outcome.agents.clear()


def _apply_to_step(outcome: Outcome, event: e.Event) -> None:
    if isinstance(event, e.StepStarted):
        outcome.started = _earliest(outcome.started, event.time)
        outcome.steps[event.step] = StepOutcome(event.step, event.job, event.time, event.detail)
    if not isinstance(event, e.StepEnded):
        return
    step = outcome.steps.setdefault(event.step, StepOutcome(event.step, "", event.time, None))
    step.started = step.started if step.job else None
    step.ended, step.status, step.reason = event.time, event.status, event.reason
    step.detail.update(event.detail or {})


def _apply_drill(outcome: Outcome, event: e.Event) -> None:
    if not isinstance(event, (e.DrillBegan, e.DrillEnded)):
        return
    made = DrillOutcome(event.drill, event.kind, event.node, event.rank)
    drill = outcome.drills.setdefault(event.drill, made)
    if isinstance(event, e.DrillBegan):
        drill.began, drill.by, drill.attempt = event.time, event.by, event.attempt
        drill.settings = dict(event.settings or {})
    else:
        drill.ended, drill.reason = event.time, event.reason


def _apply_experiment(outcome: Outcome, event: e.Event) -> None:
    if isinstance(event, e.ExperimentBegan):
        outcome.experiments[event.experiment] = ExperimentOutcome(event.experiment, event.number, event.time)
    elif isinstance(event, e.ExperimentEnded):
        made = ExperimentOutcome(event.experiment, None, None)
        one = outcome.experiments.setdefault(event.experiment, made)
        one.ended, one.status, one.reason = event.time, event.status, event.reason


def _apply_users(outcome: Outcome, event: e.Event) -> None:
    """Apply an event that says nothing of how the job goes: a change by its user, or what became of its outputs."""
    if isinstance(event, e.JobEdited) and isinstance(event.changes, dict):
        outcome.edits.update(event.changes)
    elif isinstance(event, e.OutputRegistered):
        outcome.registered[event.output] = event
    elif isinstance(event, e.JobPruned):
        outcome.pruned.update(dict.fromkeys(event.parts, event.time))
    elif isinstance(event, (e.JobArchived, e.JobRestored)):
        outcome.archived = isinstance(event, e.JobArchived)


def _lose_ranks(ranks: Iterable[RankOutcome], time: float) -> None:
    for rank in ranks:
        if rank.ended is None and rank.lost is None:
            rank.lost = time
