"""
Nothing survives a job, whoever is killed: the ranks here start children, sessions, daemons and daemons without an
environment, and every one of those carries a token in its command line by which it is found.
"""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from chaos import carrying
from waiting import wait_until, yields_to_others

from drumline.contract import process_identity
from drumline.linux import cgroups, descendants

NASTY = Path(__file__).parent.parent / "jobs" / "nasty.py"
PROCESSES_OF_A_RANK = 5
SUPERVISOR_AND_AGENTS = 3
"""They are forked from the command line, whose words have the token too."""

GONE_S = 5.0


class Job:
    """A detached 2x2 job of nasty ranks, all of which are ready."""

    def __init__(self, cli, tmp_path, then="wait", grace="0.3"):
        self._cli = cli
        self.token = f"token-{uuid.uuid4().hex}"
        ready = tmp_path / "ready"
        ready.mkdir()
        arguments = ("--nodes", "2", "--procs", "2", "--grace", grace, "--detach")
        program = (sys.executable, NASTY, self.token, then, ready)
        started = cli("run", *arguments, "--", *program)
        assert (started.rc, started.err) == (0, "")
        self.name = started.out.strip()
        self.folder = Path(os.environ["DRUMLINE_HOME"]) / "jobs" / self.name
        wait_until(lambda: len(list(ready.iterdir())) == 4, 30, "all ranks ready")
        expected = 4 * PROCESSES_OF_A_RANK + SUPERVISOR_AND_AGENTS
        wait_until(lambda: len(carrying(self.token)) == expected, 10, "all that they start")

    def show(self):
        return json.loads(self._cli("job", "show", "-n", self.name, "-o", "json").out)

    def ended(self):
        """What is said of it once it has ended; by then nothing of it is left."""
        wait_until(lambda: self.show()["status"] in ("Completed", "Failed", "Canceled"), 20, "the job's end")
        wait_until(lambda: not carrying(self.token), GONE_S, "every process gone")
        return self.show()


def is_pending(pid, number):
    """Whether a signal waits for the process to take it in."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = re.findall(r"^S(?:hd|ig)Pnd:\s*(\w+)", status, re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


with_both = pytest.mark.parametrize(
    "containment", [pytest.param("cgroup", marks=pytest.mark.root), "subreaper"], indirect=True
)


@pytest.fixture
def containment(request, monkeypatch):
    """What holds the job together; a control group where this machine lets us have one."""
    if request.param == "subreaper":
        monkeypatch.setenv("DRUMLINE_CGROUP", "0")
    elif not can_have_a_cgroup():
        pytest.skip("no control group can be made here: that needs root, or a group that is this user's")
    return request.param


def can_have_a_cgroup():
    name = f"drumline-{uuid.uuid4().hex[:8]}-n0"
    program = (
        f"from drumline.linux import cgroups; print(cgroups.join_group(cgroups.choose_group_path({name!r})))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    cgroups.kill_group(cgroups.choose_group_path(name))
    return done.stdout == "True\n"


def leave_only_daemons(job, count, containment):
    """
    Where supervisor and agent are both killed, a daemon that cleared its environment is found by its control group
    alone: one a rank. docs/howto/running.md says so. They are ended here.
    """
    if containment == "cgroup":
        wait_until(
            lambda: not carrying(job.token), GONE_S, "everything gone, daemons without an environment too"
        )
        return
    wait_until(
        lambda: len(carrying(job.token)) <= count, GONE_S, "all but the daemons without an environment"
    )
    for pid in carrying(job.token):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_rank_ends_the_job(cli, tmp_path, number):
    job = Job(cli, tmp_path)
    victim = next(rank for rank in job.show()["processes"]["ranks"] if rank["rank"] == 2)
    os.kill(victim["pid"], number)
    ended = job.ended()
    assert (ended["status"], ended["exit_code"]) == ("Failed", 128 + number)
    said = rf"rank 2 on node 1 failed first, [\d.]+ s in: killed by signal {number:d} \({number.name}"
    assert re.match(said, ended["reason"])
    assert (ended["failed_rank"], ended["failed_node"]) == (2, 1)


@pytest.mark.parametrize("node", [0, 1])
def test_a_killed_agent_ends_the_job(cli, tmp_path, node):
    job = Job(cli, tmp_path)
    os.kill(job.show()["processes"]["agents"][node], signal.SIGKILL)
    ended = job.ended()
    assert ended["status"] == "Failed"
    assert ended["reason"] == f"the agent of node {node} was killed by SIGKILL"


@with_both
def test_what_a_killed_agent_leaves_ends_before_the_grace_of_the_other_nodes(cli, tmp_path, containment):
    job = Job(cli, tmp_path, then="ignore", grace="60")
    processes = job.show()["processes"]
    agent = processes["agents"][1]
    of_node_1 = {pid: process_identity.identify_process(pid) for pid in descendants.list_descendants(agent)}
    of_node_0 = [
        process_identity.identify_process(rank["pid"]) for rank in processes["ranks"] if rank["node"] == 0
    ]
    os.kill(agent, signal.SIGKILL)
    # A daemon without an environment shows by its control group alone: one a rank.
    most = 2 if containment == "subreaper" else 0
    wait_until(
        lambda: sum(map(process_identity.is_alive, of_node_1.values())) <= most, 10, "all of node 1 gone"
    )
    assert all(map(process_identity.is_alive, of_node_0)), "the ranks of node 0 have their grace"
    for who in of_node_0:
        os.kill(who["pid"], signal.SIGKILL)
    assert job.ended()["reason"] == "the agent of node 1 was killed by SIGKILL"


def test_an_agent_that_is_told_to_end_twice_does_so_at_once(cli, tmp_path):
    """The second time it does not wait for its supervisor, which here takes nothing in."""
    job = Job(cli, tmp_path, then="ignore", grace="2")
    processes = job.show()["processes"]
    os.kill(processes["supervisor"], signal.SIGSTOP)
    agent = process_identity.identify_process(processes["agents"][1])
    for _ in range(2):
        os.kill(processes["agents"][1], signal.SIGTERM)
        wait_until(lambda: not is_pending(processes["agents"][1], signal.SIGTERM), 10)
    wait_until(lambda: not process_identity.is_alive(agent), GONE_S, "the agent gone")
    os.kill(processes["supervisor"], signal.SIGCONT)
    wait_until(lambda: job.show()["attempts"], 20, "the next attempt")
    cli("job", "cancel", "-n", job.name, "--at-once")
    ended = job.ended()
    assert ended["status"] == "Canceled"
    assert ended["attempts"][0]["reason"].startswith("node 1 was preempted by a SIGTERM from process ")


@with_both
def test_a_killed_supervisor_ends_the_job(cli, tmp_path, containment):
    job = Job(cli, tmp_path)
    os.kill(job.show()["processes"]["supervisor"], signal.SIGKILL)
    # Nobody looks at the job: its agents end it by themselves.
    wait_until(lambda: not carrying(job.token), GONE_S, "every process gone")
    ended = job.ended()
    assert (ended["status"], ended["exit_code"]) == ("Failed", 1)
    assert ended["reason"].startswith("its supervisor was killed")


def test_a_supervisor_asked_to_end_cancels_the_job(cli, tmp_path):
    job = Job(cli, tmp_path)
    os.kill(job.show()["processes"]["supervisor"], signal.SIGTERM)
    ended = job.ended()
    assert (ended["status"], ended["reason"]) == ("Canceled", "canceled by a SIGTERM to its supervisor")


@with_both
def test_all_agents_killed_at_once(cli, tmp_path, containment):
    job = Job(cli, tmp_path)
    for pid in job.show()["processes"]["agents"]:
        os.kill(pid, signal.SIGKILL)
    assert job.ended()["status"] == "Failed"


def test_cancel_ends_ranks_that_ignore_sigterm_after_the_grace_period(cli, tmp_path):
    job = Job(cli, tmp_path, then="ignore")
    assert cli("job", "cancel", "-n", job.name).rc == 0
    assert job.ended()["status"] == "Canceled"


@pytest.mark.parametrize("code", ["0", "3"])
def test_what_a_rank_leaves_behind_ends_with_the_job(cli, tmp_path, code):
    token = f"token-{uuid.uuid4().hex}"
    ready = tmp_path / "ready"
    ready.mkdir()
    program = (sys.executable, NASTY, token, code, ready)
    done = cli("run", "--nodes", "1", "--procs", "1", "--", *program)
    assert done.rc == int(code)
    assert [pid for pid in carrying(token) if not yields_to_others(pid)] == []


def test_a_rank_that_stops_does_not_outlive_a_cancel(cli, tmp_path):
    """A stopped process takes SIGTERM only when it goes on, and SIGKILL at once."""
    job = Job(cli, tmp_path)
    os.kill(job.show()["processes"]["ranks"][0]["pid"], signal.SIGSTOP)
    assert cli("job", "cancel", "-n", job.name).rc == 0
    assert job.ended()["status"] == "Canceled"


@with_both
def test_what_holds_it_together_is_shown_and_goes_with_the_job(cli, tmp_path, containment):
    job = Job(cli, tmp_path)
    assert job.show()["containment"] == containment
    groups = [Path(line) for line in (job.folder / "scratch").read_text().splitlines() if "cgroup" in line]
    assert [group.exists() for group in groups] == [True] * (2 if containment == "cgroup" else 0)
    for rank in job.show()["processes"]["ranks"]:
        assert all(str(rank["pid"]) not in (group / "cgroup.procs").read_text() for group in groups) == (
            containment == "subreaper"
        )
    cli("job", "cancel", "-n", job.name)
    job.ended()
    assert not any(group.exists() for group in groups)


def test_the_scratch_folders_go_with_the_job(cli, tmp_path):
    print_it = "import os, tempfile; print(tempfile.mkstemp()[1])"
    done = cli("run", "--nodes", "2", "--no-prefix", "--", sys.executable, "-c", print_it)
    made = [Path(line) for line in done.out.split()]
    assert len({path.parent for path in made}) == 2
    assert not any(path.parent.exists() for path in made)


def test_the_terminal_status_never_changes_again(cli, tmp_path):
    job = Job(cli, tmp_path)
    os.kill(job.show()["processes"]["ranks"][0]["pid"], signal.SIGKILL)
    before = job.ended()
    cli("job", "cancel", "-n", job.name)
    assert job.show() == before


@with_both
def test_what_everybody_left_is_ended_by_whoever_looks_next(cli, tmp_path, containment):
    """Supervisor and agents killed at once: ranks die with their agents, the rest is found by its marker."""
    job = Job(cli, tmp_path)
    scratch = [Path(line) for line in (job.folder / "scratch").read_text().splitlines()]
    processes = job.show()["processes"]
    for pid in (processes["supervisor"], *processes["agents"]):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: job.show()["status"] == "Failed", 10)
    leave_only_daemons(job, 4, containment)
    assert not any(path.exists() for path in scratch)


def test_a_stopped_agent_does_not_hold_up_a_cancel_for_ever(cli, tmp_path):
    """It takes nothing in and says nothing; the supervisor gives it up, and ends it with all below it."""
    job = Job(cli, tmp_path)
    os.kill(job.show()["processes"]["agents"][1], signal.SIGSTOP)
    assert cli("job", "cancel", "-n", job.name, "--at-once", timeout_s=40).rc == 0
    assert job.ended()["status"] == "Canceled"


@with_both
def test_a_stopped_agent_ends_with_its_killed_supervisor_when_somebody_looks(cli, tmp_path, containment):
    job = Job(cli, tmp_path)
    processes = job.show()["processes"]
    os.kill(processes["agents"][0], signal.SIGSTOP)
    os.kill(processes["supervisor"], signal.SIGKILL)
    wait_until(lambda: job.show()["status"] == "Failed", 10)
    wait_until(
        lambda: not process_identity.identify_process(processes["agents"][0]),
        GONE_S,
        "the stopped agent gone",
    )
    wait_until(lambda: not carrying(job.token), GONE_S, "everything gone, daemons without an environment too")


@with_both
def test_the_next_job_in_line_clears_what_a_killed_supervisor_left(cli, tmp_path, containment):
    """Nobody looks at the first job: its place in line tells that its supervisor is gone."""
    job = Job(cli, tmp_path)
    processes = job.show()["processes"]
    for pid in (processes["supervisor"], *processes["agents"]):
        os.kill(pid, signal.SIGKILL)
    assert cli("run", "--", "true").rc == 0
    leave_only_daemons(job, 4, containment)


@pytest.fixture
def freezer():
    """A control group of version 1 in which processes can be frozen: those do not end by SIGKILL."""
    path = Path("/sys/fs/cgroup/freezer", f"drumline-test-{uuid.uuid4().hex[:8]}")
    try:
        path.mkdir()
    except OSError:
        pytest.skip("there is no freezer here: that needs root and control groups of version 1")
    yield path
    thaw(path)
    path.rmdir()


def thaw(path):
    (path / "freezer.state").write_text("THAWED")
    wait_until(lambda: not (path / "cgroup.procs").read_text(), 10)


def test_a_process_that_sigkill_does_not_end_is_named_with_its_state(cli, tmp_path, freezer):
    job = Job(cli, tmp_path)
    pid = job.show()["processes"]["ranks"][1]["pid"]
    (freezer / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    wait_until(lambda: (freezer / "freezer.state").read_text().startswith("FROZEN"), 10)
    cli("job", "cancel", "-n", job.name, "--at-once", timeout_s=60)
    ended = job.show()
    assert ended["status"] == "Canceled"
    assert re.search(rf"; even SIGKILL did not end process {pid} \(python\S*, state D", ended["reason"]), (
        ended["reason"]
    )
    thaw(freezer)
    # A group with a process in it cannot be removed, and nobody is left who would do it later.
    for known in map(Path, (job.folder / "scratch").read_text().splitlines()):
        if known.is_relative_to("/sys/fs/cgroup") and known.exists():
            known.rmdir()
