"""Events that explain what values over time show, to be drawn beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable


def list_marks(events: Iterable[e.Event]) -> list[dict[str, Any]]:
    """Return time, kind and text of those of the events that explain something."""
    return [mark for event in events if (mark := _mark(event)) is not None]


def _mark(event: e.Event) -> dict[str, Any] | None:
    """Return what is drawn of an event; None for nothing."""
    found = _kind_of(event)
    return None if found is None else {"time": utc(event.time), "kind": found[0], "text": found[1]}


def _kind_of(event: e.Event) -> tuple[str, str] | None:
    if isinstance(event, e.RankExited) and event.code != 0:
        how = f"ended by signal {event.signal}" if event.signal else f"failed with exit code {event.code}"
        return "failed", f"rank {event.rank} {event.error or how}"
    if isinstance(event, e.NodeLost):
        return "lost", f"node {event.node}: {event.reason}"
    if isinstance(event, e.JobHung):
        return "hang", event.reason
    if isinstance(event, e.JobWentOn):
        return "went_on", "the job goes on"
    if isinstance(event, e.Preempted):
        return "preempted", f"preempted by {event.by}"
    if isinstance(event, e.CancelRequested):
        return "cancel", f"canceled by {event.by}"
    if isinstance(event, e.JobStopping):
        return "stopping", event.reason or "the remaining ranks are stopped"
    return ("running", "all ranks run") if isinstance(event, e.JobRunning) else None
