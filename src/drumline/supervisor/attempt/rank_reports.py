"""Reports of agents about their ranks, which become events and happenings for the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.explaining import exit_evidence, missing_rank
from drumline.supervisor.watching import hang

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract import messages as m
    from drumline.contract.plan import Plan
    from drumline.supervisor.clocks import Clocks
    from drumline.supervisor.watching.world import WorldGuard


class RankReports:
    """Records reports with times of this machine's clock."""

    def __init__(
        self,
        plan: Plan,
        clocks: Clocks,
        record: Callable[[e.Event], None],
        handle: Callable[[h.Happening], None],
    ) -> None:
        self._plan = plan
        self._clocks = clocks
        self._record = record
        self._handle = handle
        self._world: WorldGuard | None = None
        self._warned_of: set[str] = set()

    def note_event(self, node: int, event: m.SeenEvent) -> None:
        """Record what an agent has seen, with times of this machine's clock; a warning only once."""
        changes: dict[str, Any] = {"time": self._clocks.wall(node, event.time)}
        if not isinstance(event, (e.JobWarned, e.ExperimentBegan, e.ExperimentEnded)):
            changes["node"] = node
        if isinstance(event, e.WarmStart):
            changes["began"] = self._clocks.wall(node, event.began)
        event = event._replace(**changes)
        if isinstance(event, e.JobWarned):
            if event.kind in self._warned_of:
                return
            self._warned_of.add(event.kind)
        self._record(event)
        if isinstance(event, e.RankStarted):
            self._handle(h.Started(event.rank, event.time))
        elif isinstance(event, e.GroupFormed):
            self.note_training(event.rank)

    def note_end(self, node: int, message: m.RankEnded) -> None:
        def wall(at: float) -> float:
            return self._clocks.wall(node, at)

        evidence = exit_evidence.record_evidence(message, wall)
        lost = missing_rank.explain_mpi_code(message.code) if self._plan.launcher else ""
        if lost:
            evidence["lost_peer"] = lost
        how = (message.code, message.signal, message.error)
        exited = e.RankExited(wall(message.at), message.rank, node, *how, evidence or None)
        if self._world:
            self._world.end()
        self._record(exited)
        self._handle(exited)

    def note_training(self, rank: int) -> None:
        if self._world is None:
            # Ranks without PyTorch need none.
            from drumline.supervisor.watching.world import WorldGuard

            self._world = WorldGuard(self._plan)
        self._world.note_training(rank)

    def note_other_mpi(self, message: m.OtherMpiSeen) -> None:
        if "MPI" in self._warned_of:
            return
        self._warned_of.add("MPI")
        name = self._plan.launcher.name if self._plan.launcher else "the launcher"
        label = next(task.label for task in self._plan.ranks if task.rank == message.rank)
        abi = message.launcher_kind.lower().replace(" ", "")
        self._record(
            e.JobWarned(
                wall_time(),
                "world",
                f"these {len(self._plan.ranks)} processes may be as many MPI worlds: {name} is "
                f"{message.launcher_kind}'s, and rank {label} has loaded {message.library} of {message.library_kind}; "
                f"MPI4PY_MPIABI={abi} has mpi4py load the right one",
            )
        )

    def list_times(self) -> list[float]:
        """List the times at which ``wants_connections`` may be true, in monotonic seconds."""
        return self._world.list_times() if self._world else []

    @property
    def wants_connections(self) -> bool:
        """Return whether the connections of all ranks are to be listed now."""
        return self._world is not None and self._world.is_due()

    def note_connections(self, message: m.ConnectionsListed) -> None:
        found = self._world.take_in({one.rank: one.ends for one in message.ranks}) if self._world else ""
        if found:
            self._record(e.JobWarned(wall_time(), "world", found))

    def note_inspection(self, node: int, message: m.RanksInspected) -> None:
        found = {
            one.rank: missing_rank.RunningRank(tuple(hang.list_places(one.processes)), one.in_flight)
            for one in message.ranks
        }
        self._handle(h.Found(node, found))
