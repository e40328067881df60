"""The stacks of the ranks of a running job, asked of its supervisor: each rank's, and those at one place together."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError, UsageError
from drumline.contract.words import name_several
from drumline.control.jobs.ending import wake
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.outcome import read_outcome
from drumline.control.jobs.recovery import recover, recover_kind
from drumline.control.terminal import clean
from drumline.supervisor.watching.hang import list_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.contract.outcome import RankOutcome


_ANSWER_S = 15.0
_ANSWER_POLL_S = 0.02


def ask_stacks(name: str) -> dict[str, Any]:
    """
    Return ``reason``, one sentence, and ``ranks``: for each rank its processes with their frames, innermost first.

    Blocks until all nodes have answered. Raises NotFoundError, UsageError for a job that does not run, NodeError when
    its supervisor does not answer.
    """
    folder, outcome = recover_kind(name, "command", "it has jobs, and those have ranks")
    if outcome.is_final or outcome.started is None:
        raise UsageError(f"job {name} is {outcome.status}: it has no ranks that run")
    number = os.urandom(8).hex()
    asked = time.time()
    folder.write(folder.stacks_request, number)
    wake(folder)
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        answer = folder.read_json(folder.stacks)
        # Of several who ask at once one is heard, and answered for all.
        if answer is not None and (answer.get("id") == number or answer.get("began", 0.0) >= asked):
            return answer
        if recover(folder).is_final:
            raise UsageError(f"job {name} has ended meanwhile")
        time.sleep(_ANSWER_POLL_S)
    raise NodeError(f"the supervisor of job {name} did not answer", f"see {folder.system_logs}")


def format_stacks(answer: dict[str, Any]) -> str:
    """Format the sentence, then each stack once below its ranks, the innermost frame first."""
    groups: dict[str, list[str]] = {}
    for rank, processes in answer["ranks"].items():
        stacks = ("".join(f"  {clean(line)}\n" for line in _list_frames(process)) for process in processes)
        groups.setdefault("\n".join(stacks), []).append(rank)
    text = clean(answer["reason"]) + "\n"
    for stack, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        text += f"\n{name_several('rank', ranks)}\n{stack}"
    return text


def _list_frames(process: Mapping[str, Any]) -> list[str]:
    """List the frames of a process, the innermost first; without any, its state."""
    frames = [f"{function} ({file}:{line})" for file, line, function in process["frames"]]
    if frames:
        return frames
    where = f" in {process['waits_in']}" if process.get("waits_in") not in (None, "", "0") else ""
    return [f"{process.get('name')}, state {process.get('state')}{where}"]


# Ranks at one place together, with the odd one out.


def group_stacks(name: str) -> dict[str, Any]:
    """
    Ask for the stacks of all ranks, and return them in groups, the largest first; ``missing``: ranks without an answer.

    Blocks until all nodes have answered. Raises as ``ask_stacks``.
    """
    answer = ask_stacks(name)
    outcome = read_outcome(folder_of(name))
    answered = {int(rank) for rank in answer["ranks"]}
    missing = [
        {"rank": number, "why": _explain_silence(rank)}
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
            "text": "".join(line + "\n" for process in known[key] for line in _list_frames(process)),
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
