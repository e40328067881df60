"""
Whoever of a job is killed, stopped or told to end, and whenever: nothing is left, its end is told and stays, and no
byte of a log is lost. scripts/chaos does the same for as long as it is told to.
"""

import os
import signal

import pytest
from chaos import POINTS
from chaos_machine import run_machine
from chaos_matrix import CELLS, try_cell, try_point

RUNS = int(os.environ.get("CHAOS_RUNS", "30"))


@pytest.fixture
def folder(tmp_path, drumline_home):
    (tmp_path / "copies").mkdir()
    return tmp_path / "copies"


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_named_point(folder, point):
    """The supervisor around each event that it writes, an agent around each message that it obeys."""
    shown = try_point(folder, point).shown
    if " of node 1" not in point:
        assert shown["reason"].startswith(
            "canceled" if point == "after JobEnded" else "its supervisor was killed"
        )
    elif point.split()[1] in {"TerminateRanks", "KillRanks", "EmptyNode"}:
        assert shown["status"] == "Canceled"
    else:
        assert shown["reason"] == "the agent of node 1 was killed by SIGKILL"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.target}-{signal.Signals(cell.number).name}")
def test_a_signal_at_a_random_moment(folder, cell):
    try_cell(folder, cell, seed=0)


@pytest.mark.timeout(1200)
def test_random_sequences(folder):
    run_machine(folder, RUNS)
