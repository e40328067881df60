"""What drills do to the network of isolated nodes, on a real one with real connections, without a job."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from isolated_nodes import skip_without
from waiting import wait_until

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import inside
from drumline.engines.local.isolation.isolation_settings import address_of, read_isolation
from drumline.engines.local.isolation.node_network import NodeNetwork
from drumline.linux import cgroups, limits

PORT = 7000


class Lab:
    """A network of three nodes, with a server on each."""

    def __init__(self, network):
        self.network = network
        self.supervisor = network.build()
        self.servers = [self._open(node, self._serve) for node in range(3)]

    def _open(self, node, make):
        def enter_and_make():
            inside.enter_network(self.network.user, self.network.networks[node])
            return [make(node).detach()]

        (descriptor,) = inside.call_in_child(enter_and_make)
        return socket.socket(fileno=descriptor)

    def _serve(self, node):
        return socket.create_server((address_of(node), PORT))

    def reaches(self, node, other, patience_s=20.0):
        """Whether a connection comes about; None stands for the supervisor."""
        address = self.supervisor.getsockname() if other is None else (address_of(other), PORT)
        try:
            self._open(node, lambda _: socket.create_connection(address, patience_s)).close()
        except EngineError:
            return False
        return True

    def is_cut_off(self, node, other):
        return not self.reaches(node, other, 1.0)

    def close(self):
        for one in (self.supervisor, *self.servers):
            one.close()
        self.network.close()


@pytest.fixture
def lab():
    skip_without()
    made = Lab(NodeNetwork(read_isolation({"isolation": "namespace"}), 3))
    yield made
    made.close()


def test_a_partition_parts_groups_and_heals(lab):
    lab.network.partition([[1, 2]])
    assert lab.reaches(1, 2)
    assert lab.is_cut_off(0, 1)
    assert lab.is_cut_off(2, None)
    assert lab.reaches(0, None)
    lab.network.partition([[1], [2]])
    assert lab.is_cut_off(1, 2)
    lab.network.heal()
    for node, other in ((0, 1), (1, 2), (2, 0)):
        assert lab.reaches(node, other)
        assert lab.reaches(node, None)


def test_a_node_without_power_ends_and_says_nothing(lab):
    peer = lab._open(0, lambda _: socket.create_connection((address_of(1), PORT)))

    def enter():
        inside.enter_network(lab.network.user, lab.network.networks[1])

    sleeper = subprocess.Popen(["sleep", "1000"], preexec_fn=enter)  # noqa: PLW1509 - there are no threads
    lab.network.cut_power(1)
    assert sleeper.wait(40) == -9
    assert lab.network.off == {1}
    lab.network.cut_power(1)
    # Neither FIN nor RST came: the connection looks well.
    peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.recv(1)
    peer.close()
    assert lab.is_cut_off(0, 1)
    assert lab.reaches(0, 2)
    lab.network.partition([[2]])
    assert lab.is_cut_off(0, 2)


def test_a_link_changes_while_it_is_used(lab):
    lab.network.set_link(1, rate="8mbit")

    def show(device, network):
        def look():
            inside.enter_network(lab.network.user, network)
            done = subprocess.run(
                [inside.find_program("tc"), "qdisc", "show", "dev", device], capture_output=True, check=True
            )
            reader, writer = os.pipe()
            os.write(writer, done.stdout)
            return [reader]

        (descriptor,) = inside.call_in_child(look)
        with os.fdopen(descriptor) as file:
            return file.read()

    assert "tbf" in show("eth0", lab.network.networks[1])
    assert "rate 8Mbit" in show("eth0", lab.network.networks[1])
    assert "tbf" not in show("eth0", lab.network.networks[0])
    lab.network.set_link(1)
    assert "tbf" not in show("eth0", lab.network.networks[1])
    assert lab.reaches(0, 1)
    with pytest.raises(EngineError, match="fast is no rate"):
        lab.network.set_link(1, rate="fast")


def ask(lab, node, other, count, patience_s=60.0):
    """The times of so many questions of a node to another over one connection, which the other answers at once."""
    server = lab.servers[other]
    asking = lab._open(node, lambda _: socket.create_connection((address_of(other), PORT), patience_s))
    server.settimeout(patience_s)
    answering, peer = server.accept()
    while peer != asking.getsockname():
        answering.close()
        answering, peer = server.accept()
    times = []
    with asking, answering:
        asking.settimeout(patience_s)
        answering.settimeout(patience_s)
        for _ in range(count):
            before = time.monotonic()
            asking.sendall(b"?")
            answering.sendall(answering.recv(1))
            assert asking.recv(1) == b"?"
            times.append(time.monotonic() - before)
    return times


def test_a_late_link_is_late_in_one_direction_and_ends(lab):
    lab.network.set_link(1, latency="60ms")
    # Both who asks and who answers is late, if it is node 1.
    for node, other in ((1, 0), (0, 1)):
        assert min(ask(lab, node, other, 3)) > 0.05
        wait_until(lambda one=node, two=other: min(ask(lab, one, two, 5)) < 0.11, 60, "one delay, not two")
    wait_until(lambda: min(ask(lab, 0, 2, 5)) < 0.05, 60, "others without delay")
    lab.network.set_link(1, latency="120ms", rate="8mbit")
    assert min(ask(lab, 1, 0, 3)) > 0.11
    # The cut is of late nodes too, and a late node is late after it.
    lab.network.partition([[1, 2]])
    assert lab.is_cut_off(0, 1)
    assert lab.reaches(1, 2)
    lab.network.heal()
    assert min(ask(lab, 1, 0, 3)) > 0.11
    lab.network.set_link(1)
    wait_until(lambda: min(ask(lab, 1, 0, 5)) < 0.05, 60, "the end of the delay")


def test_a_lossy_link_loses_packets_and_a_stream_arrives_whole(lab):
    lab.network.set_link(1, loss="20%")
    times = ask(lab, 1, 0, 40)
    # A packet that is lost comes again after 0.2 s; by chance all 40 arrive once in 7,000 times.
    assert max(times) > 0.15
    lab.network.set_link(1)
    lab.network.set_link(2, loss="100%")
    assert lab.is_cut_off(2, 0)
    assert lab.reaches(1, 0)
    lab.network.cut_power(2)
    lab.network.heal()
    assert lab.reaches(1, 0)


def test_much_data_arrives_whole_over_a_late_link(lab):
    lab.network.set_link(1, latency="5ms")
    sent = os.urandom(1 << 20) * 8
    sender = lab._open(1, lambda _: socket.create_connection((address_of(0), PORT)))
    receiver, _ = lab.servers[0].accept()
    sender.settimeout(60)
    receiver.settimeout(60)
    writing = threading.Thread(target=sender.sendall, args=(sent,))
    writing.start()
    got = b""
    while len(got) < len(sent) and (more := receiver.recv(1 << 20)):
        got += more
    writing.join(60)
    sender.close()
    receiver.close()
    assert got == sent


@pytest.fixture
def carried(lab):
    """A network in which a process carries the packets of node 1, as where the kernel lacks netem."""
    lab.network._has_netem = False
    lab.network.set_link(1, latency="1ms")
    assert lab.reaches(1, 0)
    assert lab.network.find_cut_off() == ([], "")
    return lab


def test_a_process_that_carries_packets_is_missed_and_the_cable_joined(carried):
    os.kill(carried.network._carrier.pid, signal.SIGKILL)
    wait_until(lambda: carried.network._carrier.explain_end(), 20, "the end of the process")
    nodes, why = carried.network.find_cut_off()
    assert (nodes, why) == (
        [1],
        "lost its network: the process that delays its packets was killed by SIGKILL",
    )
    assert carried.network.find_cut_off() == ([], "")
    assert carried.reaches(1, 0)
    carried.network.set_link(1, latency="60ms")
    assert min(ask(carried, 1, 0, 3)) > 0.05


def test_nothing_is_left_of_a_network_whose_maker_is_killed():
    """Not even the process that carries packets, which has sockets in its networks, when it is stopped."""
    skip_without()
    code = (
        "import os, time\n"
        "from drumline.engines.local.isolation.node_network import NodeNetwork\n"
        "from drumline.engines.local.isolation.isolation_settings import read_isolation\n"
        "made = NodeNetwork(read_isolation({'isolation': 'namespace', 'link': {'latency': '1ms'}}), 2)\n"
        "made._has_netem = False\n"
        "server = made.build()\n"
        "print(made._carrier.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(maker.stdout.readline())
    os.kill(pid, signal.SIGSTOP)
    maker.kill()
    maker.wait(40)
    maker.stdout.close()
    wait_until(lambda: not os.path.exists(f"/proc/{pid}/fd/0"), 20, "the end of the process")


@pytest.mark.root
def test_limits_of_a_node_change_and_come_back(lab):
    name = f"drumline-{os.urandom(4).hex()}-n0"
    groups = limits.choose_limit_groups(name)
    if not groups.cpu or not groups.memory:
        pytest.skip("no control groups for limits are ours here")
    with pytest.raises(EngineError, match="cannot be limited"):
        lab.network.set_cpus(0, 0.5)
    for path in groups.paths:
        os.mkdir(path)
    try:
        lab.network.groups[0] = groups
        lab.network.set_cpus(0, 0.5)
        lab.network.set_memory(0, 64 << 20)
        quota, memory = (
            ("cpu.cfs_quota_us", "memory.limit_in_bytes")
            if groups.version == 1
            else ("cpu.max", "memory.max")
        )
        assert read(groups.cpu, quota) == "50000"
        assert read(groups.memory, memory) == str(64 << 20)
        lab.network.set_cpus(0)
        lab.network.set_memory(0)
        assert read(groups.cpu, quota) in ("-1", "max")
        assert read(groups.memory, memory) != str(64 << 20)
    finally:
        for path in groups.paths:
            wait_until(lambda path=path: cgroups.remove_old_group(path) and not os.path.exists(path), 20.0)


def read(group, name):
    with open(os.path.join(group, name)) as file:
        return file.read().split()[0]
