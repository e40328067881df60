"""The progress of each rank of an attempt: started, ended, lost with its node; and the search for a failure's cause."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.events import RankExited
from drumline.contract.words import name_several
from drumline.supervisor.deciding.happenings import NODE_LOST_CODE, Finish, Seek, SetTimer
from drumline.supervisor.explaining import exit_messages, missing_rank, verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from drumline.supervisor.deciding.happenings import Broken, Found, Instruction, Member, Started
    from drumline.supervisor.explaining.missing_rank import RunningRank


class RankTable:
    """The ranks of an attempt. ``members``: by rank."""

    def __init__(self, members: Mapping[int, Member], node_count: int) -> None:
        self._members = members
        self.nodes = set(range(node_count))
        """Those whose agent is there."""

        # Unlike a dict, it finds its first entry at once where many before that were removed.
        self._left = OrderedDict(members)
        """Those that have not ended, so that none of many ends costs a look at all ranks."""

        self._of_node: dict[int, list[int]] = {}
        for rank, member in members.items():
            self._of_node.setdefault(member.node, []).append(rank)
        self._awaited_left = sum(member.awaited for member in members.values())
        self._explained: set[int] = set()
        """Those that failed, and not for want of a peer."""

        self._earliest: RankExited | None = None
        """The failure with the earliest time, as far as is known."""

        self._waited_for: set[int] = set()
        """Those that failures name as late."""

        self.runnable: Collection[int] | None = None
        """The ranks that may run; None before any is to start."""

        self._started: set[int] = set()
        self._start_time: float | None = None
        self._exited: dict[int, RankExited] = {}
        self._lost: set[int] = set()
        """Those that ended with their node: nothing is known of that."""

        self._last_failure: RankExited | None = None
        """The last that was heard of before the others were told to end."""

        self.answers: dict[int, RunningRank] = {}
        """By rank, what ranks that were left have answered to Seek."""

    @property
    def has_failed(self) -> bool:
        """Return whether a rank has failed before the others were told to end."""
        return self._last_failure is not None

    def is_unexplained(self, end: Finish) -> bool:
        """Return whether all that failed did because another was gone or late, which ``end`` does not name either."""
        # Its code is 0 where it ended early, and was not cut off itself.
        return not self._explained and self._find_blamed(end).code != 0

    def _find_blamed(self, end: Finish) -> RankExited:
        assert end.rank is not None
        return self._exited[end.rank]

    @property
    def are_all_started(self) -> bool:
        return len(self._started) == len(self._members)

    def begin(self, *, is_launched: bool) -> None:
        """Let ranks start. ``is_launched``: something else than the agents starts them, and may start some only."""
        # With a launcher, a rank that was not started when the others are told to end will not be: agents refuse it.
        self.runnable = self._started if is_launched else self._members

    def note_start(self, event: Started) -> None:
        self._started.add(event.rank)
        if event.time is not None:
            self._start_time = min(event.time, self._start_time or event.time)

    def note_exit(self, event: RankExited) -> bool:
        """Return whether this end can change whom ``judge_failure`` blames; ``is_missed`` tells it of a good end."""
        member = self._left.pop(event.rank, None)
        self._awaited_left -= member is not None and member.awaited
        self._exited[event.rank] = event
        self._explained.discard(event.rank)
        if event.code == 0:
            return True
        at, before = missing_rank.find_failure_time(event), self._earliest
        is_earliest = before is None or at < missing_rank.find_failure_time(before)
        if is_earliest:
            self._earliest = event
        if not missing_rank.find_lost_peer(event):
            self._explained.add(event.rank)
        elif missing_rank.gave_up_waiting(event):
            self._waited_for.update(missing_rank.read_named_ranks(event))
        return event.rank in self._explained or is_earliest

    def is_missed(self, event: RankExited) -> bool:
        """Return whether a rank that ended well may explain failures of which nothing else does."""
        assert self._earliest is not None
        was_told = (event.evidence or {}).get("told") is not None
        is_early = missing_rank.find_early_end({event.rank: event}, self._earliest) is not None
        return is_early or was_told or event.rank in self._waited_for

    def note_failure(self, event: RankExited) -> None:
        """Note that the rank ended while the others had not been told to."""
        if event.code != 0:
            self._last_failure = event

    def note_lost(self, node: int) -> None:
        """Note that the ranks of a node have ended with it."""
        self.nodes.discard(node)
        for rank in self._of_node.get(node, ()):
            if rank in self._left and rank in (self.runnable or ()):
                self.note_exit(RankExited(0.0, rank, node, None, 9))
                self._lost.add(rank)

    def note_answers(self, answers: Mapping[int, RunningRank]) -> None:
        """Note where ranks are, and what they are failing of."""
        for rank, answer in answers.items():
            self.answers[rank] = missing_rank.merge_answers(self.answers.get(rank), answer)

    def choose_patience_s(self, end: Finish) -> float:
        """Choose how long after the end of the rank that ``end`` names the others are told to, by their answers."""
        answers = [answer for rank, answer in self.answers.items() if self._is_left(rank)]
        return missing_rank.choose_patience_s(answers, self._find_blamed(end))

    @property
    def is_any_left(self) -> bool:
        """Return whether a rank on a node whose agent is there has not ended."""
        return any(map(self._is_left, self._left))

    def _is_left(self, rank: int) -> bool:
        is_runnable = self.runnable is not None and rank in self.runnable
        return is_runnable and rank in self._left and self._members[rank].node in self.nodes

    def are_awaited_done(self) -> bool:
        """Return whether all ranks have ended that the job waits for."""
        return not self._awaited_left

    def describe_completion(self) -> tuple[str, bool]:
        """Return the reason for the end of a job whose awaited ranks are done, and whether others are left."""
        awaited = [member.label for member in self._members.values() if member.awaited]
        left = [member.label for member in self._left.values()]
        return exit_messages.describe_completion(awaited, left), bool(left)

    def count_started(self) -> int:
        return len(self._started)

    def describe_failure(self, event: RankExited) -> str:
        return exit_messages.describe_failure(self._members[event.rank].label, event)

    def judge_unstarted(self, launcher: str, limit: str) -> Finish:
        """Return the end of a job whose ranks did not start in time. ``launcher``: empty where agents start them."""
        late = sorted(self._members.keys() - self._started)
        labels = [self._members[rank].label for rank in late]
        if launcher:
            reason = f"{launcher} did not start rank {', '.join(labels)} within {limit}"
            return Finish(status.FAILED, 1, reason, node=0)
        nodes = sorted({self._members[rank].node for rank in late})
        where = ", ".join(f"node {node}" for node in nodes)
        reason = f"{where} did not start {name_several('rank', labels)} within {limit}"
        return Finish(status.FAILED, NODE_LOST_CODE, reason, node=nodes[0])

    def blame(self, rank: int, reason: str) -> Finish:
        """Return the end of the job by a rank that has failed and not ended, until ``judge_end`` knows its end."""
        return Finish(status.FAILED, 1, reason, rank, self._members[rank].node, blames="rank")

    def judge_end(self, end: Finish) -> Finish:
        """Return the end of the job now that all ranks have ended, which may tell more of whom it blames."""
        if end.blames == "launcher" and (aborted := missing_rank.find_abort(self._exited.values())):
            self._exited[aborted.rank] = aborted
            return self.judge_failure()
        is_failed = any(exit_.code != 0 for rank, exit_ in self._exited.items() if rank not in self._lost)
        return self.judge_failure() if end.blames == "rank" and is_failed else end

    def judge_failure(self) -> Finish:
        """Return the end of the job by what failed."""
        stopped_after = self._last_failure.time if self._last_failure else None
        exits = {rank: exit_ for rank, exit_ in self._exited.items() if rank not in self._lost}
        labels = {rank: member.label for rank, member in self._members.items()}
        return _finish(verdict.judge(labels, exits, stopped_after, self._start_time, self.answers))

    def judge_broken(self, broken: Broken) -> Finish:
        """
        Return the end of a job whose launcher gave up, which may be because of a rank that ended well.

        It names no rank as failed, of which another judgement would look for a better cause.
        """
        labels = {rank: member.label for rank, member in self._members.items()}
        unfinished = verdict.judge_unfinished(labels, self._exited, self._start_time, broken.reason)
        if unfinished:
            return _finish(unfinished)._replace(rank=None, blames="launcher")
        return Finish(status.FAILED, broken.code, broken.reason, node=broken.node, blames="launcher")


def _finish(found: verdict.Verdict) -> Finish:
    return Finish(
        status.FAILED, found.exit_code, found.reason, found.rank, found.node, found.fields, blames="rank"
    )


# The wait for the cause, while every failure so far is that of a lost peer.


class CauseSearch:
    """Asks ranks that are left where they are, again and again, for as long as the answers are worth the wait."""

    def __init__(self, ranks: RankTable) -> None:
        self._ranks = ranks
        self.is_on = False
        self._asked: set[int] = set()
        """Nodes that have still to answer."""

        self._waited_s = 0.0

    def begin(self, grace_s: float) -> list[Instruction]:
        """Ask the ranks for the first time."""
        self.is_on = True
        self._waited_s = min(missing_rank.SETTLE_S, grace_s)
        return [*self.ask(), SetTimer("cause", self._waited_s)]

    def ask(self) -> list[Instruction]:
        """Ask those that have no question open: one that is slow must not hear of the end behind a queue of them."""
        if not self.is_on:
            return []
        wanted = tuple(sorted(self._ranks.nodes - self._asked))
        self._asked |= self._ranks.nodes
        return [Seek(wanted)] if wanted else []

    def take(self, event: Found) -> list[Instruction]:
        """Take in the answer of a node."""
        self._asked.discard(event.node)
        self._ranks.note_answers(event.where)
        return [SetTimer("ask", missing_rank.ASK_AGAIN_S)] if self.is_on else []

    def wait_on(self, end: Finish, grace_s: float) -> list[Instruction]:
        """Return the next timer; nothing when the wait is over. ``end``: of the job, by what is known so far."""
        waits_s = min(self._ranks.choose_patience_s(end), grace_s)
        if waits_s <= self._waited_s:
            return []
        more_s, self._waited_s = waits_s - self._waited_s, waits_s
        return [SetTimer("cause", more_s)]
