"""
Polls of all ranks and nodes: what each rank has done so far and where it is, which agents are silent, and what the
clocks of the nodes show. They show whether the job hangs, and answer ``drumline job stacks``.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.contract.words import format_seconds
from drumline.supervisor.clocks import wall_time
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.watching import hang

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.supervisor.attempt.connections import AgentConnections
    from drumline.supervisor.clocks import Clocks


_ANSWER_TIMEOUT_S = 6.0
"""For all nodes to answer; then those count that did."""

_NODE_TIMEOUT_S = 0.005
"""Added for each node: to take in its answer, with the stacks of eight ranks, takes a third of that."""


class _Round:
    """A round of questions about progress. ``asked``: by which request; empty: by ourselves."""

    def __init__(self, nodes: set[int], *, stacks: bool, asked: str) -> None:
        self.waiting = nodes
        self.stacks = stacks
        self.asked = asked
        self.ranks: dict[int, m.RankProgress] = {}
        self.others: dict[int, hang.RankSample] = {}
        """By node, what is no rank's."""

        self.began = time.time()
        self.patience_s = _ANSWER_TIMEOUT_S + len(nodes) * _NODE_TIMEOUT_S
        self.deadline = time.monotonic() + self.patience_s

    def add(self, node: int, message: m.ProgressPolled) -> None:
        """Add the answer of a node, for which is not waited any more."""
        self.ranks.update({one.rank: one for one in message.ranks})
        self.others[node] = hang.RankSample(0, message.other_cpu_s, message.other_io_bytes)
        self.waiting.discard(node)

    @property
    def processes(self) -> dict[int, list[m.ProcessStack]]:
        """Return the processes of each rank, by rank."""
        return {rank: self.ranks[rank].processes for rank in sorted(self.ranks)}


class ProgressPoll:
    """
    Polls the progress of ranks. ``labels``: of the ranks. ``record`` takes an event of the job, ``handle`` what the
    policy is to hear of. ``hang_after_s``: 0 for never. ``ends_when_hung``: whether a job that hangs is ended.
    """

    def __init__(
        self,
        folder: RunFolder,
        agents: AgentConnections,
        labels: Mapping[int, str],
        hang_after_s: float,
        ends_when_hung: bool,
        record: Callable[[e.Event], None],
        handle: Callable[[h.Happening], None],
    ) -> None:
        self._folder = folder
        self._agents = agents
        self._labels = labels
        self._hang_after_s = hang_after_s
        self._record = record
        self._handle = handle
        self._watches = hang.JobWatches(hang_after_s, ends_when_hung=ends_when_hung)
        self._is_told = False
        """Whether a report stands, and nothing was told since."""

        self._silences = AgentSilences(record)
        self._late: dict[int, m.ProgressPolled] = {}
        """By node, an answer that came when its round was over: it counts in the next one where it is late again."""

        self._told: dict[int, list[int]] = {}
        """By node, the numbers of its samples in its last answer."""

        self._next: float | None = None
        self._count = 0
        self._rounds: dict[int, _Round] = {}
        self._request_seen = folder.read_word(folder.stacks_request)

    def begin(self) -> None:
        """Begin to poll: all ranks run."""
        if self._hang_after_s:
            self._next = time.monotonic() + self._watches.pause_s

    def note_exception(self) -> None:
        """Note that a program of a rank has ended of an exception, which its process may outlive."""
        if self._next is not None and self._watches.note_exception():
            self._next = time.monotonic()

    def end(self) -> None:
        """End polling: ranks have been told to end, and are left alone."""
        self._next = None

    def leave_out(self, passed_s: float) -> None:
        """Leave out time that passed, as HangDetector does."""
        self._watches.leave_out(passed_s)
        self._silences.leave_out(passed_s)
        for poll_round in self._rounds.values():
            poll_round.deadline += passed_s
        if self._next is not None:
            self._next += passed_s

    def list_times(self) -> list[float]:
        """List the times at which there is something to do, in monotonic seconds."""
        times = [poll_round.deadline for poll_round in self._rounds.values()]
        return times if self._next is None else [*times, self._next]

    def start_requested(self) -> None:
        request = self._folder.read_word(self._folder.stacks_request)
        if request and request != self._request_seen:
            self._request_seen = request
            self._start_round(stacks=True, asked=request)

    def start_when_due(self) -> None:
        now = time.monotonic()
        if self._next is not None and now >= self._next:
            self._next = now + self._watches.pause_s
            # One that is late is not followed by another.
            if all(poll_round.asked for poll_round in self._rounds.values()):
                self._start_round(stacks=self._watches.wants_stacks(now))
        for number in [number for number, poll_round in self._rounds.items() if poll_round.deadline <= now]:
            self._end_round(self._rounds.pop(number))

    def _start_round(self, *, stacks: bool, asked: str = "") -> None:
        nodes = self._agents.connected_nodes()
        self._count += 1
        self._rounds[self._count] = _Round(nodes, stacks=stacks, asked=asked)
        self._agents.send_all(nodes, m.PollProgress(self._count, stacks))

    def take_in(self, node: int, message: m.ProgressPolled) -> None:
        self._silences.note_answer(node)
        self._told[node] = [-1 - node, *(one.rank for one in message.ranks)]
        poll_round = self._rounds.get(message.id)
        if poll_round is None:
            self._late[node] = message
            return
        self._late.pop(node, None)
        poll_round.add(node, message)
        if not poll_round.waiting:
            del self._rounds[message.id]
            self._end_round(poll_round)

    def _end_round(self, poll_round: _Round) -> None:
        poll_round.waiting &= self._agents.connected_nodes()
        now = time.monotonic()
        self._silences.note_missing(poll_round.waiting, poll_round.deadline - poll_round.patience_s, now)
        if poll_round.asked:
            self._write(
                self._folder.stacks,
                poll_round.asked,
                self._explain(self._watches.report, poll_round, now),
                poll_round,
            )
        else:
            for node in [one for one in poll_round.waiting if one in self._late]:
                poll_round.add(node, self._late.pop(node))
            self._judge_progress(poll_round)

    def _judge_progress(self, poll_round: _Round) -> None:
        samples = {rank: _make_sample(one) for rank, one in poll_round.ranks.items()}
        samples |= {-1 - node: one for node, one in poll_round.others.items()}
        late = self._list_samples(poll_round.waiting)
        stopped = self._list_samples(filter(self._silences.is_silent, poll_round.waiting))
        poll = hang.Poll(samples, time.monotonic(), late, stopped, poll_round.stacks)
        news = self._watches.add(poll)
        if news:
            self._tell_hang(news, poll_round, poll.now)
        elif self._is_told and not self._watches.is_hung:
            self._is_told = False
            self._record(e.JobWentOn(wall_time()))
            self._handle(h.Hung(""))

    def _tell_hang(self, news: hang.HangNews, poll_round: _Round, now: float) -> None:
        silence = hang.describe_silence(news.watch, self._labels)
        reason = f"{silence}: {self._explain(news.watch, poll_round, now)}"
        if not self._is_told:
            self._is_told = True
            self._write(self._folder.hang, "", reason, poll_round)
            self._record(e.JobHung(wall_time(), reason))
        self._handle(h.Hung(reason, ends=news.ends, lost=news.lost))

    def _list_samples(self, nodes: Iterable[int]) -> set[int]:
        return {number for node in nodes for number in self._told.get(node, [-1 - node])}

    def _explain(self, watch: hang.HangDetector, poll_round: _Round, now: float) -> str:
        entered = {rank: one.activity.collectives for rank, one in poll_round.ranks.items()}
        where = hang.explain_hang(poll_round.processes, self._labels, watch, now, entered)
        silent = [
            f"the agent of node {node} "
            + (
                f"does not answer: {STOPPED}"
                if self._silences.is_silent(node)
                else "has not answered in time"
            )
            for node in sorted(poll_round.waiting)
        ]
        return "; ".join([where, *silent])

    def _write(self, path: str, number: str, reason: str, poll_round: _Round) -> None:
        ranks = {str(rank): processes for rank, processes in poll_round.processes.items()}
        with contextlib.suppress(OSError):
            self._folder.write(
                path, json.dumps({"id": number, "began": poll_round.began, "reason": reason, "ranks": ranks})
            )


def _make_sample(rank: m.RankProgress) -> hang.RankSample:
    poll = (rank.poll_cpu_s, rank.poll_io_bytes)
    where = hang.locate_rank(rank.processes)
    return hang.RankSample(rank.log_bytes, rank.cpu_s, rank.io_bytes, *poll, where, rank.activity)


# Agents that do not answer: one that was stopped keeps its connection, and its ranks may go on without it.


STOPPED = "it was stopped, or its machine stands still"

SILENT_S = 20.0
"""Without an answer to two questions in turn; a busy machine may take its time, and so may the supervisor."""


class AgentSilences:
    """Records that an agent has not answered for a while, once, and that it does again. Times are monotonic seconds."""

    def __init__(self, record: Callable[[e.Event], None]) -> None:
        self._record = record
        self._since: dict[int, float] = {}
        """By node: when the first of the questions was asked that it has not answered."""

        self._told: set[int] = set()

    def note_missing(self, nodes: Collection[int], asked: float, now: float) -> None:
        """Note that these nodes have not answered a question that was asked then."""
        for node in nodes:
            since = self._since.setdefault(node, asked)
            silent_s = now - since
            if asked > since and silent_s >= SILENT_S and node not in self._told:
                self._told.add(node)
                reason = f"has not answered for {format_seconds(silent_s)}: {STOPPED}"
                self._record(e.AgentSilent(wall_time(), node, reason))

    def is_silent(self, node: int) -> bool:
        return node in self._told

    def note_answer(self, node: int) -> None:
        self._since.pop(node, None)
        if node in self._told:
            self._told.discard(node)
            self._record(e.AgentSilent(wall_time(), node, ""))

    def leave_out(self, passed_s: float) -> None:
        """Leave out time in which nothing of the job could do anything."""
        self._since = {node: since + passed_s for node, since in self._since.items()}


# Questions to agents for their nodes' clocks, and what readers of the run folder are told of the answers.


class ClockPoll:
    """Polls the clocks of the nodes, several times each at first; ``clocks`` compares them with this machine's."""

    def __init__(self, folder: RunFolder, attempt: int, agents: AgentConnections, clocks: Clocks) -> None:
        self._folder = folder
        self._attempt = attempt
        self._agents = agents
        self._clocks = clocks

    def ask(self, node: int) -> None:
        """Ask the agent of a node for its clock."""
        self._clocks.ask(node)
        self._agents.send(node, m.ReadClock())

    def take_answer(self, node: int, message: m.ClockRead) -> None:
        """Take in an answer, and ask again where one more makes the comparison better."""
        if self._clocks.take_answer(node, message.at):
            self.ask(node)

    def poll(self) -> None:
        """Ask all nodes once more if it is time for that, and write down for readers what has become known."""
        if self._clocks.is_due():
            for node in self._agents.connected_nodes():
                self.ask(node)
        begins = self._clocks.take_new()
        if begins is not None:
            # A full disk costs lateness of ranks, and nothing else.
            with contextlib.suppress(OSError):
                written = {"attempt": self._attempt, "nodes": begins}
                self._folder.write(self._folder.clocks, json.dumps(written))
