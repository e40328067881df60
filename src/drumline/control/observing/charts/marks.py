"""Events that explain what values over time show, to be drawn beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.control.facts.changes import text_of
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.charts.kept_answers import KeptAnswers, stamp_files
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.folder import RunFolder

_MOST_FAILED = 3
"""Of an attempt: a failure ends all other ranks, and the marks of 512 would hide what else happened."""

_MOST_MARKS = 1000
_KINDS: dict[type[e.Event], str] = {
    e.DrillBegan: "drill",
    e.DrillEnded: "drill_ended",
    e.AttemptEnded: "attempt",
    e.Preempted: "preempted",
}
"""Of events whose text is that of the list of events."""

SHOWN = (
    *_KINDS,
    *(e.RankExited, e.NodeLost, e.JobHung, e.JobWentOn, e.CancelRequested, e.JobStopping, e.JobRunning),
)

_MOST_ANSWER_BYTES = 1 << 18


def list_marks(events: Iterable[e.Event]) -> list[dict[str, Any]]:
    """Return time, kind and text of those of the events that explain something."""
    return [_describe(event, found) for event, found in _choose(events)]


def describe_marks(name: str) -> dict[str, Any]:
    """Describe what happened in all attempts of a job, and who asked for it. Raises NotFoundError."""
    marks = [
        {name: value for name, value in mark.items() if name != "at"} for mark in read_marks(folder_of(name))
    ]
    return {"marks": marks}


def read_marks(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the marks of all attempts of a job; ``at``: seconds since 1970."""
    stamp = stamp_files([folder.events])
    kept: list[dict[str, Any]] | None = _answers.get(folder.path, stamp)
    if kept is None:
        chosen = _choose(folder.read_events(*SHOWN))
        kept = [{**_describe(event, found), "at": event.time} for event, found in chosen]
        _answers.put(folder.path, stamp, kept, None)
    return kept


_answers = KeptAnswers(_MOST_ANSWER_BYTES)
"""Each chart of a page asks for them."""


def _choose(events: Iterable[e.Event]) -> list[tuple[e.Event, tuple[str, str]]]:
    """Return the events to be marked, with kind and text."""
    chosen: list[tuple[e.Event, tuple[str, str]]] = []
    failed = 0
    for event in events:
        found = _kind_of(event)
        if isinstance(event, e.AttemptEnded):
            failed = 0
        if found is None or len(chosen) >= _MOST_MARKS:
            continue
        failed += found[0] == "failed"
        if found[0] != "failed" or failed <= _MOST_FAILED:
            chosen.append((event, found))
    return chosen


def _describe(event: e.Event, found: tuple[str, str]) -> dict[str, Any]:
    return {"time": utc(event.time), "kind": found[0], "text": found[1]}


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
    if type(event) in _KINDS:
        return _KINDS[type(event)], text_of(event)
    if isinstance(event, e.CancelRequested):
        return "cancel", f"canceled by {event.by}"
    if isinstance(event, e.JobStopping):
        return "stopping", event.reason or "the remaining ranks are stopped"
    return ("running", "all ranks run") if isinstance(event, e.JobRunning) else None
