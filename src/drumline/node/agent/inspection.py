"""The places of the node's ranks in their programs, and their progress, asked while the ranks run on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.node.containers import rank_containers
from drumline.node.diagnostics import activity, stacks
from drumline.node.metrics import step_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.node.agent.environment import JobEnvironment
    from drumline.node.diagnostics.activity import ActivityReader


def progress_of(
    environment: JobEnvironment, ranks: Mapping[int, int], reader: ActivityReader, *, wants_stacks: bool
) -> list[m.RankProgress]:
    """Return what each rank has done so far, and where it is, if that is wanted. ``ranks``: by process id."""
    pids = _inner_pids(environment, ranks)
    looks = {rank: step_windows.count_written_bytes(environment.steps_of(rank)) for rank in pids}
    activity = reader.read(pids, looks)
    used = {rank: stacks.measure_used(pid) for rank, pid in pids.items()}
    after, found = used, {}
    if wants_stacks and pids:
        found = _stacks_of(environment, pids)
        after = {rank: stacks.measure_used(pid) for rank, pid in pids.items()}
        # They answer by files too.
        reader.leave_out_writes(pids)
    return [
        m.RankProgress(
            rank,
            _size_of(environment.log_of(rank)),
            *used[rank],
            *after[rank].since(used[rank]),
            found.get(rank, []),
            activity[rank],
        )
        for rank in pids
    ]


def use_of(pids: Iterable[int]) -> tuple[float, int]:
    """Return the CPU time, and the bytes read and written, of those and all below them."""
    used = stacks.measure_used(*pids)
    return used.cpu_s, used.io_bytes


def inspect(environment: JobEnvironment, ranks: Mapping[int, int]) -> list[m.RankInspection]:
    """Return where each rank is, and what it is failing of: others have failed for want of one of them."""
    pids = _inner_pids(environment, ranks)
    found = _stacks_of(environment, pids) if pids else {}
    # Only now: the handler of this question would show in the stacks.
    notes = {rank: environment.notes_of(rank) for rank in pids}
    told = stacks.read_in_flight(pids, notes, environment.launch.cwd)
    return [m.RankInspection(rank, found.get(rank, []), told.get(rank)) for rank in pids]


def list_connections(environment: JobEnvironment, ranks: Mapping[int, int]) -> list[m.RankConnections]:
    """Return the connections of each rank, given by process id."""
    pids = _inner_pids(environment, ranks)
    return [m.RankConnections(rank, activity.read_connections(pid)) for rank, pid in pids.items()]


def _inner_pids(environment: JobEnvironment, ranks: Mapping[int, int]) -> dict[int, int]:
    """Return each rank's first process, in order of ranks: that in its container where it has one."""
    by_rank = sorted((rank, pid) for pid, rank in ranks.items())
    return {rank: rank_containers.find_inner_pid(environment.scratch, pid) for rank, pid in by_rank}


def _stacks_of(environment: JobEnvironment, pids: Mapping[int, int]) -> dict[int, list[m.ProcessStack]]:
    notes = {rank: environment.notes_of(rank) for rank in pids}
    return stacks.read_stacks(pids, environment.launch.cwd, environment.search_path, notes)


def _size_of(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0
