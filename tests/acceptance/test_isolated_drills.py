"""Drills of the network and the limits of isolated nodes, each with the job's own verdict."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from cli_jobs import wait_for_status
from isolated_nodes import skip_without, write_compute
from waiting import wait_until

from drumline.contract.outcome import fold
from drumline.control.facts import description
from drumline.control.jobs.lookup import folder_of
from drumline.engines.local.isolation.carrier import NOTE
from drumline.engines.local.isolation.needs import has_netem
from drumline.linux import descendants
from drumline.node import leftovers

pytestmark = pytest.mark.timeout(600)

WAITS = "import time\nopen('ready-%s' % __import__('os').environ['RANK'], 'w').close()\nwhile True: time.sleep(0.05)\n"

ASKS = """
import os, select, socket, time
rank, address, port = int(os.environ["RANK"]), os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server((address, port))
    peer = server.accept()[0]
else:
    while True:
        try:
            peer = socket.create_connection((address, port), 20)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
# A socket with a time limit is one that does not block, and returns the piece that is there: MSG_WAITALL is void then.
peer.settimeout(None)
open(f"ready-{rank}", "w").close()

def answer():
    # Until the other end is closed, which may come in any form.
    try:
        while peer.recv(1):
            peer.sendall(b"x" * 20000)
    except ConnectionError:
        pass
    while not os.path.exists("go"):
        time.sleep(0.05)

def ask():
    peer.sendall(b"?")
    left = 20000
    while left:
        # Patient until it is told not to be.
        while not select.select([peer], [], [], 0.05)[0]:
            if os.path.exists("impatient") and not select.select([peer], [], [], 1.0)[0]:
                open("gave-up", "w").close()
                raise TimeoutError("timed out")
        piece = peer.recv(left)
        assert piece, "rank 0 is gone"
        left -= len(piece)

slowest = 0.0
if rank == 0:
    answer()
while not os.path.exists("go"):
    before = time.monotonic()
    ask()
    slowest = max(slowest, time.monotonic() - before)
    with open("slowest.new", "w") as file:
        file.write(str(slowest))
    os.rename("slowest.new", "slowest")
    time.sleep(0.01)
peer.close()
"""


@pytest.fixture
def begin(cli, tmp_path):
    """Start a program of one rank on each of some isolated nodes, and wait until all of them are ready."""

    def start(name, code, nodes=2, env=None, **settings):
        skip_without(**settings)
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(code)
        made = cli(
            "compute", "create", "-f", write_compute(folder, f"lab{name}", nodes=nodes, **settings), env=env
        )
        assert made.rc == 0, made.err
        words = [
            "run",
            "--name",
            name,
            "--nodes",
            str(nodes),
            "--compute",
            f"lab{name}",
            "--grace",
            "1",
            "--detach",
        ]
        done = cli(*words, "--", sys.executable, "train.py", cwd=folder, env=env)
        assert done.rc == 0, done.err
        wait_until(lambda: len(list(folder.glob("ready-*"))) == nodes, 30, "the ranks")
        return folder

    return start


def drills_of(name):
    return list(fold(folder_of(name).read_events()).drills.values())


def test_a_node_without_power_and_one_cut_off_are_named_by_the_verdicts(cli, begin, tmp_path):
    """Both at once, for a node is given up after a silence; each home has a job queue of its own."""
    other = {"DRUMLINE_HOME": str(tmp_path / "other home")}
    begin("dark", WAITS, nodes=3, silence="10s")
    begin("cut", WAITS, nodes=3, env=other, silence="10s")
    assert cli("drill", "dark", "power-off", "--node", "2").rc == 0
    done = cli("drill", "cut", "partition", "--between", "0,2/1", env=other)
    assert done.rc == 0, done.err
    assert "(between 0,2/1)" in done.err
    for name, node, env in (("dark", 2, None), ("cut", 1, other)):
        cli("job", "wait", name, env=env)
        shown = json.loads(cli("job", "show", name, "-o", "json", env=env).out)
        assert shown["status"] == "Failed"
        lost = f"the agent of node {node} (lab{name}-{node}) has not answered for 10 s"
        assert shown["reason"].startswith(lost), shown["reason"]
        assert shown["failed_node"] == node
        page = cli("job", "show", name, "-o", "table", env=env).out
        assert f"  during the drill '{shown['drills'][0]['kind']}' on " in page
    assert shown["drills"][0]["reason"] == "its attempt ended"


def test_a_cut_and_a_slow_link_delay_a_job_and_end(cli, begin):
    folder = begin("slow", ASKS)
    wait_until((folder / "slowest").exists, 30, "the first answer")
    assert cli("drill", "slow", "partition", "--node", "1", "--for", "2s").rc == 0
    wait_until(lambda: drills_of("slow")[0].ended, 20, "the end of the cut")
    wait_until(lambda: float((folder / "slowest").read_text()) > 1.0, 30, "an answer from behind the cut")
    assert cli("drill", "slow", "slow-link", "--node", "0", "--rate", "64kbit").rc == 0
    assert cli("drill", "slow", "end").rc == 0
    wait_until(lambda: all(one.ended for one in drills_of("slow")), 20, "the end of the slow link")
    done = cli("drill", "slow", "slow-link", "--node", "0", "--rate", "fast")
    assert (done.rc, done.err.splitlines()[0]) == (2, "error: drill 'slow-link': --rate: 'fast' is no rate")
    done = cli("drill", "slow", "partition", "--between", "0/7")
    assert (done.rc, "the job has no such node" in done.err) == (2, True)
    done = cli("drill", "slow", "lossy-link", "--node", "0", "--rate", "1mbit")
    assert (done.rc, "has no setting 'rate'" in done.err) == (2, True)
    (folder / "go").touch()
    shown = wait_for_status("slow", "Completed")
    assert [one["kind"] for one in shown["drills"]][:2] == ["partition", "slow-link"]
    assert shown["drills"][1]["settings"] == {"rate": "64kbit"}
    assert [(one["node"], one["reason"].partition(" by ")[0]) for one in shown["drills"]] == [
        (1, "its time was over"),
        (0, "ended"),
    ]


def test_a_late_and_a_lossy_link_show_in_a_job_and_its_verdict_is_of_its_rank(cli, begin):
    # Nobody hears node 1 while its packets are lost: the job is to outlast that.
    folder = begin("lossy", ASKS, silence="200s")
    wait_until((folder / "slowest").exists, 30, "the first answer")
    done = cli("drill", "lossy", "slow-link", "--node", "1", "--latency", "400ms")
    assert done.rc == 0, done.err
    wait_until(lambda: float((folder / "slowest").read_text()) > 0.39, 30, "a late answer")
    assert cli("drill", "lossy", "end").rc == 0
    wait_until(lambda: drills_of("lossy")[0].ended, 20, "the end of the late link")
    done = cli("drill", "lossy", "lossy-link", "--node", "1", "--loss", "100%")
    assert done.rc == 0, done.err
    (folder / "impatient").touch()
    wait_until((folder / "gave-up").exists, 30, "the end of a rank's patience")
    # It may have ended already, if its patience was over before the loss began.
    cli("drill", "lossy", "end")
    shown = wait_for_status("lossy", "Failed")
    assert (shown["failed_rank"], shown["failed_node"]) == (1, 1)
    assert "TimeoutError: timed out" in shown["reason"], shown["reason"]
    late, lossy = shown["drills"]
    assert (late["kind"], late["settings"]["latency"]) == ("slow-link", "400ms")
    assert (lossy["kind"], lossy["node"], lossy["settings"]["loss"]) == ("lossy-link", 1, "100%")
    page = cli("job", "show", "lossy", "-o", "table").out
    assert "  during the drill 'lossy-link' on node 1 (loss 100%" in page
    # Without netem, a process of ours delays and loses packets, and whoever reads the times is told.
    notes = {one["settings"].get("note", "") for one in (late, lossy)}
    assert notes == {"" if has_netem() else NOTE}
    assert (NOTE in " ".join(page.split())) is not has_netem()


def test_a_job_says_that_the_process_that_delays_its_packets_was_killed(cli, begin):
    skip_without(link={"latency": "2ms"})
    if has_netem():
        pytest.skip("this kernel delays packets by itself")
    begin("carried", WAITS, link={"latency": "2ms"})
    (carrier,) = [
        pid
        for pid in descendants.list_descendants(description.show_job("carried")["processes"]["supervisor"])
        if read_name(pid) == "drumline-switch"
    ]
    os.kill(carrier, signal.SIGKILL)
    shown = wait_for_status("carried", "Failed")
    cause = "lost its network: the process that delays its packets was killed by SIGKILL"
    assert shown["reason"] == f"the agent of node 0 (labcarried-0) {cause}"
    wait_until(lambda: leftovers.list_leftovers(folder_of("carried")) == [], 20, "an empty machine")
    assert f"link: {NOTE}" in " ".join(cli("job", "show", "carried", "-o", "table").out.split())
    planned = cli("run", "--nodes", "2", "--isolate", "--link", ",5ms", "--", "true")
    assert planned.rc == 0, planned.err
    assert f"warning: link: {NOTE}" in planned.err


def read_name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


EATS = """
import os, time
open("ready-" + os.environ["RANK"], "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
if os.environ["RANK"] == "1":
    before = time.process_time(), time.monotonic()
    while time.process_time() < before[0] + 0.3:
        pass
    with open("share", "w") as file:
        file.write(str(0.3 / (time.monotonic() - before[1])))
    while not os.path.exists("eat"):
        time.sleep(0.01)
    eaten = []
    while len(eaten) < 64:
        eaten.append(b"x" * (16 << 20))
while True:
    time.sleep(1)
"""


@pytest.mark.root
def test_a_node_with_less_memory_and_time_is_explained_as_such_a_machine(cli, begin):
    skip_without(cpus=1, memory="2g")
    folder = begin("small", EATS, cpus=1, memory="2g")
    done = cli("drill", "small", "slow-cpu", "--node", "1")
    if done.rc:
        pytest.skip(done.err)
    (folder / "go").touch()
    wait_until((folder / "share").exists, 60, "the slow rank")
    assert float((folder / "share").read_text()) < 0.5
    assert cli("drill", "small", "end").rc == 0
    done = cli("drill", "small", "memory", "--node", "1", "--limit", "300MB")
    assert done.rc == 0, done.err
    (folder / "eat").touch()
    shown = wait_for_status("small", "Failed")
    assert shown["failed_rank"] == 1
    assert "memory" in shown["reason"], shown["reason"]
    slow, small = shown["drills"]
    assert (slow["kind"], slow["node"], slow["settings"]) == ("slow-cpu", 1, {"cpus": "0.1"})
    assert (small["kind"], small["node"], small["settings"]) == ("memory", 1, {"limit": 300_000_000})


FILLS = """
import os, time
open("ready-" + os.environ["RANK"], "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
with open(os.environ["TMPDIR"] + "/data", "wb") as file:
    file.write(b"x" * 100000)
"""


def test_a_full_disk_of_an_isolated_node_is_named_by_the_verdict(cli, begin):
    folder = begin("full", FILLS, tmp_size="16m")
    done = cli("drill", "full", "fill-disk", "--node", "1")
    assert done.rc == 0, done.err
    (folder / "go").touch()
    shown = wait_for_status("full", "Failed")
    assert shown["failed_rank"] == 1
    assert "No space left on device" in shown["reason"], shown["reason"]
