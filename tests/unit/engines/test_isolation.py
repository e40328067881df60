"""Isolated nodes before there are any: settings, and what ip and tc are told. Pure."""

import pytest

from drumline.contract.errors import EngineError, PlanError, SpecError
from drumline.engines.local.isolation import batches, inside, needs
from drumline.engines.local.isolation.isolation_settings import Isolation, Link, read_isolation
from drumline.linux import limits
from drumline.spec.load import load_compute

FILE = """\
name: lab
type: local
nodes: 4
isolation: namespace
cpus: 0.5
memory: 2g
shm_size: 64 MiB
tmp_size: 1.5G
link: {rate: 1gbit, latency: 200us, loss: 0.5%}
silence: 10s
"""


def load(tmp_path, text):
    (tmp_path / "lab.yml").write_text(text)
    return load_compute(tmp_path / "lab.yml")


def test_the_settings_of_a_file_are_read_with_their_units(tmp_path):
    from drumline.spec.entity import to_dict

    compute = load(tmp_path, FILE)
    assert read_isolation(to_dict(compute)) == Isolation(
        "lab", 0.5, 2 << 30, 64 << 20, 3 << 29, Link(10**9, 0.2, 0.5), 10
    )
    compute.dump(tmp_path / "again.yml")
    assert load_compute(tmp_path / "again.yml") == compute
    assert read_isolation({"type": "local"}) is None


@pytest.mark.parametrize(
    ("line", "wrong", "place", "said"),
    [
        ("nodes: 4", "nodes: 251", (3, 8), "nodes must be"),
        ("isolation: namespace", "isolation: container", (4, 12), "isolation must be 'namespace'"),
        ("cpus: 0.5", "cpus: 0", (5, 7), "cpus must be a number above 0"),
        ("memory: 2g", "memory: 2000", (6, 9), "memory must be a size with its unit"),
        ("rate: 1gbit", "rate: 0gbit", (9, 14), "link.rate must be a rate"),
        ("latency: 200us", "latency: 200", (9, 30), "link.latency must be a time"),
        ("loss: 0.5%", "loss: half", (9, 43), "link.loss must be a part of all packets"),
        ("loss: 0.5%", "loss: 150%", (9, 43), "link.loss must be a part of all packets, less than 100%"),
        ("loss: 0.5%", "loss: 100%", (9, 43), "link.loss must be a part of all packets, less than 100%"),
        ("silence: 10s", "silence: 1s", (10, 10), "silence must be whole seconds, 2s to 999s"),
        ("isolation: namespace\n", "", (4, 1), "cpus needs isolated nodes"),
        ("loss", "lost", (9, 37), "unknown key 'lost' in link"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, line, wrong, place, said):
    with pytest.raises(SpecError) as caught:
        load(tmp_path, FILE.replace(line, wrong))
    problem = caught.value.problems[0]
    assert said in problem.what
    assert (problem.line, problem.column) == place


def test_a_job_cannot_have_more_nodes_than_the_compute():
    with pytest.raises(PlanError, match="compute 'lab' has 4 nodes; got 5"):
        needs.check_count(5, {"name": "lab", "nodes": 4})
    needs.check_count(4, {"name": "lab", "nodes": 4})


def test_nodes_with_a_number_of_processors_and_no_group_have_processors_of_their_own(monkeypatch):
    monkeypatch.setattr(needs.resources, "cores", lambda: (0, 1, 2, 3))
    monkeypatch.setenv("DRUMLINE_CGROUP", "0")
    shapes = needs.shape_nodes({"cpus": 2}, [0, 0, 0])
    assert [shape.cores for shape in shapes] == [(0, 1), (2, 3), (0, 1)]


def test_a_switch_has_a_cable_to_each_node():
    assert batches.make_switch(["/a", "/b"])[-2:] == [
        "link add port1 type veth peer name eth0 address 02:4d:00:00:00:02 netns /b",
        "link set port1 master switch up",
    ]


def test_a_link_is_shaped_in_both_directions_and_delayed_in_one():
    link = Link(10**8, 5.0, 1.0)
    assert batches.shape_card(link) == [
        "qdisc replace dev eth0 root handle 1: netem limit 20000 delay 5000us loss 1%",
        "qdisc replace dev eth0 parent 1:1 handle 10: tbf rate 100000000bit burst 65536b latency 50ms",
    ]
    assert batches.shape_port(1, link) == [
        "qdisc replace dev port1 root tbf rate 100000000bit burst 65536b latency 50ms"
    ]
    assert batches.shape_card(Link()) == ["qdisc replace dev eth0 root pfifo limit 1000"]


def test_nodes_in_no_group_stay_with_the_supervisor():
    ends = {node: f"port{node}" for node in range(4)}
    assert batches.part(0, [{1, 2}], ends) == [
        "link add group0 type bridge mcast_snooping 0 stp_state 0",
        "link set group0 up",
        "link set port0 master switch",
        "link set port1 master group0",
        "link set port2 master group0",
        "link set port3 master switch",
    ]
    assert batches.part(1, [], {0: "port0", 1: "far1"}) == [
        "link set port0 master switch",
        "link set far1 master switch",
    ]


def test_a_missing_program_is_one_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EngineError, match="there is no program 'no-such-ip' on this machine") as caught:
        inside.find_program("no-such-ip")
    assert caught.value.hint == "install iproute2"


def test_what_a_child_cannot_do_is_its_parents_error():
    def fail():
        raise OSError(1, "not allowed")

    with pytest.raises(EngineError, match="isolated nodes: not allowed"):
        inside.call_in_child(fail)
    assert inside.call_in_child(lambda: ()) == []


def test_limits_are_written_as_the_version_of_control_groups_wants_them(tmp_path):
    groups = limits.LimitGroups(str(tmp_path), str(tmp_path), 1)
    limits.limit_cpus(groups, 0.5)
    limits.limit_memory(groups, None)
    assert (tmp_path / "cpu.cfs_quota_us").read_text() == "50000"
    assert (tmp_path / "memory.limit_in_bytes").read_text() == "-1"
    groups = groups._replace(version=2)
    limits.limit_cpus(groups, 2)
    limits.limit_cpus(groups, None)
    limits.limit_memory(groups, 1 << 20)
    assert (tmp_path / "cpu.max").read_text() == "max 100000"
    assert (tmp_path / "memory.max").read_text() == "1048576"
