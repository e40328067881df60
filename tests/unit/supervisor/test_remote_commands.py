"""Commands that a program of one node has run on another, and the MPI daemons among them."""

from types import SimpleNamespace

import pytest
from planning import plan

from drumline.contract import messages as m
from drumline.contract.installed_mpi import OPEN_MPI, Mpi
from drumline.supervisor.attempt.remote_commands import RemoteCommands
from drumline.supervisor.deciding import happenings as h

MPI = Mpi(OPEN_MPI, 5, 0, "mpirun")
PRTED = "PRTE_PREFIX=/usr /usr/bin/prted --prtemca ess env --daemonize"


def handled_after(command, code=None, signal=None, *, hang_up=False, of_launcher=False):
    """What the policy hears of a command on node 1 that ends so."""
    handled = []
    connections = SimpleNamespace(send=lambda node, message: True)
    made = plan(distribution={"type": "mpi"}, at={"mpi": MPI}) if of_launcher else plan()
    commands = RemoteCommands(made, connections, lambda host, node: 1, handled.append, None)
    commands.start(0, m.CommandRequested(7, of_launcher, "b", "a", 1, "token", command, False))
    if hang_up:
        commands.hang_up(0, m.CallerGone(7))
    commands.end(1, m.CommandEnded(1, code, signal, ""))
    return handled


@pytest.mark.parametrize(
    ("command", "code", "signal", "hang_up", "said"),
    [
        (PRTED, None, 9, False, "the daemon of the command's MPI on node 1 was killed by signal 9 (SIGKILL"),
        (PRTED, 137, None, False, "the daemon of the command's MPI on node 1 exited with code 137"),
        (
            PRTED,
            255,
            None,
            False,
            "the daemon of the command's MPI on node 1 was killed: prted exited with code 255",
        ),
        ("orted --x", 255, None, False, "the daemon of the command's MPI on node 1 exited with code 255"),
        (
            PRTED,
            None,
            15,
            False,
            "the daemon of the command's MPI on node 1 was killed by signal 15 (SIGTERM",
        ),
        (PRTED, None, 9, True, "the daemon of the command's MPI on node 1 was killed by signal 9 (SIGKILL"),
    ],
)
def test_a_daemon_that_was_killed(command, code, signal, hang_up, said):
    began, ended = handled_after(command, code, signal, hang_up=hang_up)
    assert (began, ended.running) == (h.DaemonsChanged(1), 0)
    assert ended.lost.reason.startswith(said)
    assert (ended.lost.node, ended.lost.code) == (1, code or 128 + signal)


@pytest.mark.parametrize(
    ("code", "signal", "hang_up"), [(0, None, False), (1, None, False), (None, 15, True), (143, None, True)]
)
def test_a_daemon_that_was_not_killed_or_by_us(code, signal, hang_up):
    """Its launcher says why it could not start, or has been killed itself, which its caller may have wanted."""
    assert handled_after("hydra_pmi_proxy --x", code, signal, hang_up=hang_up)[1] == h.DaemonsChanged(0)


def test_a_killed_command_that_is_no_daemon_is_its_callers_to_judge():
    assert handled_after("pkill prted", None, 9) == []


def test_a_daemon_of_the_jobs_own_launcher():
    handled = handled_after(PRTED, 255, of_launcher=True)
    killed = "the daemon of mpirun on node 1 was killed: prted exited with code 255"
    assert handled == [h.Broken(1, killed, 255, 0.0)]
    handled = handled_after("orted", 127, of_launcher=True)
    assert handled == [h.Broken(1, "the daemon of mpirun on node 1 exited with code 127", 127)]
    assert handled_after(PRTED, 0, of_launcher=True) == []
