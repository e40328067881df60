"""Whoever of a job on isolated nodes is killed, and whenever: nothing is left of it, nor of its nodes."""

import os
import signal

import pytest
from chaos_isolated import IsolatedTrial
from chaos_matrix import CELLS, try_cell, try_point
from isolated_nodes import skip_without

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
