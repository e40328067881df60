"""
One agent per node: it does what the supervisor says and tells what it sees. It decides one thing by itself:
when the supervisor is gone, its ranks end.

supervisor says                 agent answers
prepare  ports, probe, address  prepared  ports, probe_port
reach    address, port          reached   error
start    ranks, cwd, ...        started   rank, pid, at   then  exited  rank, code, signal, error, at,
                                                                  evidence
                                first_output  rank, at   grouped  rank, at, backend
clock                           clock     at
look     id, stacks             looked    id, others, ranks: rank, log_bytes, cpu_s, io_bytes, look (what it took),
                                          processes (``stacks.of``)
                                asked  at, then  warmed  began, at, reused, ...  or  declined  reason, rank
seek                            sought    ranks: rank, processes (``stacks.of``), in_flight (``in_flight.of``)
run      id, command, ...       ran       id, code, signal, error
hang_up  id                     (ran, as it happens)
terminate  grace_s, all_told    (exited, as it happens)
kill                            (exited, as it happens)
empty    grace_s                emptied   survivors
leave                           (ends)

With a launcher, such as mpirun, ``start`` starts that on the first node, and ranks are started as it asks for them:
launcher_exited, abandoned  rank, misplaced  rank.
A program of this node that asks for a command on another one: shell  id, host, command, ...; the supervisor has it
run there, and says ``ran`` here. ``hung_up``  id: whoever asked is gone.
Its node is taken away, says a SIGTERM: preempted  by. At the second one it does not wait for the supervisor: leaving.

``at`` is seconds on this machine's monotonic clock.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, Optional

from drumline.contract import channel
from drumline.contract.folder import write_whole
from drumline.contract.record import NamedTuple
from drumline.node import (
    cgroups,
    containers,
    descendants,
    elastic,
    failures,
    full_disk,
    in_flight,
    kernel,
    last_words,
    ports,
    processes,
    scratch,
    stacks,
    standin,
)
from drumline.node.door import Door
from drumline.node.first_output import FirstOutput
from drumline.node.memory import Memory
from drumline.node.system_metrics import Sampler
from drumline.node.warm.starts import WarmStarts
from drumline.node.warm.tasks import Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.node.feeds import Feeds
    from drumline.node.inotify import Inotify

ORPHAN_GRACE_S = 1.0
"""Between SIGTERM and SIGKILL when the supervisor is gone: nobody is left to wait for."""

_REACH_TIMEOUT_S = 10.0
_IDLE_S = 1.0

_TOLD_TOO_S = 0.05
_TOLD_LATE_S = 0.5

_TICK_S = 1e-6
"""Between the exits of two ranks that were seen at once."""

_LAUNCHER_END_S = 1.0
"""For a launcher and its daemons, when all ranks are gone."""

_LAUNCHER_LOOK_S = 0.005

_RANK_NAMES = (b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK", b"PMI_ID")
"""Where an MPI says which rank it starts: Open MPI, anything with PMIx, MPICH and its kin."""

_NOT_OF_MPI = (b"PWD", b"OLDPWD", b"SHLVL", b"_")
"""What shells on the way change."""


class Starter(NamedTuple):
    """
    It removes the agent's control group when the agent has ended, and holds ``inotify`` open until then, if there is
    one: to leave a group, and to be the last to close an inotify, each takes the kernel ten milliseconds.
    """

    inotify: Optional[Inotify]


class Agent:
    """
    ``scratch``: this node's own folder for temporary files, removed at the end; empty for none. ``cgroup``: the control
    group to be in, which whoever starts the agent removes; empty for none. ``hello``: more to say at first.
    ``ended_by``: the program whose SIGTERM to this process reaches all that is below it too; empty: there is none.
    ``starter``: who waits for the agent's end; None: nobody does.
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
        self._peer = peer
        self._node = node
        self._address = address
        self._scratch = scratch
        self._cgroup = cgroup
        self._hello = dict(hello or {})
        self._ended_by = ended_by
        self._starter = starter
        self._may_leave = False
        """Whether the supervisor has said so."""

        self._all_are_told = False
        """Whether the ranks may have had their SIGTERM, from whoever sent it to this process."""

        self._lines = channel.Lines()
        # Unlike poll, it tells in which order things happened, however late we look.
        self._poller = select.epoll()
        self._ranks: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}
        self._started_at: dict[int, float] = {}
        self._sigterm = -1
        """Readable when this process was sent SIGTERM."""

        self._is_preempted = self._is_hurried = False
        self._told_at: float | None = None
        """When the ranks were told to end."""

        self._told: set[int] = set()
        self._shells: set[int] = set()
        """Ranks that were one when they were told."""

        self._told_until: float | None = None
        self._has_heirs = False
        """Whether a rank ended at once, as a shell does, and what it started may still be saving."""

        self._errors: dict[int, str] = {}
        self._helpers: dict[int, _Helper] = {}
        self._door: Door | None = None
        self._memory = Memory()
        self._first = FirstOutput(self._poller, self._tell, starter.inotify if starter else None)
        self._start: dict[str, Any] = {}
        self._tasks: dict[int, dict[str, Any]] = {}
        self._standins: dict[int, int] = {}
        self._feeds: Feeds | None = None
        self._asking: set[int] = set()
        self._sampler: Sampler | None = None
        self._warm = WarmStarts(self._poller, scratch, self._tell)
        self._early: list[descendants.Ended] = []
        """Ends that were seen before they could be told."""

        self._leases: list[ports.Lease] = []
        self._probe: socket.socket | None = None

    def run(self, secret: str) -> None:
        """Serve until told to leave, or until the supervisor is gone. Nothing of the node is left afterwards."""
        kernel.adopt_orphans()
        containment = "cgroup" if cgroups.join(self._cgroup) else "subreaper"
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._sigterm = kernel.readable_on_signal(signal.SIGTERM)
        self._poller.register(self._sigterm, select.EPOLLIN)
        self._poller.register(self._peer, select.EPOLLIN)
        try:
            channel.send(
                self._peer,
                "hello",
                secret=secret,
                node=self._node,
                pid=os.getpid(),
                address=self._address,
                containment=containment,
                **self._hello,
            )
            while self._serve():
                pass
        except (OSError, channel.ChannelError) as error:
            print(f"node {self._node}: the supervisor is gone ({error})", file=sys.stderr)
        finally:
            self._warm.give_up()
            # A nursery that is left has what it needs; a keeper without one has nothing to do.
            descendants.end_all(
                0.0 if self._is_hurried else ORPHAN_GRACE_S, told=self._told, other=self._warm.nursery
            )
            self._warm.end()
            self._end_sampling()
            self._remove_scratch()
            # Nobody may be left who would: a supervisor that was killed while this agent was still coming.
            if containment == "cgroup" and not (self._starter and self._may_leave):
                cgroups.leave(self._cgroup)

    def _tell(self, kind: str, **content: Any) -> None:
        channel.send(self._peer, kind, **content)

    def _serve(self) -> bool:
        idle_s = min(_IDLE_S, self._sampler.due_in_s()) if self._sampler else _IDLE_S
        ready = [descriptor for descriptor, _ in self._poller.poll(idle_s)]
        self._memory.look()
        self._first.look(ready)
        if self._door and not self._answer_the_door(ready):
            return False
        if self._ended_by and not self._is_preempted and self._is_told_too(ready) and not self._give_notice():
            return False
        if self._warm.has_answer(ready):
            self._go_on()
        # A rank that failed is told before anything that was asked for since.
        self._tell_exits(ready)
        if self._sigterm in ready and not self._give_notice():
            return False
        if self._peer.fileno() in ready:
            data = self._peer.recv(1 << 16)
            if not data:
                raise ConnectionError("end of file")
            for message in self._lines.feed(data):
                self._may_leave = message["type"] == "leave"
                if self._may_leave or not self._obey(message):
                    return False
        if self._sampler:
            self._sampler.work(self._ranks)
        return True

    def _is_told_too(self, ready: Sequence[int]) -> bool:
        """
        Whether this process was sent SIGTERM. When a rank has failed it may have been sent it a moment earlier, by
        whoever sends it to both; that is then why.
        """
        if self._sigterm in ready:
            return True
        failed = [pid for pid, pidfd in self._pidfds.items() if pidfd in ready and self._has_failed(pid)]
        return bool(failed) and bool(select.select([self._sigterm], [], [], _TOLD_TOO_S)[0])

    def _give_notice(self) -> bool:
        """The node is taken away, in a while; False when it cannot be waited for what the supervisor makes of it."""
        try:
            sender = failures.printable(kernel.sender_of_signal(self._sigterm), 100)
        except BlockingIOError:  # It was taken in before the exits were told.
            return True
        if self._ended_by and self._ended_by in sender:
            if self._is_preempted:
                return True  # Its SIGKILL follows.
            self._all_are_told = True
        if self._is_preempted:
            self._is_hurried = True
            channel.send(self._peer, "leaving", reason=f"it was sent SIGTERM twice{sender}")
            return False
        self._is_preempted = True
        channel.send(self._peer, "preempted", by=f"a SIGTERM{sender} to its agent")
        return True

    def _answer_the_door(self, ready: Sequence[int]) -> bool:
        """False when what was asked for failed for want of something on this node, which the supervisor is told."""
        assert self._door is not None
        if self._feeds:
            self._feeds.hear(set(ready))
        # A launcher lets go of ranks because one has failed, or one fails because it was let go of: the order tells.
        self._tell_exits(ready, self._door.first(ready))
        try:
            self._door.hear(set(ready))
        except ConnectionError:
            raise
        except OSError as error:
            channel.send(
                self._peer, "leaving", reason=f"starting a process failed: {error.strerror or error}"
            )
            return False
        return True

    def _obey(self, message: dict[str, Any]) -> bool:
        """Do one thing; False when that failed for want of something on this node, which the supervisor is told."""
        try:
            getattr(self, f"_do_{message['type']}")(message)
        except ConnectionError:
            raise
        except OSError as error:
            channel.send(self._peer, "leaving", reason=f"{message['type']} failed: {error.strerror or error}")
            return False
        return True

    def _do_prepare(self, message: dict[str, Any]) -> None:
        leased = {}
        self._address = message.get("address") or self._address
        for name in message["ports"]:
            leased[name], lease = ports.lease(self._address)
            self._leases.append(lease)
        if message["probe"]:
            self._probe = socket.create_server((self._address, 0), backlog=1024)
        if message["door"]:
            self._door = Door(self._scratch, self._address, self._on_request, self._on_gone)
            self._door.register(self._poller)
        probe_port = self._probe.getsockname()[1] if self._probe else 0
        channel.send(self._peer, "prepared", ports=leased, probe_port=probe_port)

    def _do_look(self, message: dict[str, Any]) -> None:
        """What each rank has done so far, and where it is, if that is wanted."""
        pids = {rank: containers.inner(self._scratch, pid) for pid, rank in self._ranks.items()}
        used = {rank: stacks.used(pid) for rank, pid in pids.items()}
        after, found = used, {}
        if message["stacks"] and pids:
            notes = {rank: self._notes_of(rank) for rank in pids}
            found = stacks.of(pids, self._start["cwd"], self._path(), notes)
            after = {rank: stacks.used(pid) for rank, pid in pids.items()}
        ranks = [
            {
                "rank": rank,
                "log_bytes": _size_of(self._log_of(rank)),
                **used[rank]._asdict(),
                "look": after[rank].since(used[rank])._asdict(),
                "processes": found.get(rank, []),
            }
            for rank in sorted(pids)
        ]
        others = stacks.used(*self._other_children())._asdict()
        channel.send(self._peer, "looked", id=message["id"], ranks=ranks, others=others)

    def _other_children(self) -> list[int]:
        """Return what ranks have left to this process, such as daemons, and commands of other nodes."""
        sampler = self._sampler.helper_pid if self._sampler else 0
        below = descendants.own_children(self._warm.nursery)
        return [pid for pid in below if pid not in self._ranks and pid != sampler]

    def _do_seek(self, _message: dict[str, Any]) -> None:
        """Where each rank is, and what it is failing of: others have failed for want of one of them."""
        pids = {rank: containers.inner(self._scratch, pid) for pid, rank in sorted(self._ranks.items())}
        notes, cwd = {rank: self._notes_of(rank) for rank in pids}, self._start["cwd"]
        found = stacks.of(pids, cwd, self._path(), notes) if pids else {}
        # Only now: the handler of this question would show in the stacks.
        told = in_flight.of(pids, notes, cwd)
        ranks = [
            {"rank": rank, "processes": found.get(rank, []), "in_flight": told.get(rank)} for rank in pids
        ]
        channel.send(self._peer, "sought", ranks=ranks)

    def _path(self) -> str:
        env = self._start["ranks"][0]["env"] if self._start["ranks"] else {}
        return str(env.get("PATH") or os.environ.get("PATH", os.defpath))

    def _do_clock(self, _message: dict[str, Any]) -> None:
        channel.send(self._peer, "clock", at=time.monotonic())

    def _do_reach(self, message: dict[str, Any]) -> None:
        error = ""
        try:
            channel.connection((message["address"], message["port"]), _REACH_TIMEOUT_S).close()
        except OSError as failure:
            error = str(failure)
        channel.send(self._peer, "reached", error=error)

    def _do_start(self, message: dict[str, Any]) -> None:
        if self._probe:
            self._probe.close()
        self._start = message
        metrics = message.get("metrics")
        if metrics:
            self._sampler = Sampler(metrics["file"], metrics["attempt"], message["cores"])
        tasks = {task["rank"]: task for task in message["ranks"]}
        if message["by_launcher"]:
            self._warm.begin(message, [])
            self._tasks = tasks
            if self._door:
                self._door.expect(tasks)
            if message["launcher"]:
                self._launch(message["launcher"])
            return
        surroundings = self._surroundings()
        self._start_ranks([(task, {**surroundings, **task["env"]}) for task in tasks.values()])

    def _surroundings(self) -> dict[str, str]:
        """What is there for every process of the job on this node."""
        variables = _without(self._start["unset"])
        # At level 0 (cron, systemd, a command of ssh) a rank's bash may take itself for started from afar, and then
        # reads ~/.bashrc.
        if variables.get("SHLVL", "0").strip() in ("", "0"):
            variables["SHLVL"] = "1"
        if self._scratch:
            variables["TMPDIR"] = self._scratch
        memory = scratch.memory_of(self._scratch)
        if memory and os.path.isdir(memory):
            # Open MPI 4's name for it and 5's. In a folder of its own it goes with that, whoever is killed.
            variables["OMPI_MCA_btl_vader_backing_directory"] = memory
            variables["OMPI_MCA_btl_sm_backing_directory"] = memory
        return variables

    def _node_environment(self) -> dict[str, str]:
        """For what is no rank: a launcher, its daemons, commands from other nodes."""
        return self._with_door({**self._surroundings(), **self._start["node_env"]})

    def _with_door(self, variables: dict[str, str]) -> dict[str, str]:
        if self._door:
            variables["DRUMLINE_BIN"] = self._door.bin
            variables["PATH"] = os.pathsep.join((self._door.bin, variables.get("PATH", os.defpath)))
        return variables

    def _start_ranks(self, ones: Sequence[tuple[dict[str, Any], dict[str, str]]]) -> None:
        """Each with its variables; from a warm interpreter if that can be, which may take a while."""
        tasks = [self._task(*one) for one in ones]
        if not tasks or not self._warm.begin(self._start, tasks):
            self._start_cold(tasks)

    def _task(self, task: dict[str, Any], variables: dict[str, str]) -> Task:
        failures.add_hook(variables, self._notes_of(task["rank"]))
        if self._scratch:
            variables["DRUMLINE_DEADLINE"] = self._deadline()
        argv, cwd = task["argv"], self._start["cwd"]
        container = self._start.get("container")
        if container:
            argv, variables = containers.wrapped(container, argv, variables, task["env"], cwd, self._scratch)
        else:
            variables = self._with_door(variables)
        self._first.expect(task["rank"], task["log"], self._notes_of(task["rank"]))
        return Task(task["rank"], argv, variables, cwd, task["log"], self._start["cores"])

    def _start_cold(self, tasks: Sequence[Task]) -> None:
        started = []
        for task in tasks:
            before = time.monotonic()
            process = processes.start(task.argv, env=task.env, cwd=task.cwd, log=task.log, cores=task.cores)
            self._note_start(task.rank, process.pid, before)
            started.append(process)
        for process in started:
            self._note_error(process)

    def _note_start(self, rank: int, pid: int, before: float) -> None:
        at = time.monotonic()
        self._started_at[pid] = before
        self._watch(pid)
        self._ranks[pid] = rank
        channel.send(self._peer, "started", rank=rank, pid=pid, at=at)

    def _go_on(self) -> None:
        """The keeper has answered: the ranks that waited for that are started, warm or cold."""
        tasks, born = self._warm.go_on()
        for one in born:
            if one.error:
                self._errors[one.pid] = one.error
            self._note_start(one.rank, one.pid, one.before)
        if not born:
            self._start_cold(tasks)

    def _start_what_waits(self) -> None:
        """Ranks that are about to be started are, and end with the others."""
        self._start_cold(self._warm.give_up())

    def _deadline(self) -> str:
        """The file that says until when the ranks have to end, from when they are told to; empty: there is none."""
        return os.path.join(self._scratch, "deadline") if self._scratch else ""

    def _notes_of(self, rank: int) -> str:
        """The file in which a rank's Pythons note how they fail; empty: there is no place for one."""
        return os.path.join(self._scratch, f"failures-{rank}.jsonl") if self._scratch else ""

    def _note_error(self, process: processes.Started) -> None:
        error = process.error()
        if error:
            self._errors[process.pid] = error

    def _launch(self, launcher: dict[str, Any]) -> None:
        variables = {**self._node_environment(), **launcher["env"]}
        self._start_helper(_LAUNCHER, launcher["argv"], variables, log=launcher["log"])

    def _start_helper(self, number: int, argv: list[str], variables: dict[str, str], **streams: Any) -> None:
        process = processes.start(
            argv, env=variables, cwd=self._start["cwd"], cores=self._start["cores"], **streams
        )
        self._watch(process.pid)
        self._helpers[process.pid] = _Helper(number, process)

    def _do_run(self, message: dict[str, Any]) -> None:
        """A command that a program of another node asks for; its streams go there directly."""
        back = (message["address"], message["port"], message["token"])
        argv = ["/bin/bash", "-c", message["command"]]
        name = self._start["host_name"]
        feed = self._feed(*back) if message["has_input"] else -1
        try:
            self._start_helper(
                message["id"], argv, self._node_environment(), back=back, feed=feed, host_name=name
            )
        finally:
            if feed >= 0:
                os.close(feed)

    def _feed(self, address: str, port: int, token: str) -> int:
        if self._feeds is None:
            from drumline.node.feeds import Feeds

            self._feeds = Feeds(self._poller)
        return self._feeds.open(address, port, token)

    def _do_hang_up(self, message: dict[str, Any]) -> None:
        for pid, helper in self._helpers.items():
            if helper.number == message["id"]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)

    def _do_ran(self, message: dict[str, Any]) -> None:
        """The end of a command that one of our programs asked another node for."""
        caller = message["caller"]
        if caller not in self._asking or not self._door:
            return
        self._asking.discard(caller)
        if message["not_ours"]:
            self._door.answer(caller, standin.NOT_OURS)
        elif message["signal"]:
            self._door.answer(caller, f"signal {message['signal']}")
        else:
            self._door.answer(caller, f"exited {message['code']}")

    def _on_request(self, caller: int, words: list[bytes]) -> None:
        if words[0] == b"rank" and self._start.get("by_launcher"):
            self._start_for_launcher(caller, words[1:])
        elif words[0] in (b"shell", b"daemon") and len(words) == 6 and words[2].isdigit():
            host, port, token, command, has_input = (os.fsdecode(word) for word in words[1:])
            self._asking.add(caller)
            channel.send(
                self._peer,
                "shell",
                caller=caller,
                of_launcher=words[0] == b"daemon",
                host=host,
                address=self._address,
                port=int(port),
                token=token,
                command=command,
                has_input=bool(has_input),
            )
        elif self._door:
            self._door.answer(caller, "refused")

    def _start_for_launcher(self, caller: int, environment: list[bytes]) -> None:
        """A rank, with what its MPI added to or changed in the variables of the node."""
        given = dict(word.split(b"=", 1) for word in environment if b"=" in word)
        number = next((int(given[name]) for name in _RANK_NAMES if given.get(name, b"").isdigit()), -1)
        task = self._tasks.pop(number, None)
        if task is None:
            channel.send(self._peer, "misplaced", rank=number)
            return
        known = self._node_environment()
        added = {
            os.fsdecode(name): os.fsdecode(value)
            for name, value in given.items()
            if name not in _NOT_OF_MPI and known.get(os.fsdecode(name)) != os.fsdecode(value)
        }
        self._standins[number] = caller
        self._start_cold([self._task(task, {**self._surroundings(), **task["env"], **added})])

    def _on_gone(self, caller: int) -> None:
        """Whoever stood for a rank, or asked for a command, was killed."""
        if caller in self._asking:
            self._asking.discard(caller)
            channel.send(self._peer, "hung_up", caller=caller)
        for rank, standin_of_rank in list(self._standins.items()):
            if standin_of_rank == caller:
                del self._standins[rank]
                if rank in self._ranks.values():
                    channel.send(self._peer, "abandoned", rank=rank)

    def _watch(self, pid: int) -> None:
        self._pidfds[pid] = os.pidfd_open(pid)
        self._poller.register(self._pidfds[pid], select.EPOLLIN)

    def _has_failed(self, pid: int) -> bool:
        """Whether that child has ended otherwise than well; ours is not reaped yet, a nursery's is told later."""
        try:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            if self._warm.nursery:
                self._early += self._warm.nursery.reap()
            return any(one.pid == pid and one.status != 0 for one in self._early)
        return ended is not None and ended.si_status != 0

    def _tell_exits(self, ready: Sequence[int] = (), until: int | None = None) -> None:
        """
        ``ready``: descriptors in the order in which things happened to them; what happened from the place ``until`` on
        is told later.
        """
        if until is not None and not set(ready[:until]) & set(self._pidfds.values()):
            return
        at = time.monotonic()
        order = {descriptor: index for index, descriptor in enumerate(ready)}
        ended = [*self._early, *descendants.reap(self._warm.nursery)]
        self._early = []
        places = {one.pid: order.get(self._pidfds.get(one.pid, -1), len(order)) for one in ended}
        ended.sort(key=lambda one: places[one.pid])
        if until is not None:
            self._early = [one for one in ended if places[one.pid] >= until]
            ended = [one for one in ended if places[one.pid] < until]
        for index, one in enumerate(ended):
            self._tell_exit(one, at + index * _TICK_S)

    def _tell_exit(self, ended: descendants.Ended, at: float) -> None:
        pid = ended.pid
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is None:
            return  # An orphan of a rank, adopted by us.
        self._poller.unregister(pidfd)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(ended.status)
        how: dict[str, Any] = {"code": code if code >= 0 else None, "signal": -code if code < 0 else None}
        helper = self._helpers.pop(pid, None)
        if helper is not None:
            kind = "launcher_exited" if helper.number == _LAUNCHER else "ran"
            channel.send(self._peer, kind, id=helper.number, error=helper.process.error(), **how)
            return
        rank = self._ranks.pop(pid)
        self._first.ended(rank, at)
        if self._sampler:
            self._sampler.exited(pid, rank, ended.cpu_s, ended.peak_bytes)
        passes_on = code == -signal.SIGTERM or pid in self._shells
        self._has_heirs = self._has_heirs or (pid in self._told and passes_on)
        error = self._errors.pop(pid, "")
        evidence = {} if error else self._evidence(rank, code, ended)
        channel.send(self._peer, "exited", rank=rank, error=error, at=at, evidence=evidence, **how)
        standin_of_rank = self._standins.pop(rank, None)
        if code == 0 and standin_of_rank is not None and self._door:
            # Of a failure the launcher is not told: it would cut off the other ranks before their grace is over.
            self._door.answer(standin_of_rank, "exited 0")

    def _evidence(self, rank: int, code: int, ended: descendants.Ended) -> dict[str, Any]:
        """What may tell when and why a rank ended."""
        cwd = self._start["cwd"]
        since = self._started_at.pop(ended.pid, 0.0)
        evidence: dict[str, Any] = failures.of(
            self._notes_of(rank), ended.pid, code, cwd, since, time.monotonic()
        )
        if code == 0:
            return evidence if self._told_at is None else {**evidence, "told_at": self._told_at}
        evidence["told_at"] = self._told_at
        evidence["peak_bytes"] = ended.peak_bytes
        log = failures.end_of_log(self._log_of(rank))
        evidence["said"] = last_words.of(log)
        reported = elastic.reported(log)
        if reported:
            evidence["reported"] = reported
        ended_by = {-code if code < 0 else code - 128, *(one["signal"] for one in reported)}
        if ended_by & {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}:
            evidence["crash"] = failures.crash_of(log, cwd)
        if signal.SIGABRT in ended_by:
            evidence["gave_up"] = last_words.of_abort(log)
        failures.add_killed_worker(evidence, log)
        told = failures.messages_of(evidence)
        holder = ports.holder(f"{told} {evidence['said']}")
        evidence["port_holder"] = failures.printable(holder, 200)
        if signal.SIGBUS in ended_by or "killed by signal: Bus error" in told:
            evidence["shared_memory"] = failures.shared_memory()
        evidence["full_disk"] = full_disk.of(failures.all_of(evidence), cwd)
        lost = self._warm.lost_with(ended.pid)
        evidence["warm_process"] = lost
        pids = [ended.pid, lost, *(one["pid"] for one in reported), *failures.killed_workers(told)]
        evidence["memory_ran_out"] = self._memory.ran_out(pids)
        return evidence

    def _log_of(self, rank: int) -> str:
        return next((str(task["log"]) for task in self._start["ranks"] if task["rank"] == rank), "")

    def _do_terminate(self, message: dict[str, Any]) -> None:
        self._tasks = {}
        self._start_what_waits()
        self._told_at = self._told_at or time.monotonic()
        deadline = self._deadline()
        if deadline:
            # Whoever finds no room for it learns of the end by the signal.
            with contextlib.suppress(OSError):
                write_whole(deadline, f"{time.time() + message['grace_s']:.3f}\n")
        # A launcher that is told to end takes from the ranks what they end with, such as a last collective.
        spared = list(self._helpers) if self._start.get("by_launcher") else []
        self._shells = {pid for pid in self._ranks if descendants.is_shell(pid)}
        if message.get("all_told"):
            self._wait_to_be_told()
        self._told = (
            set(descendants.all_below(self._warm.nursery))
            if self._all_are_told and message.get("all_told")
            else descendants.ask_to_end(spared, self._warm.nursery)
        )
        self._told_until = time.monotonic() + message["grace_s"]

    def _wait_to_be_told(self) -> None:
        """
        Whoever ends this node has signalled the supervisor, and signals one process after the other: its signal to
        this agent and the ranks may still come, and they are to have it once.
        """
        if (
            self._ended_by
            and not self._all_are_told
            and select.select([self._sigterm], [], [], _TOLD_LATE_S)[0]
        ):
            self._give_notice()

    def _do_kill(self, _message: dict[str, Any]) -> None:
        self._start_what_waits()
        self._told_at = self._told_at or time.monotonic()
        # A launcher tidies up when its ranks are gone; what does not end is ended with all that is left.
        spared = list(self._helpers) if self._start.get("by_launcher") else []
        descendants.signal_all(signal.SIGKILL, spared, self._warm.nursery)

    def _do_empty(self, message: dict[str, Any]) -> None:
        self._told_at = self._told_at or time.monotonic()
        self._let_launcher_end()
        until = self._told_until if self._has_heirs and message["grace_s"] > 0 else None
        if self._sampler:
            self._sampler.forget_gpus()
        self._start_what_waits()
        ended, survivors = descendants.end_all(
            message["grace_s"],
            told=self._told,
            told_until=until,
            is_urgent=self._is_urgent,
            other=self._warm.nursery,
        )
        at = time.monotonic()
        for one in [*self._early, *ended]:
            self._tell_exit(one, at)
        self._early = []
        self._end_sampling()
        self._warm.end()
        self._remove_scratch()
        channel.send(self._peer, "emptied", survivors=[stacks.state_of(pid) for pid in survivors])

    def _end_sampling(self) -> None:
        if self._sampler:
            self._sampler.forget_gpus()
            self._sampler.finish()
            self._sampler = None

    def _is_urgent(self) -> bool:
        """Whether the supervisor has more to say, or the node is taken away for the second time."""
        heard = [self._peer, self._sigterm] if self._is_preempted else [self._peer]
        return bool(select.select(heard, [], [], 0)[0])

    def _let_launcher_end(self) -> None:
        """Tell the stand-ins that their ranks are gone: their launcher ends by itself, sooner than if it is told."""
        for caller in self._standins.values():
            if self._door:
                self._door.answer(caller, "exited 1")
        self._standins = {}
        deadline = time.monotonic() + _LAUNCHER_END_S
        while self._start.get("by_launcher") and self._helpers and time.monotonic() < deadline:
            time.sleep(_LAUNCHER_LOOK_S)
            self._tell_exits()

    def _remove_scratch(self) -> None:
        scratch.remove(self._scratch)
        scratch.remove(scratch.memory_of(self._scratch))


_LAUNCHER = 0
"""The number of the launcher among the helpers; commands of other nodes have those that the supervisor gave them."""


def _size_of(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


class _Helper:
    """A process that is no rank."""

    def __init__(self, number: int, process: processes.Started) -> None:
        self.number = number
        self.process = process


def _without(unset: list[str]) -> dict[str, str]:
    """The surroundings less the variables named; a name that ends in ``*`` stands for all that begin so."""
    exact = {name for name in unset if not name.endswith("*")}
    prefixes = tuple(name[:-1] for name in unset if name.endswith("*"))
    return {
        name: value
        for name, value in os.environ.items()
        if name not in exact and not (prefixes and name.startswith(prefixes))
    }


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
    with channel.connection(address, 30.0) as peer:
        peer.settimeout(None)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel.notice_power_cut(peer)
        Agent(peer, node, own_address, scratch, cgroup, **more).run(secret)
