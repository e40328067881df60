"""One line about each event of a job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.drills import name_drill
from drumline.contract.words import format_duration, format_size
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_TEXT = 4096
_MOST_KEYS = 100


def describe_event(seq: int, event: e.Event) -> dict[str, Any]:
    """Describe an event for programs, with its fields. ``seq`` grows from event to event."""
    fields = {name: value for name, value in event._asdict().items() if name != "time"}
    return {
        "seq": seq,
        "time": utc(event.time),
        "kind": type(event).__name__,
        "text": _cut(text_of(event)),
        **{
            name: _cut(value)
            for name, value in fields.items()
            if name not in ("kind", "who", "verdict", "evidence")
        },
    }


def _cut(value: Any) -> Any:
    """Return a value that is not too much for many viewers at once; a list that is longer is left out whole."""
    if isinstance(value, dict):
        value = {name: _cut(one) for name, one in value.items()} if len(value) <= _MOST_KEYS else {}
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return value[: _MOST_TEXT - 3] + "..."
    if isinstance(value, list) and len(json.dumps(value)) > _MOST_TEXT:
        return []
    return value


def text_of(event: e.Event) -> str:
    """
    Return the text of an event.

    >>> text_of(e.RankExited(0.0, 3, 1, 1, None))
    'rank 3 ended with exit code 1'
    """
    make: Callable[[Any], str] = _TEXTS[type(event)]
    return make(event)


def _end_of_rank(event: e.RankExited) -> str:
    if event.error:
        return f"rank {event.rank} could not be started: {event.error}"
    if event.signal:
        return f"rank {event.rank} was ended by signal {event.signal}"
    return f"rank {event.rank} ended" + (f" with exit code {event.code}" if event.code else "")


def _transfer(event: e.Transferred) -> str:
    took = f" in {format_duration(event.seconds)}" if event.seconds else ""
    note = f" ({event.note})" if event.note else ""
    return f"{event.name}: {format_size(event.size_bytes)}{took}{note}"


def _service(event: e.ServiceStarted) -> str:
    return f"{event.name}: {event.error or event.url or 'started'}"


def _registration(event: e.OutputRegistered) -> str:
    if event.error:
        return f"output {event.output} was not registered: {event.error}"
    return f"output {event.output} is azureml:{event.name}:{event.version}"


def _preemption(event: e.Preempted) -> str:
    what = "all nodes are" if event.node is None else f"node {event.node} is"
    return f"{what} being taken away by {event.by}"


def _end_of_drill(event: e.DrillEnded) -> str:
    how = "was refused" if event.refused else "ended"
    return _and(f"{name_drill(event.kind, event.node, event.rank)} {how}", event.reason)


def _checks(event: e.PreflightEnded) -> str:
    found = event.detail.get("findings")
    count = len(found) if isinstance(found, list) else 0
    told = {0: "nothing found", 1: "1 finding"}.get(count, f"{count} findings")
    return f"nodes checked in {format_duration(event.seconds)}: {told}"


def _and(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


_TEXTS: dict[type[e.Event], Callable[[Any], str]] = {
    e.JobSubmitted: lambda event: f"submitted by {event.user}",
    e.JobWaiting: lambda event: _and("waits", event.reason),
    e.JobPreparing: lambda event: "code and inputs are being put in place",
    e.TransferProgress: lambda event: f"{event.name}: {format_size(event.done_bytes)} so far",
    e.Transferred: _transfer,
    e.EnvironmentBuilding: lambda event: _and("the environment is being built", event.what),
    e.EnvironmentReady: lambda event: "the environment is ready" + (" (reused)" if event.reused else ""),
    e.ServiceStarted: _service,
    e.JobStarting: lambda event: "agents are being started",
    e.AgentJoined: lambda event: f"node {event.node} joined" + (f" ({event.host})" if event.host else ""),
    e.NetworkChosen: lambda event: _and("network chosen", event.reason),
    e.PreflightEnded: _checks,
    e.RankStarted: lambda event: f"rank {event.rank} started on node {event.node}",
    e.WarmAsked: lambda event: f"node {event.node} waits for a warm interpreter",
    e.WarmStart: lambda event: f"node {event.node} starts from a warm interpreter",
    e.WarmDeclined: lambda event: _and(f"node {event.node} starts cold", event.reason),
    e.FirstOutput: lambda event: f"rank {event.rank} wrote its first line",
    e.GroupFormed: lambda event: f"rank {event.rank} joined its process group",
    e.JobRunning: lambda event: "all ranks run",
    e.RankExited: _end_of_rank,
    e.NodeLost: lambda event: _and(f"node {event.node} was lost", event.reason),
    e.AgentSilent: lambda event: f"the agent of node {event.node} {event.reason or 'answers'}",
    e.CancelRequested: lambda event: f"cancel requested by {event.by}",
    e.Preempted: _preemption,
    e.JobStopping: lambda event: _and("the other ranks are being ended", event.reason),
    e.AttemptEnded: lambda event: _and(f"attempt {event.attempt} ended", event.reason),
    e.JobHung: lambda event: _and("no rank goes on", event.reason),
    e.JobWentOn: lambda event: "the ranks go on",
    e.JobWarned: lambda event: f"warning: {event.text}",
    e.DrillBegan: lambda event: f"{name_drill(event.kind, event.node, event.rank)} began, for {event.by}",
    e.DrillEnded: _end_of_drill,
    e.StepStarted: lambda event: f"{event.step} is job {event.job}",
    e.StepEnded: lambda event: _and(f"{event.step} is {event.status}", event.reason),
    e.ExperimentBegan: lambda event: f"experiment {event.experiment} began",
    e.ExperimentEnded: lambda event: _and(f"experiment {event.experiment} is {event.status}", event.reason),
    e.JobFinalizing: lambda event: "all ranks have ended",
    e.OutputRegistered: _registration,
    e.JobEnded: lambda event: _and(event.status, event.reason),
    e.JobEdited: lambda event: "changed: " + ", ".join(map(str, event.changes or ())),
    e.JobPruned: lambda event: "pruned: " + ", ".join(map(str, event.parts)),
    e.JobArchived: lambda event: "archived",
    e.JobRestored: lambda event: "restored from the archive",
}
