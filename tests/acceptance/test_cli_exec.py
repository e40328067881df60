"""``drumline job exec``: in the place of a rank, no part of it, and nothing left behind."""

import os
import pty
import select
import signal
import subprocess
import sys

import pytest
from cli_jobs import background, wait_for_status, write_script
from conftest import processes_with
from waiting import wait_until

from drumline.control.facts import description

WAITS = """
    import signal
    print("ready", flush=True)
    signal.pause()
"""


@pytest.fixture
def job(cli, tmp_path):
    """The name of a job on two nodes of two whose ranks wait."""
    path = write_script(
        tmp_path, WAITS, drumline={"grace": 1}, environment_variables={"MINE": "a b", "TERM": "rank's"}
    )
    assert cli("job", "create", "-f", path).rc == 0
    wait_for_status("job", "Running")
    yield "job"
    cli("job", "cancel", "job", "--at-once")


def run(job, *words, rank="3", **options):
    argv = [sys.executable, "-m", "drumline", "job", "exec", job, "--rank", rank]
    return subprocess.run([*argv, *words], capture_output=True, text=True, timeout=60, check=False, **options)


def test_a_command_has_what_the_rank_has_and_is_no_part_of_it(cli, job, drumline_home):
    script = 'echo "$RANK $LOCAL_RANK $MINE $TERM"; pwd; env; exit 5'
    done = run(job, "--", "sh", "-c", script, env={**os.environ, "TERM": "mine"})
    assert (done.returncode, done.stderr) == (5, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["3 1 a b mine", str(drumline_home / "jobs" / "job" / "code")]
    names = {line.partition("=")[0] for line in lines[2:]}
    assert {"MASTER_ADDR", "TMPDIR"} <= names
    assert not names & {"DRUMLINE_RUN_FOLDER", "DRUMLINE_FAILURES", "PYTHONPATH"}
    # Without a command, a shell, which reads its commands from a pipe where there is no terminal.
    shell = run(job, input="echo in $RANK\nexit 4\n", rank="0")
    assert (shell.returncode, shell.stdout) == (4, "in 0\n")
    assert run(job, "--", "kill-9-of-none").returncode == 127
    assert run(job, "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    assert description.show_job("job")["status"] == "Running"

    for words, code, says in (
        (["--rank", "9"], 2, "--rank: there is no rank '9'"),
        (["--rank", "0,1"], 2, "--rank: name one rank"),
    ):
        refused = cli("job", "exec", job, *words)
        assert refused.rc == code
        assert says in refused.err
    cli("job", "cancel", job, "--at-once")
    ended = cli("job", "exec", job, "--rank", "0")
    assert ended.rc == 3
    assert "has ended" in ended.err


def test_nothing_is_left_of_a_command(job, tmp_path):
    leaves = "sleep 987 & setsid sleep 987 & (setsid sh -c 'sleep 987 & sleep 987' &) ; echo begun"
    assert run(job, "--", "sh", "-c", leaves).stdout == "begun\n"
    assert _beside() == {}
    for number in (signal.SIGKILL, signal.SIGTERM):
        command = ("job", "exec", job, "--rank", "0", "--", "sh", "-c", leaves + "; wait")
        with background(*command, cwd=tmp_path) as executed:
            executed.wait_for_output("begun")
            executed.process.send_signal(number)
            executed.process.wait()
        wait_until(lambda: not _beside(), what="its processes to be gone")


def test_it_ends_with_the_job(cli, job, tmp_path):
    command = (
        "job",
        "exec",
        job,
        "--rank",
        "1",
        "--",
        "sh",
        "-c",
        "trap '' HUP TERM; echo begun; sleep 987; sleep 987",
    )
    with background(*command, cwd=tmp_path) as executed:
        executed.wait_for_output("begun")
        cli("job", "cancel", job)
        assert executed.end() == 129
        assert "the job of rank 1 has ended, and with it this command" in executed.err
    assert _beside() == {}


def test_a_terminal_is_passed_on(job):
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "drumline", "job", "exec", job, "--rank", "2"])
    seen = b""

    def has_seen(text):
        nonlocal seen
        while select.select([terminal], [], [], 0)[0]:
            try:
                seen += os.read(terminal, 4096)
            except OSError:
                break
        return text in seen

    try:
        os.write(terminal, b"test -t 0 && test -t 1 && echo termi''nal of $RANK\n")
        wait_until(lambda: has_seen(b"terminal of 2"), 20.0)
        os.write(terminal, b"sleep 987\n")
        wait_until(lambda: b"sleep 987" in b" ".join(map(str.encode, _beside().values())), 20.0)
        os.write(terminal, b"\x03")
        os.write(terminal, b"echo inter''rupted; exit 6\n")
        wait_until(lambda: has_seen(b"interrupted"), 20.0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
    finally:
        os.close(terminal)


def _beside():
    """The command lines of what commands beside ranks have started and left, by pid."""
    return {
        pid: command for pid, command in processes_with(b"\0DRUMLINE_BESIDE=").items() if "987" in command
    }
