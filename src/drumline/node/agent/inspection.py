"""The places of the node's ranks in their programs, and their progress, asked while the ranks run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import messages as m
from drumline.node.agent.first_output import read_size
from drumline.node.containers import rank_containers
from drumline.node.diagnostics import stacks
from drumline.node.diagnostics.activity import ActivityReader, read_connections
from drumline.node.metrics import step_windows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from drumline.node.agent.environment import JobEnvironment


class Inspector:
    """Answers the supervisor's questions about ranks."""

    def __init__(self, environment: JobEnvironment) -> None:
        self._environment = environment
        self._activity = ActivityReader()

    def answer(
        self,
        question: m.PollProgress | m.InspectRanks | m.ListConnections,
        ranks: Mapping[int, int],
        others: Iterable[int],
    ) -> m.ProgressPolled | m.RanksInspected | m.ConnectionsListed:
        """
        Say how far ranks have come, what they are doing, or which connections they have. ``ranks``: by process id, of
        the first process of each; ``others``: processes that belong to none.
        """
        # In order of ranks; of one in a container, the first process there.
        scratch = self._environment.scratch
        by_rank = sorted((rank, pid) for pid, rank in ranks.items())
        pids = {rank: rank_containers.find_inner_pid(scratch, pid) for rank, pid in by_rank}
        if isinstance(question, m.InspectRanks):
            return m.RanksInspected(self._inspect_ranks(pids))
        if isinstance(question, m.ListConnections):
            return m.ConnectionsListed(
                [m.RankConnections(rank, read_connections(pid)) for rank, pid in pids.items()]
            )
        progress = self._measure_progress(pids, wants_stacks=question.wants_stacks)
        return m.ProgressPolled(question.id, progress, *stacks.measure_used(*others))

    def _measure_progress(self, pids: Mapping[int, int], *, wants_stacks: bool) -> list[m.RankProgress]:
        environment = self._environment
        looks = {rank: step_windows.count_written_bytes(environment.steps_of(rank)) for rank in pids}
        activity = self._activity.read(pids, looks)
        used = {rank: stacks.measure_used(pid) for rank, pid in pids.items()}
        after, processes = used, {}
        if wants_stacks and pids:
            processes = self._read_stacks(pids)
            after = {rank: stacks.measure_used(pid) for rank, pid in pids.items()}
            # They answer by files too.
            self._activity.leave_out_writes(pids)
        return [
            m.RankProgress(
                rank,
                read_size(environment.log_of(rank)),
                *used[rank],
                *after[rank].since(used[rank]),
                processes.get(rank, []),
                activity[rank],
            )
            for rank in pids
        ]

    def _inspect_ranks(self, pids: Mapping[int, int]) -> list[m.RankInspection]:
        """Return where each rank is, and what it is failing of: others have failed for want of one of them."""
        processes = self._read_stacks(pids) if pids else {}
        # Only now: the handler of this question would show in the stacks.
        notes = {rank: self._environment.notes_of(rank) for rank in pids}
        in_flight = stacks.read_in_flight(pids, notes, self._environment.launch.cwd)
        return [m.RankInspection(rank, processes.get(rank, []), in_flight.get(rank)) for rank in pids]

    def _read_stacks(self, pids: Mapping[int, int]) -> dict[int, list[m.ProcessStack]]:
        environment = self._environment
        notes = {rank: environment.notes_of(rank) for rank in pids}
        return stacks.read_stacks(pids, environment.launch.cwd, environment.search_path, notes)
