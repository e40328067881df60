"""The stacks of a job's ranks, those at one place together, with the odd one out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.outcome import read_outcome
from drumline.control.observing.stacks import ask_stacks
from drumline.supervisor.watching.hang import list_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.contract.outcome import RankOutcome


def group_stacks(name: str) -> dict[str, Any]:
    """
    Ask for the stacks of all ranks, and return them in groups, the largest first; ``missing``: ranks without an answer.

    Blocks until all nodes have answered. Raises as ``ask_stacks``.
    """
    answer = ask_stacks(name)
    outcome = read_outcome(folder_of(name))
    answered = {int(rank) for rank in answer["ranks"]}
    missing = [
        {
            "rank": number,
            "why": _explain_silence(rank),
        }
        for number, rank in sorted(outcome.ranks.items())
        if number not in answered
    ]
    return {"sentence": str(answer["reason"]), "groups": _group(answer["ranks"]), "missing": missing}


def _explain_silence(rank: RankOutcome) -> str:
    if rank.ended is not None:
        return f"it has ended: {rank.state}"
    return "its node has not answered" if rank.lost is None else "its node was lost"


def _group(answered: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    groups: dict[str, list[int]] = {}
    known: dict[str, Sequence[Mapping[str, Any]]] = {}
    for rank, processes in answered.items():
        key = repr([_frames_of(process) for process in processes])
        groups.setdefault(key, []).append(int(rank))
        known[key] = processes
    ordered = sorted(groups, key=lambda key: (-len(groups[key]), groups[key]))
    # Of two that differ nobody can say which is the odd one.
    has_odd = len(ordered) > 1 and len(groups[ordered[0]]) > len(groups[ordered[1]])
    return [
        {
            "ranks": sorted(groups[key]),
            "odd": has_odd and place > 0,
            "frames": [
                {"file": file, "line": line, "function": function}
                for process in known[key]
                for file, line, function in process["frames"]
            ],
            "waits_for": _find_wait(known[key]),
            "text": "".join(map(_format, known[key])),
        }
        for place, key in enumerate(ordered)
    ]


def _find_wait(processes: Sequence[Mapping[str, Any]]) -> str:
    """Return what ranks wait for others in, as ``all_reduce (train.py:12, in step)``; empty: nothing known."""
    places = [
        place.removeprefix("wait in ") for place in list_places(processes) if place.startswith("wait in ")
    ]
    return "; ".join(places)


def _frames_of(process: Mapping[str, Any]) -> Iterable[Any]:
    return process["frames"] or [process.get("name"), process.get("state"), process.get("waits_in")]


def _format(process: Mapping[str, Any]) -> str:
    """Return the frames of a process, the innermost first, as ``drumline job stacks`` prints them."""
    lines = [f"{function} ({file}:{line})" for file, line, function in process["frames"]]
    if not lines:
        where = f" in {process['waits_in']}" if process.get("waits_in") not in (None, "", "0") else ""
        lines = [f"{process.get('name')}, state {process.get('state')}{where}"]
    return "".join(line + "\n" for line in lines)
