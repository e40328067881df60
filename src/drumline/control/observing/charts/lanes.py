"""The start and the life of an attempt as lanes of phases, one for each node and rank, and as a trace for Perfetto."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from drumline.control.jobs.lookup import folder_of
from drumline.control.observing.ranks.rank_states import read_attempt
from drumline.control.observing.timeline import describe_start
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.contract.outcome import RankOutcome
    from drumline.control.observing.ranks.rank_states import Attempt

_MOST_LANES = 2000


def describe_timeline(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Return what ``describe_start`` does, and ``lanes``: of the job, of each node and of each rank, with their phases.

    ``attempt``, counted from 1, None: the latest. Raises NotFoundError, UsageError.
    """
    told = describe_start(name, None if attempt is None else attempt - 1)
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
        phases = list(_describe_rank(rank, zero, shown.outcome.ranks.get(rank["rank"])))
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


def _describe_rank(
    rank: Mapping[str, Any], zero: float, outcome: RankOutcome | None
) -> Iterable[dict[str, Any]]:
    """Yield what a rank has done one after the other; the last phase goes on until its end."""
    known = [
        ("started", rank["started_s"], ""),
        ("first output", rank["first_output_s"], ""),
        ("process group", rank["group_formed_s"], rank["backend"] or ""),
    ]
    steps = sorted(
        ((zero + at, name, text) for name, at, text in known if at is not None), key=lambda step: step[0]
    )
    ended = outcome.ended if outcome else None
    for (began, _, _), (until, name, text) in pairwise(steps):
        yield _phase(f"until {name}", began, until, text)
    if steps:
        state = outcome.state if outcome else ""
        yield _phase("running", steps[-1][0], ended, state)


def make_trace(name: str, attempt: int | None = None) -> dict[str, Any]:
    """
    Return the lanes as a trace that Perfetto and Chrome open. Raises as ``describe_timeline``.

    Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format).
    """
    told = describe_timeline(name, attempt)
    zero, now = told["zero"], time.time()
    found: list[dict[str, Any]] = []
    for place, lane in enumerate(told["lanes"]):
        process = 0 if lane["node"] is None else lane["node"] + 1
        thread = {"pid": process, "tid": place}
        group = "job" if lane["node"] is None else f"node {lane['node']}"
        found.append({"ph": "M", "name": "process_name", "pid": process, "args": {"name": group}})
        found.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": lane["label"]}})
        found += [_to_event(phase, zero, now, thread) for phase in lane["phases"]]
    return {"displayTimeUnit": "ms", "traceEvents": found}


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
