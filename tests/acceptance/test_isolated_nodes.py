"""Isolated nodes: what a rank sees of its own node and of the others, on real jobs."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, background, logs_of, one_rank, status_of, write_script
from isolated_nodes import (
    NOBODY,
    enter_folder_of_nobody,
    list_left,
    list_networks,
    run_as_nobody,
    skip_without,
    write_compute,
)
from needs import need_torch
from waiting import wait_until

from drumline.engines.local.isolation import inside
from drumline.linux import namespaces

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
    assert list_left(drumline_home / "jobs" / "job") == []


def test_pytorch_reduces_over_the_nodes_with_no_variable_set_by_hand(cli, lab, tmp_path, drumline_home):
    need_torch()
    lab()
    write_script(tmp_path, REDUCE, **four_by_one())
    done = cli("job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 0, done.err
    assert [log.split() for log in logs_of(drumline_home / "jobs" / "job")] == [["sum", "10"]] * 4


def test_without_isolated_nodes_there_is_no_link(cli):
    done = cli("run", "--nodes", "2", "--link", "1gbit", "--", "true")
    assert (done.rc, done.err.splitlines()[0]) == (2, "error: --link needs --isolate")


@pytest.mark.root
def test_processor_time_and_memory_are_limited(cli, lab, tmp_path, drumline_home):
    lab(cpus=0.5, memory="200m")
    text = """
        import time
        wall, own = time.monotonic(), time.process_time()
        while time.monotonic() < wall + 1.5:
            pass
        print((time.process_time() - own) / (time.monotonic() - wall), flush=True)
        b"x" * (400 << 20)
        """
    write_script(tmp_path, text, **one_rank(compute="azureml:lab", resources={"instance_count": 1}))
    done = cli("job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 1, done.err
    assert "for memory had run out" in done.out
    (log,) = logs_of(drumline_home / "jobs" / "job")
    assert float(log.split()[0]) < 0.65
    assert list_left(drumline_home / "jobs" / "job") == []


def test_a_command_beside_a_rank_is_on_its_node_and_nothing_outlives_a_killed_supervisor(
    cli, lab, tmp_path, drumline_home
):
    lab(tmp_size="16m")
    write_script(tmp_path, WAIT_FOR_SIGNAL, **four_by_one())
    # Nobody follows the job: who does ends what is left of it.
    assert cli("job", "create", "-f", "job.yml").rc == 0
    run_folder = drumline_home / "jobs" / "job"
    wait_until(lambda: all("ready" in log for log in logs_of(run_folder)), 20.0, "all ranks to run")
    command = "hostname; ls $TMPDIR/..; cat /etc/hosts"
    beside = cli("job", "exec", "job", "--rank", "2", "--", "sh", "-c", command)
    assert beside.rc == 0, beside.err
    assert beside.out.splitlines()[0] == "lab-2"
    assert "10.77.0.4 lab-3" in beside.out
    assert "train.py:1" in cli("job", "stacks", "job").out
    events = (run_folder / "events.jsonl").read_text()
    agents = [json.loads(line)["pid"] for line in events.splitlines() if '"AgentJoined"' in line]
    networks = {os.stat(f"/proc/{pid}/ns/net").st_ino for pid in agents}
    assert len(networks) == 4
    # An agent that cannot hear of the supervisor's end learns of it all the same.
    cut_cable(agents[3])
    os.kill(json.loads((run_folder / "supervisor.json").read_text())["pid"], signal.SIGKILL)
    wait_until(lambda: not networks & list_networks(), 8.0, "the networks of the nodes to be gone")
    assert status_of("job") == "Failed"
    assert list_left(run_folder) == []


def cut_cable(agent):
    """Take the node of that agent off the network, from within."""

    def cut():
        for space, kind in namespaces.open_others(agent):
            if kind in (namespaces.USER, namespaces.NETWORK):
                namespaces.enter(space, kind)
                if kind == namespaces.USER:
                    namespaces.pass_on_capabilities()
        inside.run_batch("ip", ["link set eth0 down"])
        return ()

    inside.call_in_child(cut)


def test_a_killed_agent_is_named_and_its_node_is_cleared(cli, lab, tmp_path, drumline_home):
    lab()
    write_script(tmp_path, WAIT_FOR_SIGNAL, **four_by_one(drumline={"grace": 1}))
    with background("job", "create", "-f", "job.yml", "--stream", cwd=tmp_path) as job:
        job.wait_for_output("ready", 4)
        events = (drumline_home / "jobs" / "job" / "events.jsonl").read_text()
        joined = [json.loads(line) for line in events.splitlines() if '"AgentJoined"' in line]
        os.kill(next(one["pid"] for one in joined if one["node"] == 1), signal.SIGKILL)
        assert job.end() != 0
        assert "the agent of node 1 (lab-1) was killed by SIGKILL" in job.out
    assert list_left(drumline_home / "jobs" / "job") == []


def test_ranks_of_mpirun_are_on_machines_of_their_own(cli, tmp_path):
    skip_without()
    pytest.importorskip("mpi4py")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun here; scripts/test installs openmpi-bin as root")
    (tmp_path / "program.py").write_text(
        "import socket\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "print(world.allreduce(world.rank), *sorted(set(world.allgather(socket.gethostname()))))\n"
    )
    options = ["--nodes", "2", "--procs", "2", "--distribution", "mpi", "--isolate", "--no-prefix"]
    done = cli("run", *options, "--", "python", "program.py")
    assert (done.rc, done.out.splitlines()) == (0, ["6 node-0 node-1"] * 4), done.err


def test_torchrun_inside_of_a_job_finds_the_other_node_by_its_name(cli, tmp_path):
    skip_without()
    need_torch()
    (tmp_path / "reduce.py").write_text(REDUCE)
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "node-0:29400", "--rdzv-id", "one"]
    options = ["run", "--nodes", "2", "--isolate", "--no-prefix", "--"]
    done = cli(*options, "torchrun", "--nnodes", "2", *rendezvous, "reduce.py")
    assert done.rc == 0, done.err
    assert done.out.count("sum 3") == 2


def test_a_node_that_cannot_be_made_is_told_at_once(cli, lab, tmp_path):
    lab(tmp_size="16m")
    write_script(tmp_path, "", **four_by_one())
    done = cli("job", "create", "-f", "job.yml", "--stream", env={"TMPDIR": "/proc"})
    assert done.rc == 1
    assert "no scratch folder /proc/drumline-" in done.out + done.err


@pytest.mark.root
def test_an_ordinary_user_has_isolated_nodes_too(cli, tmp_path):
    skip_without(link={"rate": "100mbit"})
    with enter_folder_of_nobody() as (folder, python):
        program = ["sh", "-c", "hostname; id -u; grep CapEff /proc/self/status"]
        # Late packets are carried by a process where the kernel cannot delay them.
        made = write_compute(Path(folder), "node", link={"rate": "100mbit", "latency": "5ms"})
        done = run_as_nobody([python, "-m", "drumline", "compute", "create", "-f", str(made)], folder)
        assert done.returncode == 0, done.stderr
        words = ["run", "--nodes", "2", "--compute", "node", "--no-prefix", "--", *program]
        done = run_as_nobody([python, "-m", "drumline", *words], folder)
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.split()) == sorted(
            [*("node-0", "node-1"), *[str(NOBODY)] * 2, *["CapEff:", "0" * 16] * 2]
        )
