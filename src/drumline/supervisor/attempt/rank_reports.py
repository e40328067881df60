"""Reports of agents about their ranks, which become events and happenings for the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.explaining import exit_evidence, lost_peer, missing_rank
from drumline.supervisor.watching import hang

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract import messages as m
    from drumline.contract.plan import Plan
    from drumline.supervisor.clocks import Clocks
    from drumline.supervisor.watching.world import WorldGuard

_OLDER_STORE = (
    "this PyTorch was built without libuv, so Drumline set USE_LIBUV=0 for it: "
    "the store of its process group is the older one, in which many ranks take longer to meet"
)


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
        self._has_older_store = False
        self._has_other_mpi = False

    def note_start(self, node: int, message: m.RankStarting) -> None:
        at = self._clocks.wall(node, message.at)
        self._record(e.RankStarted(at, message.rank, node, message.pid))
        self._handle(h.Started(message.rank, at))

    def note_end(self, node: int, message: m.RankEnded) -> None:
        def wall(at: float) -> float:
            return self._clocks.wall(node, at)

        evidence = exit_evidence.record_evidence(message, wall)
        if self._plan.launcher is not None and lost_peer.explain_mpi_code(message.code):
            evidence["lost_peer"] = lost_peer.explain_mpi_code(message.code)
        exited = e.RankExited(
            wall(message.at),
            message.rank,
            node,
            message.code,
            message.signal,
            message.error,
            evidence or None,
        )
        if self._world:
            self._world.end()
        self._record(exited)
        self._handle(exited)

    def note_output(self, node: int, message: m.OutputSeen) -> None:
        self._record(e.FirstOutput(self._clocks.wall(node, message.at), message.rank, node))

    def note_group(self, node: int, message: m.GroupSeen) -> None:
        at = self._clocks.wall(node, message.at)
        self._record(e.GroupFormed(at, message.rank, node, message.backend))
        if message.has_older_store and not self._has_older_store:
            self._has_older_store = True
            self._record(e.JobWarned(at, "libuv", _OLDER_STORE))
        self.note_training(message.rank)

    def note_training(self, rank: int) -> None:
        if self._world is None:
            # Ranks without PyTorch need none.
            from drumline.supervisor.watching.world import WorldGuard

            self._world = WorldGuard(self._plan)
        self._world.note_training(rank)

    def note_other_mpi(self, message: m.OtherMpiSeen) -> None:
        if self._has_other_mpi:
            return
        self._has_other_mpi = True
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

    def note_warm_request(self, node: int, message: m.WarmRequested) -> None:
        self._record(e.WarmAsked(self._clocks.wall(node, message.at), node))

    def note_warm_fork(self, node: int, message: m.WarmForked) -> None:
        began, at = self._clocks.wall(node, message.began), self._clocks.wall(node, message.at)
        rest = (message.reused, message.import_s, message.modules, message.until, message.pid)
        self._record(e.WarmStart(at, node, began, *rest))

    def note_warm_refusal(self, node: int, message: m.WarmRefused) -> None:
        at, asked = self._clocks.wall(node, message.at), self._plan.warm == "on"
        self._record(e.WarmDeclined(at, node, message.reason, asked, message.rank))

    def note_inspection(self, node: int, message: m.RanksInspected) -> None:
        found = {
            one.rank: missing_rank.RunningRank(tuple(hang.list_places(one.processes)), one.in_flight)
            for one in message.ranks
        }
        self._handle(h.Found(node, found))
