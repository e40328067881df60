"""Isolated nodes: what a rank sees of its own node and of the others, on real jobs."""

import json
import os

import pytest
from cli_jobs import logs_of, one_rank, write_script
from isolated_nodes import list_groups, list_networks, skip_without, write_compute
from waiting import wait_until

SEE = """
import json, os, socket, time
rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
shm = os.statvfs("/dev/shm")
tmp = os.statvfs(os.environ["TMPDIR"])
open("/dev/shm/mine", "x").close()
seen = {
    "host": socket.gethostname(),
    "address": socket.gethostbyname(socket.gethostname()),
    "peers": [socket.gethostbyname(f"lab-{node}") for node in range(count)],
    "cards": sorted(os.listdir("/sys/class/net")),
    "shm": shm.f_blocks * shm.f_frsize,
    "tmp": tmp.f_blocks * tmp.f_frsize,
    "network": os.stat("/proc/self/ns/net").st_ino,
    "world": os.environ["MASTER_ADDR"],
    "others": [name for name in os.listdir("/dev/shm") if name != "mine"],
}
began = time.monotonic()
try:
    socket.getaddrinfo("no-such-host.invalid", 80)
except OSError:
    seen["lookup"] = time.monotonic() - began
began = time.monotonic()
try:
    socket.create_connection(("192.0.2.1", 80), 60)
except OSError:
    seen["outside"] = time.monotonic() - began
print(json.dumps(seen))
"""
REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(4) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("sum", int(x[0]))
dist.destroy_process_group()
"""


def four_by_one(**fields):
    return one_rank(resources={"instance_count": 4}, compute="azureml:lab", **fields)


@pytest.fixture
def lab(cli, tmp_path):
    """Makes the compute "lab" with these settings."""

    def make(**settings):
        skip_without(**settings)
        done = cli("compute", "create", "-f", write_compute(tmp_path, **settings))
        assert done.rc == 0, done.err

    return make


def test_each_node_is_a_machine_of_its_own(cli, lab, tmp_path, drumline_home):
    lab(shm_size="32m", tmp_size="16m")
    before = list_groups()
    write_script(tmp_path, SEE, **four_by_one())
    done = cli("job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 0, done.err
    seen = [json.loads(log) for log in logs_of(drumline_home / "jobs" / "job")]
    addresses = [f"10.77.0.{node + 1}" for node in range(4)]
    assert [one["host"] for one in seen] == ["lab-0", "lab-1", "lab-2", "lab-3"]
    assert [one["address"] for one in seen] == addresses
    assert all(one["peers"] == addresses and one["world"] == addresses[0] for one in seen)
    assert all((one["shm"], one["tmp"]) == (32 << 20, 16 << 20) for one in seen)
    assert all(one["others"] == [] for one in seen)
    networks = {one["network"] for one in seen}
    assert len(networks) == 4
    assert os.geteuid() != 0 or all(one["cards"] == ["eth0", "lo"] for one in seen)
    # A name or an address that is not there is known at once, not after a time limit.
    assert max(one["lookup"] for one in seen) < 8
    assert max(one["outside"] for one in seen) < 30
    shown = json.loads(cli("job", "show", "-n", "job", "-o", "json").out)
    assert [(one["host"], one["address"]) for one in shown["nodes"]] == [
        (f"lab-{node}", address) for node, address in enumerate(addresses)
    ]
    wait_until(lambda: not networks & list_networks(), 20.0, "the networks of the nodes to be gone")
    assert list_groups() <= before


def test_pytorch_reduces_over_the_nodes_with_no_variable_set_by_hand(cli, lab, tmp_path, drumline_home):
    pytest.importorskip("torch")
    lab()
    write_script(tmp_path, REDUCE, **four_by_one())
    done = cli("job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 0, done.err
    assert [log.split() for log in logs_of(drumline_home / "jobs" / "job")] == [["sum", "10"]] * 4
