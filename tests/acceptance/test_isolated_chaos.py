"""Whoever of a job on isolated nodes is killed, and whenever: nothing is left of it, nor of its nodes."""

import json
import os
import signal
from pathlib import Path

import pytest
from chaos_isolated import IsolatedTrial
from chaos_matrix import CELLS, try_cell, try_point
from conftest import kill, processes_with
from isolated_nodes import enter_folder_of_nobody, list_left, run_as_nobody, skip_without
from waiting import wait_until

from drumline.contract.errors import EngineError
from drumline.engines.local.isolation import inside

pytestmark = pytest.mark.timeout(600)

POINTS = (
    "before AgentJoined",
    "after RankStarted",
    "after JobFinalizing",
    "before PrepareNode of node 1",
    "after LaunchRanks of node 1",
    "before EmptyNode of node 1",
)
"""A few of those that scripts/chaos tries: the supervisor around an event of its job, an agent around a message."""

KILLS = [cell for cell in CELLS if cell.number == signal.SIGKILL and cell.target != "cli"]


@pytest.fixture
def folder(tmp_path, drumline_home):
    skip_without()
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies"


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_named_point(folder, point):
    shown = try_point(folder, point, IsolatedTrial).shown
    if " of node 1" not in point:
        assert shown["reason"].startswith("its supervisor was killed")
    elif "EmptyNode" in point:
        assert shown["status"] == "Canceled"
    else:
        assert shown["reason"] == "the agent of node 1 (node-1) was killed by SIGKILL"


@pytest.mark.parametrize("cell", KILLS, ids=lambda cell: cell.target)
def test_a_kill_at_a_random_moment(folder, cell):
    try_cell(folder, cell, 0, IsolatedTrial)


def test_the_look_for_leftovers_sees_agents_and_ranks_while_they_run(folder):
    trial = IsolatedTrial(folder)
    try:
        trial.wait_until_submitted()
        trial.wait_until_it_prints()
        assert len(trial.list_inside()) >= 4
    finally:
        trial.finish()


def test_a_kill_while_the_network_is_made_is_told_and_leaves_nothing_open(folder):
    """Its maker is a child that ends at once: from then on nobody has to live for it."""
    before = os.listdir("/proc/self/fd")
    with pytest.raises(EngineError, match="isolated nodes: its process was killed"):
        inside.call_in_child(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.root
@pytest.mark.parametrize("target", ["supervisor", "agent", "rank"])
def test_a_kill_leaves_nothing_of_the_nodes_of_an_ordinary_user(target):
    """They are in a user namespace, in which this user may do what root may."""
    skip_without()
    with enter_folder_of_nobody() as (folder, python):
        words = ["run", "--name", "job", "--nodes", "2", "--isolate", "--grace", "0.5", "--detach", "--"]
        done = run_as_nobody([python, "-m", "drumline", *words, "sleep", "1000"], folder)
        assert done.returncode == 0, done.stderr
        run_folder = Path(folder, "home", "jobs", "job")
        marker = b"DRUMLINE_HOME=" + os.fsencode(f"{folder}/home") + b"\0"
        try:
            wait_until(lambda: len(pids_of(run_folder, "RankStarted")) == 2, 30, "the ranks")
            inside = {os.stat(f"/proc/{pid}/ns/user").st_ino for pid in pids_of(run_folder, "RankStarted")}
            assert os.stat("/proc/self/ns/user").st_ino not in inside
            os.kill(find_target(run_folder, target), signal.SIGKILL)
            wait_until(lambda: not processes_with(marker), 20, "every process gone")
            # Who asks for a job whose supervisor was killed ends what is left of it.
            shown = run_as_nobody([python, "-m", "drumline", "job", "show", "job"], folder)
            assert '"status": "Failed"' in shown.stdout, shown.stderr
            assert list_left(run_folder) == []
        finally:
            for pid in processes_with(marker):
                kill(pid)


def find_target(run_folder, target):
    if target == "supervisor":
        return json.loads((run_folder / "supervisor.json").read_text())["pid"]
    return pids_of(run_folder, {"agent": "AgentJoined", "rank": "RankStarted"}[target])[1]


def pids_of(run_folder, kind):
    # The last line may be half written.
    lines = (run_folder / "events.jsonl").read_text().rpartition("\n")[0].splitlines()
    return [event["pid"] for event in map(json.loads, lines) if event["type"] == kind]
