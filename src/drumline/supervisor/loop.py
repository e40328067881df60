"""Feeds the policy with what happens, and does what it says. A screen's length of loop, the rest are its hands."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import identity, samples
from drumline.contract.filesystems import is_network
from drumline.contract.plan import bind
from drumline.contract.record import NamedTuple
from drumline.supervisor import cause, cut_off, hang, telling, words
from drumline.supervisor import policy as p
from drumline.supervisor.agents import SEND_TIMEOUT_S, Agents
from drumline.supervisor.clocks import Clocks, wall_time
from drumline.supervisor.looks import Looks

if TYPE_CHECKING:
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan
    from drumline.engines.base import Nodes

_LOOK_S = 1.0
"""How often the request to cancel is looked for when no signal told of it."""

_LEAVE_TIMEOUT_S = 2.0

_STOPPED_S = 5.0
"""More than a busy machine lets a process wait."""


class _Asked(NamedTuple):
    """A command that one node asked another for. ``of_launcher``: it is a daemon, without which ranks cannot go on."""

    node: int
    caller: int
    target: int
    of_launcher: bool


class Loop:
    """
    One attempt. ``canceled``: the request for the job's end, None while there is none. ``wake``: readable when to look
    for it. ``timeout_s``: what is left of the job's time limit when the ranks start; None: there is none. ``signals``:
    grows by a text for each signal to this process by which its engine may take the nodes away.
    """

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        nodes: Nodes,
        wake: int,
        canceled: Callable[[], p.Canceled | None],
        *,
        attempt: int = 0,
        timeout_s: float | None = None,
        signals: list[str] | None = None,
    ) -> None:
        members = {
            task.rank: p.Member(node.node, task.label, task.awaited)
            for node in plan.nodes
            for task in node.ranks
        }
        self._policy = p.Policy(
            members,
            len(plan.nodes),
            grace_s=plan.grace_s,
            timeout_s=timeout_s,
            limit_s=plan.timeout_s,
            launcher=plan.launcher.name if plan.launcher else "",
            ends_when_hung=plan.hang_action != "report",
            join_timeout_s=nodes.join_timeout_s,
        )
        self._folder = folder
        self._attempt = attempt
        self.ranks_started: float | None = None
        """When, in monotonic seconds."""

        self._plan = plan
        self._nodes = nodes
        self._wake = wake
        self._canceled = canceled
        self._cancel_seen: p.Canceled | None = None
        self._signals = signals if signals is not None else []
        self._on_network = is_network(folder.path)
        self._lost: set[int] = set()
        self._hosts: dict[int, str] = {}
        self._node_facts: list[dict[str, str]] = [{} for _ in plan.nodes]
        self._preempt_seen: dict[str, Any] = {}
        self._preemptions: list[p.Preempted] = []
        self._secret = os.urandom(32).hex()
        self._agents = Agents(nodes.listen_address, self._secret, len(plan.nodes))
        labels = {rank: member.label for rank, member in members.items()}
        self._looks = Looks(folder, self._agents, labels, plan.hang_after_s, self._record, self._happen)
        self._clocks = Clocks()
        self._poller = select.poll()
        self._watched: dict[int, int] = {}
        self._timers: dict[str, float] = {}
        self._facts: dict[str, str] = {"interface": nodes.interface}
        self._probe_port = 0
        self._commands = 0
        self._asked: dict[int, _Asked] = {}
        """Commands that run, by number."""

        self._end: p.Finish | None = None

    def run(self) -> p.Finish:
        """From the start of the agents until nothing of the job is left. Blocks. Raises EngineError, OSError."""
        try:
            return self._run()
        except BaseException:
            # Agents end what is theirs when they see that.
            self._agents.close()
            raise

    def _run(self) -> p.Finish:
        self._nodes.start_agents(self._agents.port, self._secret)
        for node, descriptor in self._nodes.agents().items():
            self._watched[descriptor] = node
            self._poller.register(descriptor, select.POLLIN)
        self._poller.register(self._agents.server, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        for instruction in self._policy.begin():
            self._do(instruction)
        while self._end is None:
            ready = self._wait()
            self._look_for_cancel()
            self._look_for_preemption()
            self._look_for_signal()
            self._look_for_failed_joins()
            if self._on_network:
                # What another machine has made there shows when its folder is looked at again.
                with contextlib.suppress(OSError):
                    os.listdir(self._folder.path)
            self._looks.look_for_request()
            for descriptor in ready:
                self._hear(descriptor)
            self._fire_timers()
            self._looks.look_when_due()
            self._lose_stuck()
            if not self._nodes.shares_machine and self._clocks.is_due():
                for node in self._agents.connected():
                    self._ask_clock(node)
        self._dismiss()
        return self._end

    def _wait(self) -> list[int]:
        """Until a descriptor is ready, or something is due. Time in which this process was stopped is left out."""
        patience_s, before = self._patience(), time.monotonic()
        ready = [descriptor for descriptor, _ in self._poller.poll(patience_s * 1000)]
        stopped_s = time.monotonic() - before - patience_s
        if stopped_s > _STOPPED_S:
            # Suspended by its engine, all of the job was.
            self._timers = {timer: due + stopped_s for timer, due in self._timers.items()}
            self._looks.leave_out(stopped_s)
        return ready

    def _patience(self) -> float:
        now = time.monotonic()
        due = [*self._timers.values(), *self._looks.due()]
        return max(0.0, min([_LOOK_S, *(one - now for one in due)]))

    def _happen(self, happening: p.Happening) -> None:
        for instruction in self._policy.handle(happening):
            self._do(instruction)

    def _fire_timers(self) -> None:
        now = time.monotonic()
        for timer in [timer for timer, due in self._timers.items() if due <= now]:
            del self._timers[timer]
            if timer == "join":
                self._lose_missing()
            self._happen(p.Elapsed(timer))

    def _lose_missing(self) -> None:
        """Agents that others start and that have not come: what they or their starter said tells more than a time."""
        for task in self._plan.nodes if not self._nodes.shares_machine else ():
            if task.node not in self._agents.connected():
                self._lose(task.node, self._nodes.gone(task.node))

    def _look_for_failed_joins(self) -> None:
        if "join" in self._timers and not self._nodes.shares_machine:
            for node, why in self._nodes.failed_to_join().items():
                if node not in self._agents.connected():
                    self._lose(node, why)

    def _look_for_cancel(self) -> None:
        request = self._canceled()
        if request is None or request == self._cancel_seen:
            return
        self._cancel_seen = request
        self._record(e.CancelRequested(wall_time(), request.by, request.at_once))
        self._happen(request)

    def _look_for_preemption(self) -> None:
        request = self._folder.read_json(self._folder.preempt) or {}
        if request.get("attempt") != self._attempt or request == self._preempt_seen:
            return
        self._preempt_seen = request
        node = request.get("node")
        self._preempt(str(request.get("by")), node if isinstance(node, int) else None)

    def _look_for_signal(self) -> None:
        while self._signals:
            self._be_taken(None, self._signals.pop(0))

    def _be_taken(self, node: int | None, by: str) -> None:
        """An agent, or this process, was asked to end: what that means, the engine knows."""
        taken = self._nodes.taken(node, by)
        if taken.kind == "cancel":
            request = p.Canceled(taken.by, False, taken.grace_s)
            if request != self._cancel_seen:
                self._cancel_seen = request
                self._record(e.CancelRequested(wall_time(), request.by))
                self._happen(request)
        else:
            self._preempt(taken.by, None if taken.kind == "preemption" else node, taken.grace_s)
        for lost in taken.lost:
            self._lose(lost, "was lost")

    def _preempt(self, by: str, node: int | None, grace_s: float | None = None) -> None:
        happening = p.Preempted(by, node, grace_s)
        if happening not in self._preemptions:
            self._preemptions.append(happening)
            self._record(e.Preempted(wall_time(), by, node))
            self._happen(happening)

    def _hear(self, descriptor: int) -> None:
        if descriptor == self._agents.server.fileno():
            peer = self._agents.accept()
            if peer is not None:
                self._poller.register(peer, select.POLLIN)
        elif descriptor == self._wake:
            os.read(self._wake, 512)
        elif descriptor in self._watched:
            self._lose_agent(descriptor)
        elif self._agents.knows(descriptor):
            self._hear_peer(descriptor)

    def _hear_peer(self, descriptor: int) -> None:
        messages = self._agents.receive(descriptor)
        if messages is None:
            self._poller.unregister(descriptor)
            node = self._agents.drop(descriptor)
            if node is not None and (node not in self._watched.values() or not self._nodes.shares_machine):
                self._lose(node, self._nodes.gone(node))
            return
        node = self._agents.node_at(descriptor)
        for message in messages:
            assert node is not None, "messages come from agents that were let in"
            getattr(self, f"_on_{message['type']}")(node, message)

    def _lose_agent(self, descriptor: int) -> None:
        """An agent of this machine ended. What it said before is heard first: an exit may explain its end."""
        self._poller.unregister(descriptor)
        node = self._watched[descriptor]
        if not self._nodes.shares_machine:
            # It is what started the agents that ended: whoever is connected goes on.
            del self._watched[descriptor]
            self._nodes.ended(node)
            if node not in self._agents.connected() and self._end is None and node not in self._lost:
                self._lose(node, self._nodes.gone(node))
            return
        for peer in self._agents.descriptors_of(node):
            self._hear_peer_to_the_end(peer)
        del self._watched[descriptor]
        self._lose(node, self._nodes.ended(node))

    def _hear_peer_to_the_end(self, descriptor: int) -> None:
        while self._agents.node_at(descriptor) is not None:
            self._hear_peer(descriptor)

    def _lose_stuck(self) -> None:
        """A stopped agent of this machine would neither end nor close its connection."""
        for node in self._agents.take_stuck():
            self._lose(node, f"took in nothing for {SEND_TIMEOUT_S:g} s")

    def _lose(self, node: int, reason: str) -> None:
        if self._end is None and node not in self._lost:
            self._lost.add(node)
            self._record(e.NodeLost(wall_time(), node, reason))
            self._happen(p.Lost(node, reason))

    # What agents say.

    def _on_hello(self, node: int, message: dict[str, Any]) -> None:
        self._facts[f"node_{node}"] = message["address"]
        self._nodes.joined(node, message)
        self._facts[f"gpus_{node}"] = self._nodes.gpus(node)
        if not self._nodes.shares_machine:
            self._ask_clock(node)
        who = identity.of(message["pid"]) if self._nodes.shares_machine else None
        self._hosts[node] = str(message.get("host", ""))
        self._record(
            e.AgentJoined(
                wall_time(),
                node,
                message["pid"],
                message["address"],
                who,
                message["containment"],
                self._hosts[node],
            )
        )
        self._happen(p.Joined(node))

    def _ask_clock(self, node: int) -> None:
        self._clocks.ask(node)
        self._agents.send(node, "clock")

    def _on_clock(self, node: int, message: dict[str, Any]) -> None:
        if self._clocks.answered(node, message["at"]):
            self._ask_clock(node)

    def _on_looked(self, node: int, message: dict[str, Any]) -> None:
        self._looks.answered(node, message)

    def _on_sought(self, node: int, message: dict[str, Any]) -> None:
        found = {
            one["rank"]: cause.Where(tuple(hang.places_of(one["processes"])), one["in_flight"])
            for one in message["ranks"]
        }
        self._happen(p.Found(node, found))

    def _on_prepared(self, node: int, message: dict[str, Any]) -> None:
        self._facts.update({name: str(port) for name, port in message["ports"].items()})
        if node == 0:
            self._probe_port = message["probe_port"]
        self._happen(p.Prepared(node))

    def _on_reached(self, node: int, message: dict[str, Any]) -> None:
        self._happen(p.Reached(node, message["error"]))

    def _on_started(self, node: int, message: dict[str, Any]) -> None:
        at = self._clocks.wall(node, message["at"])
        self._record(e.RankStarted(at, message["rank"], node, message["pid"]))
        self._happen(p.Started(message["rank"], at))

    def _on_first_output(self, node: int, message: dict[str, Any]) -> None:
        self._record(e.FirstOutput(self._clocks.wall(node, message["at"]), message["rank"], node))

    def _on_grouped(self, node: int, message: dict[str, Any]) -> None:
        at = self._clocks.wall(node, message["at"])
        self._record(e.GroupFormed(at, message["rank"], node, message["backend"]))

    def _on_asked(self, node: int, message: dict[str, Any]) -> None:
        self._record(e.WarmAsked(self._clocks.wall(node, message["at"]), node))

    def _on_warmed(self, node: int, message: dict[str, Any]) -> None:
        began, at = (self._clocks.wall(node, message[name]) for name in ("began", "at"))
        rest = [message[name] for name in ("reused", "import_s", "modules", "until", "pid")]
        self._record(e.WarmStart(at, node, began, *rest))

    def _on_declined(self, node: int, message: dict[str, Any]) -> None:
        at, asked = self._clocks.wall(node, message["at"]), self._plan.warm == "on"
        self._record(e.WarmDeclined(at, node, message["reason"], asked, message["rank"]))

    def _on_exited(self, node: int, message: dict[str, Any]) -> None:
        evidence = message["evidence"]
        telling.settle(evidence, message["at"])
        failure = evidence.get("failure")
        if failure:
            failure["time"] = self._clocks.wall(node, failure.pop("at"))
        for name in ("left", "told"):
            if f"{name}_at" in evidence:
                at = evidence.pop(f"{name}_at")
                evidence[name] = None if at is None else self._clocks.wall(node, at)
        if self._plan.launcher is not None and cut_off.by_mpi(message["code"]):
            evidence["lost_peer"] = cut_off.by_mpi(message["code"])
        exited = e.RankExited(
            self._clocks.wall(node, message["at"]),
            message["rank"],
            node,
            message["code"],
            message["signal"],
            message["error"],
            evidence or None,
        )
        self._record(exited)
        self._happen(exited)

    def _on_emptied(self, node: int, message: dict[str, Any]) -> None:
        self._happen(p.Emptied(node, tuple(message["survivors"])))

    def _on_preempted(self, node: int, message: dict[str, Any]) -> None:
        self._be_taken(node, message["by"])

    def _on_leaving(self, node: int, message: dict[str, Any]) -> None:
        self._lose(node, "left: " + message["reason"])

    # What programs of the job ask for: a command on another node, and the launcher of ranks.

    def _on_shell(self, node: int, message: dict[str, Any]) -> None:
        """A program on that node asks for a command on another; the two nodes' agents know it by a number of ours."""
        target = self._node_of(message["host"], node)
        if target is None:
            self._agents.send(node, "ran", caller=message["caller"], not_ours=True, code=255, signal=None)
            return
        self._commands += 1
        self._asked[self._commands] = _Asked(node, message["caller"], target, message["of_launcher"])
        content = {name: message[name] for name in ("address", "port", "token", "command", "has_input")}
        if not self._agents.send(target, "run", id=self._commands, **content):
            self._on_ran(
                target, {"id": self._commands, "code": 255, "signal": None, "error": "the node is gone"}
            )

    def _node_of(self, host: str, asking: int) -> int | None:
        """The node of that address; None when it is none of the job's."""
        if host == "localhost":
            return asking
        addresses = {self._facts[f"node_{task.node}"]: task.node for task in self._plan.nodes}
        return addresses.get(host)

    def _on_ran(self, node: int, message: dict[str, Any]) -> None:
        asked = self._asked.pop(message["id"], None)
        if asked is None:
            return
        how = {"code": message["code"], "signal": message["signal"]}
        self._agents.send(asked.node, "ran", caller=asked.caller, not_ours=False, **how)
        if asked.of_launcher and self._plan.launcher is not None and message["code"] != 0:
            what = f"the daemon of {self._plan.launcher.name} on node {node}"
            delay_s = 0.0 if _code(message) > 128 else p.BROKEN_DELAY_S
            self._happen(p.Broken(node, words.helper_ended(what, message), _code(message), delay_s))

    def _on_hung_up(self, node: int, message: dict[str, Any]) -> None:
        for number, asked in self._asked.items():
            if (asked.node, asked.caller) == (node, message["caller"]):
                self._agents.send(asked.target, "hang_up", id=number)

    def _on_launcher_exited(self, node: int, message: dict[str, Any]) -> None:
        name = self._plan.launcher.name if self._plan.launcher else "the launcher"
        ended_well = message["code"] == 0
        reason = "" if ended_well else words.helper_ended(name, message) + self._last_words()
        killed = message["signal"] is not None
        self._happen(p.LauncherEnded(node, reason, _code(message), killed))

    def _last_words(self) -> str:
        log = os.path.join(self._folder.path, self._plan.launcher.log) if self._plan.launcher else ""
        return words.last_words(log)

    def _on_abandoned(self, node: int, message: dict[str, Any]) -> None:
        name = self._plan.launcher.name if self._plan.launcher else "the launcher"
        reason = f"{name} ended rank {message['rank']} on node {node}"
        self._happen(p.Broken(node, reason + self._last_words(), 1, p.ABANDONED_DELAY_S))

    def _on_misplaced(self, node: int, message: dict[str, Any]) -> None:
        name = self._plan.launcher.name if self._plan.launcher else "the launcher"
        reason = f"{name} started rank {message['rank']} on node {node}, where it does not belong"
        self._happen(p.Broken(node, reason, 1))

    # What the policy says.

    def _do(self, instruction: p.Instruction) -> None:
        getattr(self, f"_do_{type(instruction).__name__.lower()}")(instruction)

    def _do_prepare(self, _: p.Prepare) -> None:
        network = self._nodes.network()
        if network is not None:
            self._record(
                e.NetworkChosen(
                    wall_time(), list(network.interfaces), list(network.addresses), network.reason
                )
            )
            for task in self._plan.nodes:
                self._facts[f"node_{task.node}"] = network.addresses[task.node]
                facts = {"interface": network.interfaces[task.node], **network.facts[task.node]}
                self._node_facts[task.node] = facts
        for task in self._plan.nodes:
            names = [name for name, node in self._plan.ports.items() if node == task.node]
            probe = task.node == 0 and len(self._plan.nodes) > 1
            address = self._facts[f"node_{task.node}"]
            content = {"ports": names, "probe": probe, "door": self._has_doors(), "address": address}
            self._agents.send(task.node, "prepare", **content)

    def _has_doors(self) -> bool:
        return self._plan.launcher is not None or self._plan.remote_shell

    def _do_reach(self, _: p.Reach) -> None:
        for task in self._plan.nodes[1:]:
            self._agents.send(task.node, "reach", address=self._facts["node_0"], port=self._probe_port)

    def _count_in(self, env: dict[str, str]) -> dict[str, str]:
        """With the number of this attempt, under torchrun's name too where there is one."""
        env["DRUMLINE_ATTEMPT"] = str(self._attempt)
        for name, value in (("RESTART_COUNT", self._attempt), ("MAX_RESTARTS", self._plan.max_restarts)):
            if f"TORCHELASTIC_{name}" in env:
                env[f"TORCHELASTIC_{name}"] = str(value)
        return env

    def _do_startranks(self, _: p.StartRanks) -> None:
        self.ranks_started = time.monotonic()
        if self._plan.host_file:
            self._folder.write(self._folder.hosts, bind(self._plan.host_file, self._facts))
        for node in self._plan.nodes:
            facts = {**self._facts, **self._node_facts[node.node]}
            ranks = [
                {
                    "rank": task.rank,
                    "log": os.path.join(self._folder.path, task.log),
                    "argv": [bind(word, facts) for word in task.argv] or self._plan.argv,
                    "env": self._count_in(self._plan.environment(node, task, facts)),
                }
                for task in node.ranks
            ]
            self._agents.send(
                node.node,
                "start",
                ranks=ranks,
                cwd=self._plan.cwd,
                unset=self._plan.unset,
                cores=node.cores,
                node_env=self._count_in(self._plan.node_environment(node, facts))
                if self._has_doors()
                else {},
                by_launcher=self._plan.launcher is not None,
                launcher=self._launcher() if node.node == 0 else None,
                host_name=self._host_name(node.node),
                container=self._plan.container,
                metrics=self._metrics(node.node),
                warm={"mode": self._plan.warm, "keeper": self._nodes.keeper},
            )

    def _metrics(self, node: int) -> dict[str, Any] | None:
        """Where samples of what the node and its ranks use go; None: nowhere."""
        switch = self._plan.user_env.get(samples.SWITCH) or os.environ.get(samples.SWITCH)
        if switch == "0":
            return None
        return {"file": samples.path_of(self._folder.path, node), "attempt": self._attempt}

    def _host_name(self, node: int) -> str:
        """Of what other nodes start there; empty: the machine's own, as for the launcher on node 0."""
        launcher = self._plan.launcher
        return f"node-{node}" if launcher is not None and launcher.own_host_names and node else ""

    def _launcher(self) -> dict[str, Any] | None:
        launcher = self._plan.launcher
        if launcher is None:
            return None
        facts = {**self._facts, **self._node_facts[0]}
        return {
            "argv": [bind(word, facts) for word in launcher.argv],
            "env": {name: bind(value, facts) for name, value in launcher.env.items()},
            "log": os.path.join(self._folder.path, launcher.log),
        }

    def _do_allrunning(self, _: p.AllRunning) -> None:
        self._record(e.JobRunning(wall_time()))
        self._looks.begin()

    def _do_terminate(self, instruction: p.Terminate) -> None:
        self._looks.end()
        told = self._nodes.has_told_ranks()
        for node in instruction.nodes:
            self._agents.send(node, "terminate", grace_s=instruction.grace_s, all_told=told)
        self._record(e.JobStopping(wall_time(), instruction.reason))

    def _do_seek(self, instruction: p.Seek) -> None:
        for node in instruction.nodes:
            self._agents.send(node, "seek")

    def _do_kill(self, instruction: p.Kill) -> None:
        for node in instruction.nodes:
            self._agents.send(node, "kill")

    def _do_empty(self, instruction: p.Empty) -> None:
        self._looks.end()
        self._record(e.JobFinalizing(wall_time()))
        for node in instruction.nodes:
            if not self._agents.send(node, "empty", grace_s=instruction.grace_s):
                self._nodes.end_agent(node)

    def _do_settimer(self, instruction: p.SetTimer) -> None:
        due = time.monotonic() + instruction.seconds
        # A grace period that has begun may become shorter.
        before = self._timers.get(instruction.timer, due) if instruction.timer == "grace" else due
        self._timers[instruction.timer] = min(due, before)

    def _do_finish(self, instruction: p.Finish) -> None:
        self._end = instruction._replace(reason=words.with_host(instruction.reason, self._hosts))

    def _dismiss(self) -> None:
        """Agents leave; one that does not is ended by whoever cleans up after this loop."""
        for node in self._agents.connected():
            self._agents.send(node, "leave")
        deadline = time.monotonic() + _LEAVE_TIMEOUT_S
        poller = select.poll()
        for descriptor in self._watched:
            poller.register(descriptor, select.POLLIN)
        while self._watched and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left * 1000):
                poller.unregister(descriptor)
                self._nodes.ended(self._watched.pop(descriptor))
        self._agents.close()

    def _record(self, event: e.Event) -> None:
        try:
            self._folder.append(event)
        except OSError as error:
            # A full disk must not end a job that may yet write its result elsewhere.
            with contextlib.suppress(OSError):
                print(f"could not record {event}: {error}", file=sys.stderr, flush=True)


def _code(how: dict[str, Any]) -> int:
    """As a shell has it; 1 for what did not start, or ended well too early."""
    return 128 + int(how["signal"]) if how["signal"] else int(how["code"] or 1)
