"""The start of an attempt as lanes of phases, one for each node and rank; and with the run as a trace for Perfetto."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from drumline.control.facts.ranks import read_attempt
from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.charts.marks import read_marks
from drumline.control.observing.timeline import describe_start
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.contract.outcome import RankOutcome
    from drumline.control.facts.ranks import Attempt

_MOST_LANES = 2000


def describe_timeline(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Return what ``describe_start`` does, and ``lanes``: of the job, of each node and of each rank, with their phases.

    ``attempt``, counted from 0, None: the latest. Raises NotFoundError, UsageError.
    """
    told = describe_start(name, attempt)
    shown = read_attempt(folder_of(name), attempt)
    return {**told, "attempt": shown.number, "lanes": _list_lanes(told, shown)}


def _list_lanes(told: Mapping[str, Any], shown: Attempt) -> list[dict[str, Any]]:
    zero = told["zero"]
    lanes = [_lane(None, None, "job", [_to_phase(one, zero) for one in told["phases"] if not one["part_of"]])]
    parts = [_to_phase(one, zero) for one in told["phases"] if one["part_of"]]
    if parts:
        lanes.append(_lane(None, None, "preparing", parts))
    for node in told["nodes"]:
        label = shown.outcome.hosts.get(node["node"]) or f"node {node['node']}"
        lanes.append(_lane(node["node"], None, label, list(_describe_node(node, told))))
    for rank in told["ranks"][: _MOST_LANES - len(lanes)]:
        phases = list(_describe_rank(rank, zero))
        lanes.append(_lane(rank["node"], rank["rank"], f"rank {rank['rank']}", phases))
    return lanes


def _lane(node: int | None, rank: int | None, label: str, phases: list[dict[str, Any]]) -> dict[str, Any]:
    return {"node": node, "rank": rank, "label": label, "phases": phases}


def _phase(name: str, began: float, ended: float | None, text: str = "") -> dict[str, Any]:
    return {"name": name, "began": utc(began), "ended": utc(ended), "text": text}


def _to_phase(one: Mapping[str, Any], zero: float) -> dict[str, Any]:
    began = min(one["since_s"], one["from_s"])
    ended = None if one["to_s"] is None else zero + one["to_s"]
    return _phase(one["phase"], zero + began, ended, one["note"])


def _describe_node(node: Mapping[str, Any], told: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    zero = told["zero"]
    since = next((one["since_s"] for one in told["phases"] if one["phase"] == "agents joined"), None)
    if node["joined_s"] is not None and since is not None:
        yield _phase("agent joins", zero + min(since, node["joined_s"]), zero + node["joined_s"])
    warm = node["warm"]
    if warm is not None:
        text = "kept from before" if warm["reused"] else f"imported {', '.join(warm['modules'])}"
        yield _phase(
            "imports", zero + warm["began_s"], zero + warm["began_s"] + (warm["import_s"] or 0.0), text
        )


def _describe_rank(rank: Mapping[str, Any], zero: float) -> Iterable[dict[str, Any]]:
    """Yield what a rank did until its last phase began; the run would hide all else in a drawing."""
    known = [
        ("started", rank["started_s"], ""),
        ("first output", rank["first_output_s"], ""),
        ("process group", rank["group_formed_s"], rank["backend"] or ""),
    ]
    steps = sorted(
        ((zero + at, name, text) for name, at, text in known if at is not None), key=lambda step: step[0]
    )
    for (began, _, _), (until, name, text) in pairwise(steps):
        yield _phase(f"until {name}", began, until, text)
    if len(steps) == 1:
        yield _phase(steps[0][1], steps[0][0], steps[0][0])


def make_trace(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Return the lanes as a trace that Perfetto and Chrome open. Raises as ``describe_timeline``.

    Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format).
    """
    told = describe_timeline(name, attempt)
    ranks = read_attempt(folder_of(name), attempt).outcome.ranks
    zero, now = told["zero"], time.time()
    found: list[dict[str, Any]] = []
    for place, lane in enumerate(told["lanes"]):
        process = 0 if lane["node"] is None else lane["node"] + 1
        thread = {"pid": process, "tid": place}
        group = "job" if lane["node"] is None else f"node {lane['node']}"
        found.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": group}})
        found.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": lane["label"]}})
        run = _describe_run(lane, ranks.get(lane["rank"]))
        found += [_to_event(phase, zero, now, thread) for phase in [*lane["phases"], *run]]
    found += [
        {
            "ph": "i",
            "s": "g",
            "name": mark["text"],
            "ts": round((mark["at"] - zero) * 1e6),
            "pid": 0,
            "tid": 0,
        }
        for mark in read_marks(folder_of(name))
        if mark["at"] >= zero
    ]
    return {"displayTimeUnit": "ms", "traceEvents": found}


def _describe_run(lane: Mapping[str, Any], rank: RankOutcome | None) -> Iterable[dict[str, Any]]:
    """Yield what a rank did after its start."""
    if rank is not None and lane["phases"]:
        began = _seconds(lane["phases"][-1]["ended"])
        ended = rank.lost if rank.ended is None else rank.ended
        yield _phase("running", began, None if ended is None else max(began, ended), rank.state)


def _to_event(phase: Mapping[str, Any], zero: float, now: float, thread: Mapping[str, int]) -> dict[str, Any]:
    """Return a phase in microseconds since the attempt's beginning."""
    began, ended = _seconds(phase["began"]), _seconds(phase["ended"]) if phase["ended"] else now
    return {
        "ph": "X",
        "name": phase["name"],
        "ts": round((began - zero) * 1e6),
        "dur": max(0, round((ended - began) * 1e6)),
        **thread,
        "args": {"note": phase["text"]} if phase["text"] else {},
    }


def _seconds(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()
