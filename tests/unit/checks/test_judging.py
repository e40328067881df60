"""Every check fires on its fault, on the node that has it, and no check fires on healthy nodes."""

import copy
import re
from pathlib import Path

import pytest

from drumline.checks import findings, registry
from drumline.checks.findings import NodeDemand, NodeReport
from drumline.checks.registry import GATHERERS

GUIDE = Path(__file__).parents[3] / "docs" / "howto" / "doctor.md"
GB = 10**9
GPU = {
    "index": "0",
    "driver_version": "550.54",
    "memory.used": "1",
    "ecc.errors.uncorrected.volatile.total": "0",
    "clocks_throttle_reasons.hw_slowdown": "Not Active",
    "clocks_throttle_reasons.hw_thermal_slowdown": "Not Active",
    "remapped_rows.pending": "No",
}


def healthy(node, count):
    """The facts of a node that nothing is wrong with."""
    address = f"10.0.0.{node + 1}"
    others = [other for other in range(count) if other != node]
    name = {"name": f"n{node}", "ipv4": [address], "ipv6": [], "error": "", "seconds": 0.001}
    folder = {"name": "run folder", "path": "/shared/j", "error": "", "free": 90 * GB, "total": 100 * GB}
    port = {
        "device": "mlx5_0",
        "port": "1",
        "state": "ACTIVE",
        "rate": "400 Gb/sec",
        "link": "InfiniBand",
        "gids": 1,
    }
    return {
        "python": {
            "python": "/usr/bin/python",
            "version": "3.11.2",
            "packages": {"torch": "2.4.0", "nvidia-nccl-cu12": "2.20.5", "numpy": "2.0.1"},
            "mpi": "mpirun (Open MPI) 4.1.4",
            "mpi_kind": "Open MPI",
            "mpi_libraries": ["libmpi.so.40.30.4"],
        },
        "code": {"folder": "/shared/code", "digest": "1234", "files": 3},
        "library": {"path": "/lib/libtorch_cpu.so", "rate": 2_000_000_000},
        "names": {"host": f"n{node}", "looked_up": [name]},
        "reverse": {"looked_up": [{"address": "10.0.0.1", "name": "", "seconds": 0.001}]},
        "network": {
            "address": address,
            "machine": f"boot-{node}",
            "interfaces": [{"name": "eth0", "address": address, "mtu": 1500}],
            "local_ports": [32768, 60999],
            "ipv6_only": False,
            "port_error": "",
            "default_port": "",
        },
        "proxies": {"proxies": [], "spares_loopback": False, "missing_certificates": []},
        "cpu": {"cores": 8, "quota": None, "spawn_s": 0.01, "product": "0x1.8p+1"},
        "memory": {
            "total": 64 * GB,
            "available": 50 * GB,
            "limit": None,
            "shared": "/dev/shm",
            "shared_total": 32 * GB,
        },
        "gpus": {"program": "/usr/bin/nvidia-smi", "gpus": [dict(GPU)]},
        "infiniband": {"ports": [port]},
        "limits": {"nofile": 4096, "nproc": None, "memlock": None},
        "features": {
            "kernel": "6.1.0",
            "pidfd": True,
            "user_namespaces": True,
            "ptrace_scope": 1,
            "control_group": True,
            "root": False,
        },
        "user": {
            "uid": 1000,
            "umask": 0o22,
            "home": "/home/a",
            "home_writable": True,
        },
        "disk": {"folders": [{**folder, "inodes": 10**6, "write_s": 0.01}]},
        "shared": {"paths": [{"path": "/shared/j", "error": "", "inode": 77}]},
        "leftovers": {"processes": [], "folders": []},
        "clock": {"time": 1e9},
        "connections": {
            "busy": 0.0,
            "connected": [{"node": other, "error": "", "seconds": 0.001} for other in others],
            "received": [
                {
                    "node": other,
                    "error": "",
                    "seconds": 1e-4,
                    "bytes_per_s": 118_000_000,
                    "mtu": 1500,
                    "stalled": False,
                }
                for other in others
            ],
        },
    }


DEMAND = NodeDemand(ranks=4, cores=4, gpus=1, memory_bytes=40 * GB)


def judge(change=None, node=1, count=3, demand=DEMAND):
    reports = [
        NodeReport(one, f"host-{one}", healthy(one, count), 1e9, demand=demand) for one in range(count)
    ]
    if change:
        change(reports[node].facts)
    return registry.judge_all(reports)


def assign(path, value):
    """Return what sets one fact, such as ``disk/folders/0/free``."""
    *parents, last = path.split("/")

    def change(facts):
        place = facts
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        place[int(last) if isinstance(place, list) else last] = value

    return change


def both(*changes):
    def change(facts):
        for one in changes:
            one(facts)

    return change


def test_healthy_nodes_have_nothing():
    found = judge()
    assert [one for one in found if one.status != "ok"] == []
    assert {one.check for one in found} == {check.id for check in registry.CHECKS}


FAULTS = [
    ("python", "warning", assign("python/version", "3.8.10"), "older than 3.9"),
    ("python", "warning", assign("python/version", "3.12.1"), "its Python is 3.12, and 3.11 on nodes 0 and 2"),
    ("python", "warning", assign("python/python", ""), "there is no python on the search path"),
    ("python", "warning", assign("python/error", "cannot open libpython3.so"), "does not start: cannot open"),
    ("packages", "error", assign("python/packages/torch", "2.5.1"), "its torch is 2.5.1, and 2.4.0 on nodes 0 and 2"),
    ("packages", "error", assign("python/packages/nvidia-nccl-cu12", "2.21.5"), "nvidia-nccl-cu12"),
    ("packages", "warning", assign("python/packages/numpy", "1.26.0"), "numpy"),
    ("mpi", "warning", assign("python/mpi", ""), "its mpirun is missing"),
    (
        "mpi",
        "warning",
        assign("python/mpi_libraries", ["libmpich.so.12.4.1"]),
        "its mpirun is Open MPI's, and its mpi4py loads libmpich.so.12.4.1 of MPICH",
    ),
    ("host-name", "warning", assign("names/looked_up/0/ipv4", ["127.0.1.1"]), "127.0.1.1, which no other node reaches"),
    ("host-name", "warning", assign("names/looked_up/0/ipv4", ["192.168.0.7"]), "and the ranks use 10.0.0.2"),
    ("host-name", "warning", assign("names/looked_up/0/error", "Name or service not known"), "cannot be looked up"),
    ("look-ups", "warning", assign("names/looked_up/0/seconds", 5.0), "takes 5 s"),
    ("look-ups", "warning", assign("names", {"late": 0.8}), "longer than 0.8 s"),
    ("look-ups", "warning", assign("reverse/looked_up/0/seconds", 5.0), "looking up 10.0.0.1 takes 5 s"),
    ("look-ups", "warning", assign("reverse", {"late": 0.8}), "the names of the nodes' addresses takes"),
    (
        "look-ups",
        "warning",
        lambda facts: facts["names"]["looked_up"].append({**facts["names"]["looked_up"][0], "error": "not known"}),
        "it cannot look up the name of another node",
    ),
    (
        "interfaces",
        "error",
        both(assign("network/address", "10.0.0.1"), assign("names/looked_up/0/ipv4", ["10.0.0.1"])),
        "nodes 0 and 1 have the same address 10.0.0.1",
    ),
    ("ports", "error", assign("network/port_error", "no free port"), "no port can be had"),
    ("ports", "warning", assign("network/local_ports", [1024, 65535]), "from 1024 on"),
    ("ports", "warning", assign("network/default_port", "port 29500 is held by process 7 (python)"), "process 7"),
    ("ipv6", "warning", assign("network/ipv6_only", True), "bindv6only"),
    (
        "ipv6",
        "warning",
        both(assign("names/looked_up/0/ipv4", []), assign("names/looked_up/0/ipv6", ["fd00::1"])),
        "an address of IPv6 alone, fd00::1",
    ),
    ("proxies", "warning", assign("proxies/proxies", ["http_proxy"]), "http_proxy is set"),
    ("proxies", "warning", assign("proxies/missing_certificates", ["SSL_CERT_FILE"]), "SSL_CERT_FILE"),
    ("shared-memory", "warning", assign("memory/shared_total", 64 << 20), "/dev/shm has 64 MiB"),
    ("shared-memory", "warning", assign("memory/shared_error", "No such file or directory"), "there is no /dev/shm"),
    ("cores", "warning", assign("cpu/cores", 2), "2 of 4 cores"),
    ("cores", "warning", assign("cpu/quota", 1.5), "a control group allows 1.5"),
    ("memory", "warning", assign("memory/limit", 100 << 20), "limited to 100 MiB"),
    ("memory", "warning", assign("memory/available", 30 * GB), "available, and the job was given 37.3 GiB"),
    ("limits", "warning", assign("limits/nofile", 256), "open no more files than 256"),
    ("limits", "warning", assign("limits/nproc", 100), "100"),
    ("limits", "warning", assign("limits/memlock", 65536), "lock no more than"),
    ("features", "error", assign("features/pidfd", False), "pidfd"),
    ("features", "warning", assign("features/control_group", False), "control groups"),
    ("features", "warning", assign("features/user_namespaces", False), "no isolated nodes"),
    ("features", "warning", assign("features/ptrace_scope", 2), "py-spy"),
    ("disk", "error", assign("disk/folders/0/error", "Read-only file system"), "Read-only file system"),
    ("disk", "warning", assign("disk/folders/0/free", 1 << 20), "1 MiB left"),
    ("disk", "warning", assign("disk/folders/0/inodes", 5), "room for 5 files"),
    ("disk", "warning", assign("disk/folders/0/write_s", 4.2), "took 4.2 s"),
    ("disk", "warning", assign("disk", {"late": 0.8}), "takes longer than 0.8 s"),
    ("user", "warning", assign("user/uid", 1001), "its user ID is 1001, and 1000"),
    ("user", "warning", assign("user/home", "/root"), "its home is /root"),
    ("user", "warning", assign("user/umask", 0o77), "its umask is 077, and 022"),
    ("user", "warning", assign("user/umask", 0o722), "takes the rights from the owner"),
    ("user", "warning", assign("user/home_writable", False), "cannot be written to"),
    ("gpus", "error", assign("gpus/gpus", []), "0 GPUs of the 1"),
    ("gpus", "error", both(assign("gpus/gpus", []), assign("gpus/error", "driver mismatch")), "driver mismatch"),
    ("gpus", "warning", assign("gpus/gpus/0/ecc.errors.uncorrected.volatile.total", "3"), "3 memory errors"),
    ("gpus", "warning", assign("gpus/gpus/0/remapped_rows.pending", "Yes"), "to remap"),
    ("gpus", "warning", assign("gpus/gpus/0/clocks_throttle_reasons.hw_thermal_slowdown", "Active"), "too hot"),
    ("gpus", "warning", assign("gpus/gpus/0/memory.used", "70000"), "70000 MiB in use"),
    ("infiniband", "warning", assign("infiniband/ports/0/state", "DOWN"), "is DOWN, not ACTIVE"),
    ("infiniband", "warning", assign("infiniband/ports/0/device", "mlx5_0i"), "devices are mlx5_0i, and mlx5_0"),
    ("infiniband", "warning", assign("infiniband/ports/0/rate", "100 Gb/sec"), "rates are 100 Gb/sec"),
    (
        "infiniband",
        "warning",
        both(assign("infiniband/ports/0/link", "Ethernet"), assign("infiniband/ports/0/gids", 0)),
        "no GID",
    ),
    ("library-speed", "warning", assign("library/rate", 350_000), "342 KiB/s"),
    ("spawn", "warning", assign("cpu/spawn_s", 0.9), "takes 0.9 s to start"),
    (
        "leftovers",
        "warning",
        assign("leftovers/processes", [{"pid": 7, "job": "calm_drum", "folder": "/h/calm_drum"}]),
        "process 7 of job calm_drum",
    ),
    ("leftovers", "warning", assign("leftovers/folders", ["/tmp/drumline-00000000-n1"]), "1 folder of ended agents"),
    ("drivers", "warning", assign("gpus/gpus/0/driver_version", "535.10"), "driver is 535.10, and 550.54"),
    ("code", "error", assign("code/digest", "5678"), "the programs in /shared/code differ"),
    ("clocks", "warning", assign("clock/time", 1e9 - 30), "30 s behind"),
    ("arithmetic", "error", assign("cpu/product", "0x1.8p+2"), "computes 0x1.8p+2"),
    ("shared-paths", "error", assign("shared/paths/0/error", "No such file or directory"), "/shared/j is not there"),
    ("shared-paths", "warning", assign("shared/paths/0/inode", 78), "another folder than on nodes 0 and 2"),
    ("shared-paths", "warning", assign("shared", {"late": 0.8}), "its shared folders do not answer"),
    ("connections", "error", assign("connections/connected/0/error", "No route to host"), "cannot connect to node 0"),
    (
        "connections",
        "warning",
        assign("connections/connected/0/error", "no answer within 0.4 s"),
        "no answer within 0.4 s",
    ),
    ("large-packets", "warning", assign("connections/received/0/lost_packet", 9000), "packets of 9000 bytes"),
    ("large-packets", "warning", assign("connections/received/0/stalled", True), "small packets of node 0 (host-0)"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "status", "change", "said"), FAULTS)
def test_a_fault_is_found_and_named(check, status, change, said):
    found = [one for one in judge(change) if one.status != "ok"]
    assert {one.check for one in found} == {check}, found
    named = [one for one in found if said in one.finding]
    assert [one.status for one in named] == [status], found
    assert named[0].node in (1, None)
    assert named[0].remedy


def test_each_check_has_a_fault():
    assert {check.id for check in registry.CHECKS} - {one[0] for one in FAULTS} == {"links"}


def links(rates):
    """Three nodes whose links carry those bytes a second, by (from, to)."""
    reports = [NodeReport(one, f"host-{one}", copy.deepcopy(healthy(one, 3)), 1e9) for one in range(3)]
    for one in reports:
        for link in one.facts["connections"]["received"]:
            link["bytes_per_s"] = rates.get((link["node"], one.node), link["bytes_per_s"])
    return [one for one in registry.judge_all(reports) if one.check == "links" and one.status != "ok"]


def test_a_slow_link_is_named_with_its_rate():
    slow = {(2, 0): 11_900_000, (2, 1): 11_800_000}
    found = links(slow)
    assert [(one.node, one.status) for one in found] == [(2, "warning")]
    assert "carries 95.2 Mbit/s from it, and those of the other nodes 944 Mbit/s" in found[0].finding


def test_one_slow_pair_is_no_slow_node_and_loopback_speed_is_no_link():
    assert links({(2, 0): 11_900_000}) == []
    fast = {(one, other): 3 * GB for one in range(3) for other in range(3)}
    assert links({**fast, (1, 0): GB, (1, 2): 4 * GB}) == []


def test_links_of_a_busy_node_were_not_measured():
    reports = [NodeReport(one, f"host-{one}", healthy(one, 3), 1e9) for one in range(3)]
    for one in (0, 1):
        link = next(link for link in reports[one].facts["connections"]["received"] if link["node"] == 2)
        link["bytes_per_s"] = 11_900_000
    assert [
        one.node for one in registry.judge_all(reports) if one.check == "links" and one.status != "ok"
    ] == [2]
    reports[2].facts["connections"]["busy"] = 0.4
    assert [
        (one.node, one.status, one.finding) for one in registry.judge_all(reports) if one.check == "links"
    ] == [
        (None, "ok", "944 Mbit/s to 944 Mbit/s"),
        (2, "ok", "not judged: the node was waiting for a core"),
    ]
    reports[1].facts["connections"]["busy"] = 0.4
    (found,) = [one for one in registry.judge_all(reports) if one.check == "links"]
    assert (found.status, found.finding) == ("ok", "not compared: the cores of the nodes were busy meanwhile")


def test_of_two_nodes_one_slow_way_is_said_once():
    reports = [NodeReport(one, "", healthy(one, 2), 1e9) for one in range(2)]
    reports[1].facts["connections"]["received"][0]["bytes_per_s"] = 11_900_000
    found = [one for one in registry.judge_all(reports) if one.check == "links" and one.status != "ok"]
    assert [one.node for one in found] == [0]
    assert "95.2 Mbit/s" in found[0].finding


def test_a_node_that_nobody_reaches_is_named_once():
    def change(facts):
        facts["connections"]["connected"][0]["error"] = "no answer within 0.5 s"

    reports = [NodeReport(one, f"host-{one}", healthy(one, 3), 1e9) for one in range(3)]
    change(reports[1].facts)
    change(reports[2].facts)
    found = [one for one in registry.judge_all(reports) if one.check == "connections" and one.status != "ok"]
    assert [one.node for one in found] == [0]
    assert "no other node can connect" in found[0].finding


def test_facts_of_another_version_end_no_job():
    found = judge(lambda facts: facts.update(memory={"total": "a lot"}, cpu={"cores": None}))
    said = [one for one in found if one.check in ("memory", "cores") and one.status != "ok"]
    assert [one.status for one in said] == ["warning", "warning"]
    assert all("not understood" in one.finding for one in said)


def test_facts_that_cannot_be_had_say_nothing():
    found = judge(lambda facts: facts.update({name: {"failed": "OSError"} for name in facts}))
    assert [one for one in found if one.status != "ok"] == []


def test_a_quota_below_the_cores_is_told_where_no_job_asked():
    found = judge(assign("cpu/quota", 6.0), demand=NodeDemand())
    said = [one.finding for one in found if one.check == "cores" and one.status != "ok"]
    assert said == ["a control group allows the time of 6 cores, and programs see 8"]


def test_little_memory_is_told_where_no_job_asked_for_some():
    reports = [NodeReport(0, "", {"memory": {**healthy(0, 1)["memory"], "available": 100 << 20}})]
    (found,) = [one for one in registry.judge_all(reports) if one.check == "memory"]
    assert (found.status, found.finding.partition(" memory")[0]) == ("warning", "100 MiB of 59.6 GiB")


@pytest.mark.parametrize(
    ("limit", "said"), [(1 << 30, "1 GiB of 1 GiB available"), (None, "46.6 GiB of 59.6 GiB available")]
)
def test_no_more_memory_is_available_than_a_node_may_use(limit, said):
    """What is available is the machine's, of which the control group of a node allows a part."""
    reports = [NodeReport(0, "", {"memory": {**healthy(0, 1)["memory"], "limit": limit}})]
    assert [one.finding for one in registry.judge_all(reports) if one.check == "memory"] == [said]


def test_root_needs_no_user_namespaces_for_isolated_nodes():
    features = {**healthy(0, 1)["features"], "user_namespaces": False, "root": True}
    found = registry.judge_all([NodeReport(0, "", {"features": features})])
    assert [one.status for one in found if one.check == "features"] == ["ok"]


def test_one_node_alone_is_compared_with_none():
    found = registry.judge_all([NodeReport(0, "", healthy(0, 1))])
    assert {one.check for one in found} == {check.id for check in registry.CHECKS if check.judge}


def test_what_all_nodes_say_alike_is_one_finding():
    found = findings.join_equal(judge(assign("memory/shared_total", 64 << 20)), 3)
    assert [(one.node, one.status) for one in found if one.check == "cores"] == [(None, "ok")]
    assert [(one.node, one.status) for one in found if one.check == "host-name"] == [
        (node, "ok") for node in range(3)
    ]
    shared = [(one.node, one.status) for one in found if one.check == "shared-memory"]
    assert shared == [(0, "ok"), (1, "warning"), (2, "ok")]


def test_what_could_not_be_checked_is_told_where_nobody_waits_for_ranks():
    reports = [NodeReport(one, f"host-{one}", healthy(one, 3), 1e9) for one in range(3)]
    unknown = {"gpus": {"failed": "no core was free for it"}, "names": {"late": 10.0}}
    reports[1] = reports[1]._replace(facts={**reports[1].facts, **unknown})
    found = registry.add_unknown(registry.judge_all(reports), reports)
    told = [(one.check, one.node, one.finding) for one in found if one.status != "ok"]
    assert told == [
        ("host-name", 1, "it was not checked: that takes longer than 10 s"),
        ("look-ups", 1, "looking up host names takes longer than 10 s"),
        ("ipv6", 1, "it was not checked: that takes longer than 10 s"),
        ("gpus", 1, "it was not checked: no core was free for it"),
        ("drivers", 1, "it was not checked: no core was free for it"),
    ]
    assert [one.check for one in found if one.check == "ipv6"] == ["ipv6"]


def test_links_that_were_not_measured_in_time_are_told_where_nobody_waits_for_ranks():
    reports = [NodeReport(one, f"host-{one}", healthy(one, 3), 1e9) for one in range(3)]
    facts = {name: group for name, group in reports[1].facts.items() if name != "connections"}
    reports[1] = reports[1]._replace(facts=facts)
    found = registry.add_unknown(registry.judge_all(reports), reports)
    assert [(one.check, one.node, one.finding) for one in found if one.status != "ok"] == [
        (check, 1, "it was not checked: its links were not measured in time")
        for check in ("connections", "large-packets", "links")
    ]
    alone = reports[1:2]
    assert [one for one in registry.add_unknown(registry.judge_all(alone), alone) if one.status != "ok"] == []


def test_of_too_many_findings_problems_stay_in_their_order():
    node = NodeReport(0, "", {})
    found = [node.ok("a"), node.warning("b", ""), node.ok("c"), node.error("d", "")]
    assert [one.finding for one in findings.keep_worst(found, 3)] == ["a", "b", "d"]
    assert [one.finding for one in findings.keep_worst(found, 1)] == ["b"]


def test_every_group_of_facts_has_a_gatherer():
    assert set(registry.list_groups()) == set(GATHERERS)


def test_the_guide_lists_every_check():
    from drumline.control.upkeep.machine_doctor import OWN_CHECKS

    text = GUIDE.read_text().partition("## The checks")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE)
    assert rows == [*(check.id for check in registry.CHECKS), *OWN_CHECKS]
