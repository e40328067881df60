"""What drills do to the network of isolated nodes, on a real one with real connections, without a job."""

import os
import socket
import subprocess

import pytest
from isolated_nodes import skip_without
from waiting import wait_until

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import inside
from drumline.engines.local.isolation.network import NodeNetwork
from drumline.engines.local.isolation.settings import address_of, read_isolation
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
