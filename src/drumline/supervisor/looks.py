"""
Looks at the ranks of all nodes: what each has done so far, and where it is. Now and then, to see whether the job hangs,
and whenever somebody asks (``drumline job stacks``).
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.supervisor import hang
from drumline.supervisor import policy as p
from drumline.supervisor.clocks import wall_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.supervisor.agents import Agents

_TIMEOUT_S = 6.0
"""For all nodes to answer; then those count that did."""


class _Look:
    """``asked``: by which request; empty: by ourselves."""

    def __init__(self, nodes: set[int], *, stacks: bool, asked: str) -> None:
        self.waiting = nodes
        self.stacks = stacks
        self.asked = asked
        self.ranks: dict[int, dict[str, Any]] = {}
        self.others: dict[int, dict[str, Any]] = {}
        """By node, what is no rank's."""

        self.began = time.time()
        self.deadline = time.monotonic() + _TIMEOUT_S

    @property
    def processes(self) -> dict[int, list[Mapping[str, Any]]]:
        """By rank."""
        return {rank: self.ranks[rank]["processes"] for rank in sorted(self.ranks)}


class Looks:
    """
    ``labels``: of the ranks. ``record`` takes an event of the job, ``happen`` what the policy is to hear of.
    ``hang_after_s``: 0 for never.
    """

    def __init__(
        self,
        folder: RunFolder,
        agents: Agents,
        labels: Mapping[int, str],
        hang_after_s: float,
        record: Callable[[e.Event], None],
        happen: Callable[[p.Happening], None],
    ) -> None:
        self._folder = folder
        self._agents = agents
        self._labels = labels
        self._hang_after_s = hang_after_s
        self._record = record
        self._happen = happen
        self._watch = hang.Watch(hang_after_s)
        self._sure = hang.Watch(hang_after_s, hang.END)
        self._next: float | None = None
        self._count = 0
        self._looks: dict[int, _Look] = {}
        self._request_seen = folder.read_word(folder.stacks_request)

    def begin(self) -> None:
        """All ranks run."""
        if self._hang_after_s:
            self._next = time.monotonic() + self._watch.pause_s

    def end(self) -> None:
        """Ranks have been told to end, and are left alone."""
        self._next = None

    def leave_out(self, passed_s: float) -> None:
        """As of hang.Watch."""
        self._watch.leave_out(passed_s)
        self._sure.leave_out(passed_s)
        for look in self._looks.values():
            look.deadline += passed_s
        if self._next is not None:
            self._next += passed_s

    def due(self) -> list[float]:
        """When there is something to do, in monotonic seconds."""
        times = [look.deadline for look in self._looks.values()]
        return times if self._next is None else [*times, self._next]

    def look_for_request(self) -> None:
        request = self._folder.read_word(self._folder.stacks_request)
        if request and request != self._request_seen:
            self._request_seen = request
            self._look(stacks=True, asked=request)

    def look_when_due(self) -> None:
        now = time.monotonic()
        if self._next is not None and now >= self._next:
            self._next = now + self._watch.pause_s
            # One that is late is not followed by another.
            if all(look.asked for look in self._looks.values()):
                self._look(stacks=self._watch.wants_places(now) or self._sure.wants_places(now))
        for number in [number for number, look in self._looks.items() if look.deadline <= now]:
            self._seen(self._looks.pop(number))

    def _look(self, *, stacks: bool, asked: str = "") -> None:
        nodes = self._agents.connected()
        self._count += 1
        self._looks[self._count] = _Look(nodes, stacks=stacks, asked=asked)
        for node in nodes:
            self._agents.send(node, "look", id=self._count, stacks=stacks)

    def answered(self, node: int, message: dict[str, Any]) -> None:
        look = self._looks.get(message["id"])
        if look is None:
            return
        look.ranks.update({one["rank"]: one for one in message["ranks"]})
        look.others[node] = message["others"]
        look.waiting.discard(node)
        if not look.waiting:
            del self._looks[message["id"]]
            self._seen(look)

    def _seen(self, look: _Look) -> None:
        if look.asked:
            where = hang.explain(look.processes, self._labels, self._watch, time.monotonic())
            self._write(self._folder.stacks, look.asked, where, look)
        else:
            self._judge(look)

    def _judge(self, look: _Look) -> None:
        now = time.monotonic()
        seen = {rank: _seen_of(one) for rank, one in look.ranks.items()}
        seen |= {-1 - node: hang.Seen(0, one["cpu_s"], one["io_bytes"]) for node, one in look.others.items()}
        hung_before = self._watch.is_hung
        hangs, surely = self._watch.saw(seen, now), self._sure.saw(seen, now)
        if not hangs and not surely:
            if hung_before and not self._watch.is_hung:
                self._record(e.JobWentOn(wall_time()))
                self._happen(p.WentOn())
            return
        where = hang.explain(look.processes, self._labels, self._watch, now)
        reason = f"{hang.silence(self._hang_after_s)}: {where}"
        if hangs:
            self._write(self._folder.hang, "", reason, look)
            self._record(e.JobHung(wall_time(), reason))
        self._happen(p.Hung(reason, is_sure=self._sure.is_hung))

    def _write(self, path: str, number: str, reason: str, look: _Look) -> None:
        ranks = {str(rank): processes for rank, processes in look.processes.items()}
        with contextlib.suppress(OSError):
            self._folder.write(
                path, json.dumps({"id": number, "began": look.began, "reason": reason, "ranks": ranks})
            )


def _seen_of(rank: Mapping[str, Any]) -> hang.Seen:
    look = rank["look"]
    where = hang.where_of(rank["processes"])
    return hang.Seen(
        rank["log_bytes"], rank["cpu_s"], rank["io_bytes"], look["cpu_s"], look["io_bytes"], where
    )
