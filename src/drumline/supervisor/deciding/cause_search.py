"""The wait for the cause, while every failure so far is that of a lost peer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.supervisor.deciding.happenings import Seek, SetTimer
from drumline.supervisor.explaining import missing_rank

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from drumline.contract.events import RankExited
    from drumline.supervisor.deciding.happenings import Found, Instruction


class CauseSearch:
    """Asks ranks that are left where they are, again and again, for as long as the answers are worth the wait."""

    def __init__(self) -> None:
        self.is_on = False
        self.answers: dict[int, missing_rank.RunningRank] = {}
        """By rank."""

        self._asked: set[int] = set()
        """Nodes that have still to answer."""

        self._waited_s = 0.0

    def begin(self, nodes: AbstractSet[int], grace_s: float) -> list[Instruction]:
        """Ask the ranks on those nodes for the first time."""
        self.is_on = True
        self._waited_s = min(missing_rank.SETTLE_S, grace_s)
        return [*self.ask(nodes), SetTimer("cause", self._waited_s)]

    def ask(self, nodes: AbstractSet[int]) -> list[Instruction]:
        """Ask those that have no question open: one that is slow must not hear of the end behind a queue of them."""
        if not self.is_on:
            return []
        wanted = tuple(sorted(nodes - self._asked))
        self._asked |= nodes
        return [Seek(wanted)] if wanted else []

    def take(self, event: Found) -> list[Instruction]:
        """Take in the answer of a node."""
        self._asked.discard(event.node)
        for rank, where in event.where.items():
            self.answers[rank] = missing_rank.merge_answers(self.answers.get(rank), where)
        return [SetTimer("ask", missing_rank.ASK_AGAIN_S)] if self.is_on else []

    def wait_on(self, left: Iterable[int], blamed: RankExited, grace_s: float) -> list[Instruction]:
        """Return the next timer; nothing when the wait is over. ``left``: the ranks that have not ended."""
        known = [self.answers[rank] for rank in left if rank in self.answers]
        waits_s = min(missing_rank.choose_patience_s(known, blamed), grace_s)
        if waits_s <= self._waited_s:
            return []
        more_s, self._waited_s = waits_s - self._waited_s, waits_s
        return [SetTimer("cause", more_s)]
