"""
With twice as many nodes a supervisor does twice as much, and not four times: benchmarks/supervisor has the times.

Here the steps of the interpreter are counted, which are the same on each machine. Time is measured where it is a single
step that takes longer.
"""

import socket
import sys
import time
import timeit
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from planning import plan

from drumline.checks.links import plan_peers, plan_rounds
from drumline.contract import channel
from drumline.contract import messages as m
from drumline.contract.events import RankExited
from drumline.contract.folder import RunFolder
from drumline.contract.rank_variables import RankVariables
from drumline.supervisor.attempt.attempt_start import RankStart
from drumline.supervisor.attempt.connections import AgentConnections
from drumline.supervisor.attempt.remote_commands import RemoteCommands
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding import policy as p
from drumline.supervisor.deciding.rank_table import RankTable
from drumline.supervisor.watching.world import find_worlds

PROCS = 4
MOST = 2.3
"""Of growth where the number of nodes doubles: for dictionaries that grow, and the like."""


def steps_of(function, *arguments):
    """How many steps of the interpreter a call takes."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


def growth(function, nodes=50):
    function(nodes)  # what is done once, such as to compile an expression
    return steps_of(function, 2 * nodes) / steps_of(function, nodes)


def started(nodes):
    members = {rank: h.Member(rank // PROCS, str(rank)) for rank in range(nodes * PROCS)}
    job = p.Policy(members, nodes, grace_s=30.0)
    for kind in (h.Joined, h.Prepared):
        for node in range(nodes):
            job.handle(kind(node))
    for node in range(1, nodes):
        job.handle(h.Reached(node, ""))
    for rank in members:
        job.handle(h.Started(rank, 1.0))
    return job, members


def over(job, nodes):
    for node in range(nodes):
        last = job.handle(h.Emptied(node, ()))
    return next(item for item in last if isinstance(item, h.Finish))


def failed(rank, message, time):
    failure = {"type": "RuntimeError", "message": message, "time": time}
    evidence = {"failure": failure, "told": None}
    return RankExited(time + 0.1, rank, rank // PROCS, 1, None, "", evidence)


def run_well(nodes):
    job, members = started(nodes)
    for rank in members:
        job.handle(RankExited(9.0, rank, rank // PROCS, 0, None))
    assert over(job, nodes).status == "Completed"


def fail_first(nodes):
    """Rank 0 fails, and then all others."""
    job, members = started(nodes)
    job.handle(failed(0, "loss is nan", 5.0))
    for rank in range(1, len(members)):
        job.handle(failed(rank, "Connection closed by peer", 5.1))
    assert over(job, nodes).rank == 0


def fail_last(nodes):
    """The failure of the last rank is heard of behind all those that come of it."""
    job, members = started(nodes)
    last = len(members) - 1
    for rank in range(last):
        job.handle(failed(rank, "Connection closed by peer", 5.1 + rank * 1e-6))
    job.handle(failed(last, "loss is nan", 5.0))
    assert over(job, nodes).rank == last


def end_well_in_a_search(nodes):
    """Rank 0 is refused, and no end of another explains that."""
    job, members = started(nodes)
    job.handle(failed(0, "Connection refused", 5.0))
    for rank in range(1, len(members)):
        last = job.handle(RankExited(5.2, rank, rank // PROCS, 0, None))
        assert bool(last) == (rank == len(members) - 1)
    assert over(job, nodes).rank == 0


def lose_all(nodes):
    """All nodes are lost at once, as with their switch."""
    job, _ = started(nodes)
    for node in range(nodes):
        last = job.handle(h.Lost(node, "closed its connection"))
    assert next(item for item in last if isinstance(item, h.Finish)).kind == "node"


@pytest.mark.parametrize("case", [run_well, fail_first, fail_last, end_well_in_a_search, lose_all])
def test_the_policy_looks_at_each_rank_a_few_times(case):
    assert growth(case) < MOST


def test_a_rank_that_is_left_is_found_at_once_where_many_have_ended():
    """A dictionary looks at each place from which an entry was removed."""
    nodes = range(100_000)
    table = RankTable({node: h.Member(node, str(node)) for node in nodes}, len(nodes))
    table.begin(is_launched=False)
    table.nodes = {nodes[0], nodes[-1]}

    def look():
        return min(timeit.repeat(lambda: table.is_any_left, number=1, repeat=100))

    before = look()
    for node in nodes[:-1]:
        table.note_exit(RankExited(9.0, node, node, 0, None))
    assert look() < 20 * before


def test_pairs_of_nodes_are_chosen_without_all_others():
    assert growth(plan_rounds, 500) < MOST
    assert growth(plan_peers, 500) < MOST


@pytest.mark.parametrize("shape", ["star", "ring"])
def test_worlds_are_found_without_a_look_at_each_rank_for_each_connection(shape):
    def find(ranks):
        ends = {rank: [] for rank in range(ranks)}
        for rank in range(ranks):
            other = (rank + 1) % ranks if shape == "ring" else 0
            pair = [f"10.0.0.1:{rank}", f"10.0.0.2:{rank}"]
            ends[rank].append(pair)
            ends[other].append(pair[::-1])
        assert len(find_worlds(ends)) == 1

    assert min(timeit.repeat(lambda: find(4000), timer=time.process_time, number=1, repeat=3)) < 0.5


def test_an_agent_is_told_without_a_look_at_the_others():
    def count(nodes):
        with ExitStack() as stack:
            agents = AgentConnections(socket.create_server(("127.0.0.1", 0)), "secret", nodes)
            stack.callback(agents.close)
            agents.server.settimeout(20.0)
            for node in range(nodes):
                peer = stack.enter_context(socket.create_connection(("127.0.0.1", agents.port)))
                own = ("secret", node, *channel.identify_package(), 1, "127.0.0.1", "subreaper")
                channel.send(peer, m.Hello(*own))
                descriptor = agents.accept()
                assert isinstance(agents.receive(descriptor)[0], m.Hello)
            return steps_of(agents.send_all, range(nodes), m.KillRanks())

    count(2)
    assert count(120) / count(60) < MOST


class Told:
    """Connections that keep what nodes are told."""

    def __init__(self):
        self.messages = []

    def send(self, node, message):
        self.messages.append((node, message))
        return True

    def send_all(self, nodes, message):
        return None


def test_a_command_on_another_node_costs_no_look_at_all_nodes_and_commands(tmp_path):
    def commanded(nodes):
        made = plan(nodes=nodes, distribution={"type": "pytorch"})
        told, facts = Told(), SimpleNamespace(interface="eth0", gpus=lambda node: "", add=lambda *_: None)
        known = SimpleNamespace(facts=facts, agents=SimpleNamespace(warm_pool=None))
        start = RankStart(RunFolder(str(tmp_path)), made, known, told, 0, {})
        for node in range(nodes):
            start.add_node(node, m.Hello("", node, "", "", 1, f"10.0.0.{node}", ""))
            start.add_ports(node, m.NodePrepared({"master_port": 1, "jax_port": 2}, 0))
        start.launch()
        commands = RemoteCommands(made, told, start.find_node, lambda _: None, None)
        return told, commands

    def run(nodes, told, commands):
        del told.messages[:]
        for node in range(nodes):
            host = f"10.0.0.{node}"
            commands.start(0, m.CommandRequested(node, False, host, "10.0.0.0", 1, "token", "true", False))
        for node in range(0, nodes, 2):
            commands.hang_up(0, m.CallerGone(node))
            commands.end(node, m.CommandEnded(node + 1, 0, None, ""))
            commands.hang_up(0, m.CallerGone(node))
        ended = [node for node, message in told.messages if isinstance(message, m.EndCommand)]
        assert ended == list(range(0, nodes, 2)), "a command that has ended is not ended again"

    run(100, *commanded(100))  # the first few of a kind of message are made otherwise
    made = {nodes: commanded(nodes) for nodes in (50, 100)}
    assert steps_of(run, 100, *made[100]) / steps_of(run, 50, *made[50]) < MOST


def test_the_version_is_computed_once_for_all_agents(monkeypatch):
    counted = []
    version = channel.compute_version()
    monkeypatch.setattr(channel, "compute_version", lambda: counted.append(1) or version)
    with ExitStack() as stack:
        agents = AgentConnections(socket.create_server(("127.0.0.1", 0)), "secret", 3)
        stack.callback(agents.close)
        agents.server.settimeout(20.0)
        for node in range(3):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", agents.port)))
            channel.send(peer, m.Hello("secret", node, version, "/lib", 1, "127.0.0.1", "subreaper"))
            assert isinstance(agents.receive(agents.accept())[0], m.Hello)
    assert len(counted) == 1


def test_what_is_sent_to_a_node_does_not_depend_on_how_many_there_are():
    def size(nodes):
        made = plan(nodes=nodes, distribution={"type": "pytorch", "process_count_per_instance": PROCS})
        facts = {f"node_{node}": f"10.0.0.{node}" for node in range(nodes)}
        variables = RankVariables(made, {**facts, "interface": "ib0", "master_port": "1", "jax_port": "2"})
        node = made.nodes[3]
        told = [variables.of_node(node), *(variables.of_task(task) for task in node.ranks)]
        return len(repr(told))

    assert size(200) == size(100)
