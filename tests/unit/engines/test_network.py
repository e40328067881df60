"""By which network the ranks reach each other, and what the nodes' own programs find out for that."""

import contextlib
import itertools
import os
import socket
import time

import pytest

from drumline.contract.errors import EngineError
from drumline.contract.messages import Hello
from drumline.engines import network
from drumline.linux import interfaces
from drumline.node.agent import join


def interface(name, address, *, infiniband=False, speed=0, virtual=False):
    return {
        "name": name,
        "address": address,
        "infiniband": infiniband,
        "speed_mbps": speed,
        "virtual": virtual,
    }


def adapters(*links):
    """mlx5_0, mlx5_1, ... with that link each."""
    return [{"device": f"mlx5_{index}", "port": "1", "link": link} for index, link in enumerate(links)]


ETH = interface("eth0", "10.0.0.1", speed=1000)
FAST = interface("eth1", "10.1.0.1", speed=100_000)
IB = interface("ib0", "10.2.0.1", infiniband=True, speed=40_000)
BRIDGE = interface("docker0", "172.17.0.1", speed=200_000, virtual=True)


def hello(node, own, reached=(), links=()):
    """A node that has these interfaces and reaches these of node 0, each by the one of the same name."""
    here = [{**one, "address": one["address"].rpartition(".")[0] + f".{node + 1}"} for one in own]
    by_name = {one["name"]: one["address"] for one in here}
    return Hello(
        *("secret", node, "version", "package", 1, "", "cgroup"),
        host=f"gpu-{node}",
        interfaces=here,
        reached={one["address"]: by_name[one["name"]] for one in reached},
        infiniband=adapters(*links),
    )


def nodes(own, *reached, links=()):
    """Node 0 and as many others as there are lists of what they reach."""
    return [
        hello(0, own, links=links),
        *(hello(node, own, one, links) for node, one in enumerate(reached, 1)),
    ]


@pytest.mark.parametrize(
    ("own", "chosen", "reason"),
    [
        ([ETH], "eth0", "the only one that reaches node 0 from every node"),
        ([ETH, FAST], "eth1", "with 100 Gbit/s the fastest that reaches node 0 from every node"),
        ([ETH, FAST, IB], "ib0", "InfiniBand that reaches node 0 from every node"),
        ([BRIDGE, ETH], "eth0", "the first that reaches node 0 from every node"),
        ([BRIDGE], "docker0", "the only one that reaches node 0 from every node"),
        ([interface("a", "10.0.0.1"), interface("b", "10.1.0.1")], "a",
         "the first that reaches node 0 from every node"),
        ([interface("a", "10.0.0.1"), interface("b", "10.1.0.1", speed=2500)], "b",
         "with 2.5 Gbit/s the fastest that reaches node 0 from every node"),
    ],
)  # fmt: skip
def test_of_those_that_are_reached_from_everywhere(own, chosen, reason):
    for order in itertools.permutations(own) if len({one["speed_mbps"] for one in own}) > 1 else [own]:
        found = network.choose(nodes(list(order), own, own))
        assert (found.interfaces, found.reason) == ((chosen,) * 3, reason)
        prefix = found.addresses[0].rpartition(".")[0]
        assert found.addresses == tuple(f"{prefix}.{node}" for node in (1, 2, 3))


def test_one_that_a_single_node_does_not_reach_is_not_taken():
    own = [ETH, FAST, IB]
    found = network.choose(nodes(own, own, [ETH, FAST], [ETH, IB]))
    assert (found.interfaces, found.reason) == (
        ("eth0",) * 4,
        "the only one that reaches node 0 from every node",
    )


def test_one_node_needs_none():
    found = network.choose([hello(0, [ETH, IB])])
    assert (found.interfaces, found.addresses) == (("lo",), ("127.0.0.1",))
    assert network.choose([hello(0, [])]) == found


def test_the_computes_wish_is_taken_and_each_node_may_call_it_otherwise():
    other = hello(1, [{**ETH, "name": "enp1s0"}])._replace(
        reached={"10.0.0.1": "10.0.0.2", "10.2.0.1": "10.2.0.2"}
    )
    found = network.choose([hello(0, [ETH, IB]), other], "eth0")
    assert found.interfaces == ("eth0", "enp1s0")
    assert found.reason == "the compute says so"


def test_a_wish_that_cannot_be_is_told_with_what_can():
    own = [ETH, FAST, IB]
    with pytest.raises(EngineError, match="interface ib0 of node 0 is not reached from every node") as error:
        network.choose(nodes(own, [ETH, FAST]), "ib0")
    assert error.value.hint == "interface of the compute is ib0; these are: eth0, eth1"


def test_nodes_that_do_not_reach_the_first_are_named_first():
    own = [ETH, IB]
    with pytest.raises(EngineError) as error:
        network.choose(nodes(own, [ETH], [], [IB], own))
    assert error.value.message == (
        "no address of node 0 is reached from every node: node 2 (gpu-2) reaches it by none; "
        "node 1 (gpu-1) reaches it by eth0; node 3 (gpu-3) reaches it by ib0"
    )


def test_of_many_such_nodes_some_are_named():
    with pytest.raises(EngineError, match=r"node 4 \(gpu-4\) reaches it by none; so do 96 more$"):
        network.choose(nodes([ETH], *[[]] * 100))


def test_a_first_node_without_an_address():
    with pytest.raises(EngineError, match="node 0 has no network interface with an IPv4 address"):
        network.choose(nodes([], [], []))


@pytest.mark.parametrize(
    ("links", "ib_devices", "ucx_devices"),
    [
        ((), "", "eth0"),
        (("InfiniBand", "InfiniBand"), "", "mlx5_0:1,mlx5_1:1"),
        (("Ethernet", "InfiniBand", "InfiniBand"), "=mlx5_1:1,mlx5_2:1", "mlx5_1:1,mlx5_2:1"),
        (("Ethernet",), "", ""),
    ],
)
def test_adapters(links, ib_devices, ucx_devices):
    found = network.choose(nodes([ETH], [ETH], links=links))
    assert found.facts == ({"ib_devices": ib_devices, "ucx_devices": ucx_devices},) * 2


def test_each_nodes_own_adapters_count():
    first, second = nodes([ETH], [ETH])
    second = second._replace(infiniband=adapters("Ethernet", "InfiniBand"))
    found = network.choose([first, second])
    assert [one["ib_devices"] for one in found.facts] == ["", "=mlx5_1:1"]
    assert [one["ucx_devices"] for one in found.facts] == ["eth0", "mlx5_1:1"]


# What is there.


def test_this_machines_interfaces_are_those_that_it_has():
    found = interfaces.list_interfaces()
    assert {one["name"] for one in found} <= {name for _, name in socket.if_nameindex()} - {"lo"}
    for one in found:
        assert not one["address"].startswith("127.")
        with contextlib.closing(socket.socket()) as bound:
            bound.bind((one["address"], 0))
        assert one["speed_mbps"] >= 0
        assert {type(one[name]) for name in ("infiniband", "virtual")} == {bool}


def test_the_address_by_which_this_machine_reaches_others_is_among_them():
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # Nothing is sent.
        except OSError:
            pytest.skip("this machine has no route to others")
        assert asked.getsockname()[0] in {one["address"] for one in interfaces.list_interfaces()}


def port_of(root, device, port, **files):
    place = root / device / "ports" / port
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / name).write_text(f"{text}\n")


def test_ports_that_are_active(tmp_path):
    port_of(tmp_path, "mlx5_1", "1", state="4: ACTIVE", link_layer="InfiniBand")
    port_of(tmp_path, "mlx5_0", "1", state="4: ACTIVE", link_layer="Ethernet")
    port_of(tmp_path, "mlx5_0", "2", state="1: DOWN", link_layer="InfiniBand")
    port_of(tmp_path, "qib0", "1", state="4: ACTIVE")
    port_of(tmp_path, "odd", "1")
    (tmp_path / "bare").mkdir()
    assert interfaces.list_infiniband_ports(str(tmp_path)) == [
        {"device": "mlx5_0", "port": "1", "link": "Ethernet"},
        {"device": "mlx5_1", "port": "1", "link": "InfiniBand"},
        {"device": "qib0", "port": "1", "link": "InfiniBand"},
    ]
    assert interfaces.list_infiniband_ports(str(tmp_path / "none")) == []


# What is reached.


@pytest.fixture
def server():
    with socket.create_server(("0.0.0.0", 0)) as listening:
        yield listening.getsockname()[1]


def test_addresses_that_answer_are_told_in_their_order_with_where_from(server):
    found = join.reach(["127.0.0.2", "127.0.0.1"], server)
    assert list(found) == ["127.0.0.2", "127.0.0.1"]
    assert all(own.startswith("127.") for own in found.values())


def test_one_that_refuses_is_not_among_them(server):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert list(join.reach(["127.0.0.2", "127.0.0.1"], port)) == ["127.0.0.1"]
    assert join.reach(["127.0.0.1"], port) == {}


def test_what_is_no_address_is_not_among_them(server):
    assert list(join.reach(["no address", "300.1.1.1", "127.0.0.1"], server)) == ["127.0.0.1"]
    assert join.reach([], server) == {}


@pytest.fixture
def blackhole():
    """An address and port that never answer: the queue of connections is full."""
    with contextlib.ExitStack() as open_sockets:
        full = open_sockets.enter_context(contextlib.closing(socket.socket()))
        full.bind(("127.0.0.3", 0))
        full.listen(0)
        for _ in range(4):
            peer = open_sockets.enter_context(contextlib.closing(socket.socket()))
            peer.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                peer.connect(full.getsockname())
        yield full.getsockname()


def test_one_that_never_answers_is_waited_for_no_longer_than_that(blackhole, monkeypatch):
    monkeypatch.setattr(join, "_REACH_S", 0.1)
    address, port = blackhole
    before = time.monotonic()
    assert join.reach([address], port) == {}
    assert time.monotonic() - before >= 0.1


def test_and_hardly_at_all_when_another_has_answered(blackhole, monkeypatch):
    monkeypatch.setattr(join, "_OTHERS_S", 0.05)
    monkeypatch.setattr(join, "_REACH_S", 60.0)
    address, port = blackhole
    with socket.create_server(("127.0.0.1", port)):
        assert list(join.reach([address, "127.0.0.1"], port)) == ["127.0.0.1"]


def test_no_descriptor_is_left(server, blackhole, monkeypatch):
    monkeypatch.setattr(join, "_REACH_S", 0.05)
    before = len(os.listdir("/proc/self/fd"))
    join.reach(["127.0.0.1", "no address"], server)
    join.reach([blackhole[0]], blackhole[1])
    assert len(os.listdir("/proc/self/fd")) == before
