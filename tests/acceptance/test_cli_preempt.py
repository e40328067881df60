"""A job whose nodes are taken away: its ranks have notice, save what they have, and are started again."""

import functools
import os
import re
import signal
import subprocess
import sys

import pytest
from cli_jobs import CORES, status_of, wait_for_status, write_script
from waiting import wait_until

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.control.facts import description

SAVES = """
    import os, pathlib, signal, sys, time

    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(time.time()))
    attempt, rank = os.environ["DRUMLINE_ATTEMPT"], os.environ["RANK"]
    deadline = pathlib.Path(os.environ["DRUMLINE_DEADLINE"])
    assert not deadline.exists()
    if attempt == "2":
        saved = sorted(path.name for path in pathlib.Path("outputs").glob("*-0"))
        print(f"goes on after {saved}")
        sys.exit()
    pathlib.Path("outputs", f"ready-{attempt}-{rank}").touch()
    while not told:
        time.sleep(0.01)
    left = float(deadline.read_text()) - told[0]
    pathlib.Path("outputs", f"saved-{attempt}-{rank}").write_text(f"{left}")
    time.sleep(0.5)
    print(f"told {len(told)} times")
"""

WAITS = """
    import os, pathlib, signal

    attempt, rank = os.environ["DRUMLINE_ATTEMPT"], os.environ["RANK"]
    pathlib.Path("outputs", f"ready-{attempt}-{rank}").touch()
    if attempt == "0":
        signal.pause()
"""


@pytest.fixture
def script(tmp_path):
    return functools.partial(write_script, tmp_path)


@pytest.fixture
def begin(cli, script, drumline_home):
    """Start a job of four ranks on two nodes, and wait until they are in that attempt."""

    def start(code, **changes):
        created = cli("job", "create", "-f", script(code, **changes))
        assert created.rc == 0, created.err
        return drumline_home / "jobs" / "job" / "outputs"

    return start


def all_ready(outputs, attempt, count=4):
    wait_until(lambda: len(list(outputs.glob(f"ready-{attempt}-*"))) == count, 30, f"attempt {attempt}")


def test_ranks_are_told_once_and_until_when_and_are_started_again(cli, begin):
    outputs = begin(SAVES, drumline={"grace": 20})
    all_ready(outputs, 0)
    done = cli("job", "preempt", "-n", "job")
    assert done.rc == 0
    assert re.fullmatch(r"job job: preempted by \S+; it is \w+\n", done.err), done.err
    all_ready(outputs, 1)
    assert cli("job", "preempt", "job", "--node", "1").rc == 0
    wait_for_status("job", "Completed")
    for attempt in (0, 1):
        for rank in range(4):
            assert 10 < float((outputs / f"saved-{attempt}-{rank}").read_text()) < 20.1
    shown = description.show_job("job")
    assert [one["kind"] for one in shown["attempts"]] == ["preemption", "node preemption"]
    assert [one["exit_code"] for one in shown["attempts"]] == [143, 143]
    assert re.fullmatch(r"node 1 was preempted by \S+", shown["attempts"][1]["reason"])
    assert shown["reason"] == "all 4 ranks ended with exit code 0 (preempted 2 times)"
    streamed = cli("job", "stream", "job")
    assert streamed.out.count("told 1 times") == 8
    assert "goes on after ['ready-0-0', 'ready-1-0', 'saved-0-0', 'saved-1-0']" in streamed.out
    assert re.search(r"job job goes on later; attempt 0 was ended: preempted by \S+\n", streamed.err)


def test_a_preemption_is_no_failure_and_does_not_count_as_one(cli, begin):
    outputs = begin(WAITS, drumline={"max_restarts": 1, "restart_on": ["node"]})
    all_ready(outputs, 0)
    cli("job", "preempt", "job")
    wait_for_status("job", "Completed")
    assert description.show_job("job")["reason"].endswith("(preempted once)")


def test_a_sigterm_to_an_agent_preempts_its_node(cli, begin):
    outputs = begin(WAITS)
    all_ready(outputs, 0)
    os.kill(description.show_job("job")["processes"]["agents"][1], signal.SIGTERM)
    wait_for_status("job", "Completed")
    (attempt,) = description.show_job("job")["attempts"]
    sender = rf"a SIGTERM from process {os.getpid()} \(\S+\) to its agent"
    assert re.fullmatch(f"node 1 was preempted by {sender}", attempt["reason"]), attempt["reason"]


def test_others_in_line_go_first(cli, begin):
    outputs = begin(
        WAITS,
        distribution={"type": "pytorch", "process_count_per_instance": CORES},
        resources={"instance_count": 1},
    )
    all_ready(outputs, 0, CORES)
    waits = cli("run", "--name", "second", "--procs", str(CORES), "--detach", "--", "true")
    assert waits.rc == 0, waits.err
    wait_until(lambda: status_of("second") == "Queued", 20)
    cli("job", "preempt", "job")
    wait_for_status("job", "Completed")
    first, second = description.show_job("job"), description.show_job("second")
    assert first["attempts"][0]["ended_at"] < second["started_at"]
    assert second["ended_at"] < first["ranks"][0]["started_at"]


def test_a_cancel_ends_it_where_it_waits_again(cli, begin):
    """Ranks that take their time are told once, and are not started again."""
    slow = "while not pathlib.Path('outputs/enough').exists():\n        time.sleep(0.01)"
    outputs = begin(SAVES.replace("time.sleep(0.5)", slow))
    all_ready(outputs, 0)
    asked = cli("job", "preempt", "job", "--no-wait")
    assert asked.rc == 0
    wait_until(lambda: len(list(outputs.glob("saved-0-*"))) == 4, 20)
    assert cli("job", "cancel", "job", "--no-wait").rc == 0
    folder = RunFolder.for_job("job")
    wait_until(lambda: any(isinstance(one, e.CancelRequested) for one in folder.read_events()), 20)
    (outputs / "enough").touch()
    wait_for_status("job", "Canceled")
    shown = description.show_job("job")
    assert (shown["status"], shown["attempts"]) == ("Canceled", [])


@pytest.mark.parametrize("node", ["-1", "2"])
def test_a_node_that_it_has_not_is_refused(cli, begin, node):
    outputs = begin(WAITS)
    all_ready(outputs, 0)
    done = cli("job", "preempt", "job", "--node", node)
    assert (done.rc, done.out) == (2, "")
    assert f"there is no node {node}" in done.err
    assert "nodes 0 to 1" in done.err
    assert not description.show_job("job")["attempts"]
    cli("job", "cancel", "job", "--at-once")


def test_a_job_that_has_ended_is_refused(cli, begin):
    cli("run", "--name", "quick", "--", "true")
    done = cli("job", "preempt", "quick")
    assert (done.rc, done.err) == (2, "error: job quick is Completed: it has no ranks that run\n")


SAVERS = {
    "handler": "signal.signal(signal.SIGTERM, told)\nstart()\nwhile True: time.sleep(1)",
    "sigwait": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "start()\nsignal.sigwait([signal.SIGTERM])\ntold()"
    ),
    "file": (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nstart()\n"
        "while not os.path.exists(os.environ['DRUMLINE_DEADLINE']): time.sleep(0.01)\ntold()"
    ),
}


@pytest.mark.parametrize(
    ("trap", "saver", "then"),
    [
        *[("", saver, "; exit 0") for saver in SAVERS],
        ("trap 'echo trapped' TERM;", "handler", "; exit 0"),
        ("trap 'echo trapped' EXIT;", "handler", "; exit 0"),
        ("trap 'exit 0' TERM;", "handler", "& wait $!"),
    ],
)
def test_what_a_shell_runs_has_the_whole_grace(cli, tmp_path, trap, saver, then):
    """A shell heeds a trap of SIGTERM only when the command that it runs has ended, and ends at once without one."""
    (tmp_path / "train.py").write_text(
        "import os, signal, sys, time\n"
        "def told(*_):\n"
        "    time.sleep(1.5)\n"  # More than what is left behind has.
        "    sys.exit(print('saved', flush=True))\n"
        "def start():\n"
        "    open('ready', 'w').close()\n" + SAVERS[saver]
    )
    command = f"cd {str(tmp_path)!r}; {trap} {sys.executable!r} train.py {then}"
    cli("run", "--name", "job", "--grace", "100", "--detach", "--", "bash", "-c", command)
    wait_until((tmp_path / "ready").exists, 20)
    assert cli("job", "cancel", "job").rc == 0
    assert cli("job", "stream", "job").out.count("saved\n") == 1


@pytest.mark.parametrize("again", ["cancel", "SIGTERM"])
def test_a_second_notice_ends_what_a_shell_runs_at_once(cli, tmp_path, again):
    (tmp_path / "train.py").write_text(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: open('told', 'w').close())\n"
        "open('ready', 'w').close()\n"
        "while True: time.sleep(1)\n"
    )
    command = f"cd {str(tmp_path)!r}; {sys.executable!r} train.py; exit 0"
    cli("run", "--name", "job", "--grace", "1000", "--detach", "--", "bash", "-c", command)
    wait_until((tmp_path / "ready").exists, 20)
    (agent,) = description.show_job("job")["processes"]["agents"]
    os.kill(agent, signal.SIGTERM)
    wait_until((tmp_path / "told").exists, 20)
    wait_for_status("job", "Finalizing")
    (tmp_path / "ready").unlink()
    if again == "SIGTERM":
        os.kill(agent, signal.SIGTERM)
        wait_until((tmp_path / "ready").exists, 20, "the next attempt")
        assert [one["kind"] for one in description.show_job("job")["attempts"]] == ["preemption"]
    assert cli("job", "cancel", "job", "--at-once").rc == 0
    assert status_of("job") == "Canceled"


@pytest.mark.parametrize("how", ["--node", "SIGTERM"])
def test_a_job_whose_nodes_are_taken_one_by_one_goes_back_in_line(cli, begin, how):
    # It saves until both are taken: on a busy machine the next attempt would lose the second one.
    outputs = begin(
        SAVES.replace("time.sleep(0.5)", 'while not pathlib.Path("outputs/taken").exists(): time.sleep(0.01)')
    )
    all_ready(outputs, 0)
    for node, agent in enumerate(description.show_job("job")["processes"]["agents"]):
        if how == "SIGTERM":
            os.kill(agent, signal.SIGTERM)
        else:
            cli("job", "preempt", "job", "--node", str(node), "--no-wait")
    (outputs / "taken").touch()
    all_ready(outputs, 1)
    assert [one["kind"] for one in description.show_job("job")["attempts"]] == ["preemption"]
    cli("job", "cancel", "job", "--at-once")


def test_a_time_limit_is_told_whole_after_a_preemption(cli, begin):
    outputs = begin(SAVES, limits={"timeout": 4}, drumline={"grace": 1})
    all_ready(outputs, 0)
    cli("job", "preempt", "job")
    wait_for_status("job", "Canceled")
    assert description.show_job("job")["reason"] == "it ran into its time limit of 4 s (preempted once)"


def test_a_job_that_cannot_be_started_again_says_why(cli, begin, drumline_home):
    outputs = begin(WAITS)
    all_ready(outputs, 0)
    (drumline_home / "jobs" / "job" / "user_logs" / "attempt-0").touch()
    cli("job", "preempt", "job", "--node", "1")
    wait_for_status("job", "Failed")
    said = r"node 1 was preempted by \S+; it could not be started again: File exists: .*/attempt-0"
    assert re.fullmatch(said, description.show_job("job")["reason"]), description.show_job("job")["reason"]


def test_workers_of_a_rank_that_handles_sigterm_are_there_while_it_saves(cli, begin, tmp_path):
    """Below a shell, which does not pass the signal on."""
    program = tmp_path / "train.py"
    program.write_text(
        "import os, signal, subprocess, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: told.append(1))\n"
        "worker = subprocess.Popen(['sleep', '1000'])\n"
        "open('ready', 'w').close()\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print('worker', worker.poll(), len(told))\n"
        "worker.kill()\n"
    )
    command = f"cd {str(tmp_path)!r} && {sys.executable!r} train.py; echo shell goes on"
    with subprocess.Popen(
        [sys.executable, "-m", "drumline", "run", "--name", "job", "--", "bash", "-c", command],
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        wait_until((tmp_path / "ready").exists, 20)
        (tmp_path / "ready").unlink()
        cli("job", "cancel", "job")
        assert run.stdout.read() == "worker None 1\n"
