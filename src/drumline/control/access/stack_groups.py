"""The stacks of the ranks of a running job, asked of its supervisor: each rank's, and those at one place together."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError, UsageError
from drumline.contract.record import NamedTuple
from drumline.contract.words import name_several
from drumline.control.jobs.ending import wake
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.lookup import folder_of
from drumline.control.jobs.recovery import recover, recover_kind
from drumline.control.terminal import clean
from drumline.supervisor.watching.hang import list_places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.outcome import RankOutcome

    Stack = Sequence[Mapping[str, Any]]


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
    text = clean(answer["reason"]) + "\n"
    for ranks, processes in _group_by_place(answer["ranks"]):
        stacks = ("".join(f"  {clean(line)}\n" for line in _list_frames(process)) for process in processes)
        text += f"\n{name_several('rank', ranks)}\n" + "\n".join(stacks)
    return text


def _group_by_place(answered: Mapping[str, Stack]) -> list[tuple[list[str], Stack]]:
    """Return the ranks at each place with their processes, most ranks first, and of as many the lowest rank first."""
    groups: dict[str, tuple[list[str], Stack]] = {}
    for rank, processes in answered.items():
        place = repr([_list_frames(process) for process in processes])
        groups.setdefault(place, ([], processes))[0].append(rank)
    return sorted(groups.values(), key=lambda group: -len(group[0]))


def _list_frames(process: Mapping[str, Any]) -> list[str]:
    """List the frames of a process, the innermost first; without any, its state."""
    frames = [f"{function} ({file}:{line})" for file, line, function in process["frames"]]
    if frames:
        return frames
    where = f" in {process['waits_in']}" if process.get("waits_in") not in (None, "", "0") else ""
    return [f"{process.get('name')}, state {process.get('state')}{where}"]


class StackPlace(NamedTuple):
    file: str
    line: int
    function: str


class StackGroup(NamedTuple):
    """The ranks at one place. ``waits_for``: as in "all_reduce (train.py:12, in step)"."""

    ranks: list[int]
    odd: bool
    frames: list[StackPlace]
    waits_for: str
    text: str


class SilentRank(NamedTuple):
    rank: int
    why: str


class StackGroups(NamedTuple):
    """The stacks of all ranks, the largest group first. ``missing``: ranks without an answer."""

    sentence: str
    groups: list[StackGroup]
    missing: list[SilentRank]


def group_stacks(name: str) -> StackGroups:
    """
    Ask for the stacks of all ranks, and return them in groups.

    Blocks until all nodes have answered. Raises as ``ask_stacks``.
    """
    answer = ask_stacks(name)
    groups = _group_by_place(answer["ranks"])
    # Of two that differ nobody can say which is the odd one.
    has_odd = len(groups) > 1 and len(groups[0][0]) > len(groups[1][0])
    described = [
        StackGroup(
            sorted(map(int, ranks)),
            has_odd and place > 0,
            [
                StackPlace(file, line, function)
                for process in processes
                for file, line, function in process["frames"]
            ],
            "; ".join(
                wait.removeprefix("wait in ")
                for wait in list_places(processes)
                if wait.startswith("wait in ")
            ),
            "".join(line + "\n" for process in processes for line in _list_frames(process)),
        )
        for place, (ranks, processes) in enumerate(groups)
    ]
    missing = [
        SilentRank(number, _explain_silence(rank))
        for number, rank in sorted(read_outcome(folder_of(name)).ranks.items())
        if str(number) not in answer["ranks"]
    ]
    return StackGroups(str(answer["reason"]), described, missing)


def _explain_silence(rank: RankOutcome) -> str:
    if rank.ended is not None:
        return f"it has ended: {rank.state}"
    return "its node has not answered" if rank.lost is None else "its node was lost"
