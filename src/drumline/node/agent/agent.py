"""
One agent per node: it does what the supervisor says (``messages.ToAgent``) and tells what it sees
(``messages.FromAgent``). It decides one thing by itself: when the supervisor is gone, its ranks end.

With a launcher, such as mpirun, ``LaunchRanks`` starts that on the first node, and ranks are started as it asks for
them. A SIGTERM says that the node is taken away; at a second one the agent does not wait for the supervisor.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract import channel
from drumline.contract import messages as m
from drumline.contract.errors import describe_os_error
from drumline.contract.record import NamedTuple
from drumline.linux import cgroups, descendants, kernel
from drumline.node.agent.environment import JobEnvironment
from drumline.node.agent.node_preparation import Preparation
from drumline.node.agent.observing import Observer
from drumline.node.agent.processes import Children
from drumline.node.agent.ranks import Ending, Notice, Ranks
from drumline.node.scratch import keep_from_cleaners
from drumline.node.warm.rank_starter import WarmRankStarter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import NoReturn

    from drumline.linux.inotify import Inotify
    from drumline.node.agent.launching import Launching


ORPHAN_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL when the supervisor is gone: nobody is left to wait for."""

_TICK_S = 1e-6
"""Between the exits of two ranks that were seen at once."""


class Starter(NamedTuple):
    """
    The process that removes the agent's control group when the agent has ended, and holds ``inotify`` open until then,
    if there is one: to leave a group, and to be the last to close an inotify, each takes the kernel ten milliseconds.
    ``process``: a descriptor that is readable when that process has ended, for an agent whose connection may not tell.
    ``is_isolated``: whether the agent is in namespaces of its own.
    """

    inotify: Optional[Inotify]
    process: int = -1
    is_isolated: bool = False
    silence_s: int = channel.SILENCE_S


class Agent:
    """
    The agent of a node. ``scratch``: this node's own folder for temporary files, removed at the end; empty for none.
    ``cgroup``: the control group to be in, which whoever starts the agent removes; empty for none. ``hello``: more to
    say at first. ``ended_by``: the program whose SIGTERM to this process reaches all that is below it too; empty: there
    is none. ``starter``: who waits for the agent's end; None: nobody does.
    """

    def __init__(
        self,
        peer: socket.socket,
        node: int,
        address: str,
        scratch: str = "",
        cgroup: str = "",
        *,
        hello: Mapping[str, Any] | None = None,
        ended_by: str = "",
        starter: Starter | None = None,
    ) -> None:
        self._hello = m.Hello(
            "", node, *channel.identify_package(), os.getpid(), address, "", **(hello or {})
        )
        self._cgroup = cgroup
        self._starter = starter
        self._session = Session(peer)
        tell = self._session.tell
        # Unlike poll, it tells in which order things happened, however late we look.
        self._poller = select.epoll()
        self._preparation = Preparation(node, address, self._poller, tell)
        self._environment = JobEnvironment(scratch)
        is_isolated = starter is not None and starter.is_isolated
        self._warm = WarmRankStarter(self._poller, scratch, tell, is_isolated=is_isolated)
        self._children = Children(self._poller, self._warm)
        inotify = starter.inotify if starter else None
        self._observer = Observer(self._environment, self._poller, inotify, tell)
        self._ranks = Ranks(self._environment, self._children, self._warm, self._observer, tell)
        self._notice = Notice(ended_by, self._children, tell)
        self._ending = Ending(self._environment, self._ranks, self._warm, self._notice)
        self._launching: Launching | None = None

    def run(self, secret: str) -> None:
        """Serve until told to leave, or until the supervisor is gone. Nothing of the node is left afterwards."""
        kernel.adopt_orphans()
        containment = "cgroup" if cgroups.join_group(self._cgroup) else "subreaper"
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._notice.listen(self._poller)
        self._session.register(self._poller)
        if self._starter and self._starter.process >= 0:
            self._poller.register(self._starter.process, select.EPOLLIN)
        try:
            self._session.tell(self._hello._replace(secret=secret, containment=containment))
            while self._serve():
                pass
        except channel.ChannelError as error:
            print(f"node {self._hello.node}: the supervisor is not understood: {error}", file=sys.stderr)
            raise
        except OSError as error:
            print(f"node {self._hello.node}: the supervisor is gone ({error})", file=sys.stderr)
        finally:
            self._warm.give_up()
            # A fork server that is left has what it needs; a warm pool without one has nothing to do.
            descendants.end_descendants(
                0.0 if self._notice.is_given_twice else ORPHAN_GRACE_S,
                told=self._ending.told,
                other=self._warm.fork_server,
            )
            self._warm.end()
            self._observer.end_sampling()
            self._environment.remove_scratch()
            # Nobody may be left who would: a supervisor that was killed while this agent was still coming.
            if containment == "cgroup" and not (self._starter and self._session.may_leave):
                cgroups.leave_group(self._cgroup)

    def _serve(self) -> bool:
        ready = [descriptor for descriptor, _ in self._poller.poll(self._observer.due_in_s())]
        self._observer.look(ready)
        if self._launching and not self._hear_launcher(self._launching, ready):
            return False
        self._preparation.hear(ready)
        if self._notice.comes_before(ready) and not self._notice.take():
            return False
        if self._warm.has_answer(ready):
            self._ranks.start_forked()
        # A rank that failed is told before anything that was asked for since.
        self._tell_exits(ready)
        if self._notice.descriptor in ready and not self._notice.take():
            return False
        for message in self._session.receive(ready):
            if not self._obey(message) or self._session.may_leave:
                return False
        if self._starter and self._starter.process in ready:
            raise ConnectionError("its process has ended")
        self._observer.sample(self._ranks.by_pid)
        return True

    def _hear_launcher(self, launching: Launching, ready: Sequence[int]) -> bool:
        """
        Hear the launcher; False when a request failed for want of something on this node, which the supervisor is told.
        """
        launching.helpers.hear(ready)
        # A launcher lets go of ranks because one has failed, or one fails because it was let go of: the order tells.
        self._tell_exits(ready, launching.socket.first(ready))
        try:
            launching.hear(ready)
        except ConnectionError:
            raise
        except OSError as error:
            self._session.tell(m.AgentLeaving(f"starting a process failed: {describe_os_error(error)}"))
            return False
        return True

    def _tell_exits(self, ready: Sequence[int] = (), until: int | None = None) -> None:
        """Tell the supervisor which ranks have exited. ``ready`` and ``until``: as of Children.reap."""
        at = time.monotonic()
        for index, one in enumerate(self._children.reap(ready, until)):
            self._tell_exit(one, at + index * _TICK_S)

    def _tell_exit(self, ended: descendants.EndedProcess, at: float) -> None:
        if not self._children.forget(ended.pid):
            return  # An orphan of a rank, adopted by us.
        helper = self._launching.helpers.note_end(ended.pid, ended.exit_code) if self._launching else None
        if helper is not None:
            self._session.tell(helper)
            return
        self._ending.note_end(ended)
        rank = self._ranks.note_end(ended, at, self._ending.told_at)
        if self._launching:
            self._launching.note_end(rank, ended.exit_code)

    def _obey(self, message: m.ToAgent) -> bool:
        """Do one thing; False when that failed for want of something on this node, which the supervisor is told."""
        try:
            self._do(message)
        except ConnectionError:
            raise
        except OSError as error:
            name = type(message).__name__
            words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
            self._session.tell(m.AgentLeaving(f"it could not{words}: {describe_os_error(error)}"))
            return False
        return True

    def _do(self, message: m.ToAgent) -> None:  # noqa: C901, PLR0912 - a case a message
        if isinstance(message, m.PrepareNode):
            self._prepare(message)
        elif isinstance(message, m.ConnectToFirst):
            self._preparation.connect_to_first(message)
        elif isinstance(message, m.CheckNode):
            self._preparation.check(message)
        elif isinstance(message, m.CheckLinks):
            self._preparation.check_links(message)
        elif isinstance(message, m.ShareVariables):
            self._environment.shared = message
        elif isinstance(message, m.LaunchRanks):
            self._launch(message)
        elif isinstance(message, m.ReadClock):
            self._session.tell(m.ClockRead(time.monotonic()))
        elif isinstance(message, (m.PollProgress, m.InspectRanks, m.ListConnections)):
            # Ranks have left some to this process, such as daemons.
            children = descendants.list_own_children(self._warm.fork_server)
            self._observer.answer(message, self._ranks.by_pid, children)
        elif isinstance(message, (m.RunCommand, m.EndCommand, m.AnswerCaller)):
            if self._launching:
                self._launching.obey(message)
        elif isinstance(message, (m.BeginDrill, m.EndDrill)):
            self._drill(message)
        elif isinstance(message, m.TerminateRanks):
            if self._launching:
                self._launching.refuse_ranks()
            self._ending.terminate(message, self._list_spared())
        elif isinstance(message, m.KillRanks):
            self._ending.kill(self._list_spared())
        elif isinstance(message, m.EmptyNode):
            self._empty(message)
        elif isinstance(message, m.LeaveJob):
            self._session.may_leave = True
        else:
            _assert_never(message)

    def _prepare(self, message: m.PrepareNode) -> None:
        prepared = self._preparation.open_ports(message)
        if message.wants_launcher_socket:
            # Few jobs have a launcher, or reach from node to node: the others do not load what that takes.
            from drumline.node.agent.launching import Launching

            address = self._preparation.address
            parts = (self._children, self._ranks, self._poller)
            self._launching = Launching(self._environment, address, *parts, self._session.tell)
        self._session.tell(prepared)

    def _launch(self, message: m.LaunchRanks) -> None:
        self._preparation.end()
        self._environment.begin(message)
        self._observer.begin_sampling()
        if not message.by_launcher:
            self._ranks.start_all()
            return
        self._warm.begin(self._environment.launch, [])
        if self._launching:
            self._launching.begin()

    def _drill(self, message: m.BeginDrill | m.EndDrill) -> None:
        # Few jobs are drilled.
        from drumline.node.agent import drilling

        if isinstance(message, m.EndDrill):
            drilling.end(message, self._environment, self._ranks.by_pid)
        else:
            error = drilling.begin(message, self._environment, self._ranks.by_pid)
            self._session.tell(m.DrillTaken(message.drill, error))

    def _list_spared(self) -> list[int]:
        return self._launching.list_spared() if self._launching else []

    def _empty(self, message: m.EmptyNode) -> None:
        self._ending.begin_emptying()
        if self._launching:
            self._launching.let_end(self._tell_exits)
        self._observer.forget_gpus()
        # The supervisor may have more to say, or the node may be taken away for the second time.
        ended, survivors = self._ending.empty(
            message, self._children, lambda: self._session.is_waiting() or self._notice.is_waiting()
        )
        at = time.monotonic()
        for one in ended:
            self._tell_exit(one, at)
        self._observer.end_sampling()
        self._warm.end()
        self._environment.remove_scratch()
        self._session.tell(m.NodeEmptied(self._observer.describe(survivors)))


def _assert_never(message: NoReturn) -> NoReturn:
    """Have mypy find a message that is not handled. There is none in the ``typing`` of Python 3.9."""
    raise AssertionError(f"a message that is not handled: {message!r}")


def serve(
    address: tuple[str, int],
    secret: str,
    node: int,
    own_address: str,
    scratch: str = "",
    cgroup: str = "",
    **more: Any,
) -> None:
    """
    Connect to the supervisor and serve it; ``more`` is as of Agent. Raises OSError when it cannot be reached. Blocks
    until the job's end.
    """
    kernel.forbid_core()
    with channel.connect_to(address, 30.0) as peer, keep_from_cleaners(scratch):
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        starter = more.get("starter") or Starter(None)
        channel.notice_power_cut(peer, starter.silence_s)
        Agent(peer, node, own_address, scratch, cgroup, **more).run(secret)


# the channel to the supervisor


class Session:
    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self.may_leave = False
        """Whether the supervisor has said so."""

        self._lines = channel.Lines()

    def register(self, poller: select.epoll) -> None:
        poller.register(self._peer, select.EPOLLIN)

    def tell(self, message: m.FromAgent) -> None:
        """Send the supervisor a message. Raises OSError when the supervisor is gone."""
        channel.send(self._peer, message)

    def receive(self, ready: Sequence[int]) -> Iterable[m.ToAgent]:
        """Return what the supervisor has said, if its descriptor is ready. Raises OSError, ChannelError."""
        if self._peer.fileno() not in ready:
            return ()
        data = self._peer.recv(1 << 16)
        if not data:
            raise ConnectionError("end of file")
        return map(channel.decode_for_agent, self._lines.feed(data))

    def is_waiting(self) -> bool:
        """Return whether the supervisor has more to say."""
        return bool(select.select([self._peer], [], [], 0)[0])
