"""What the command line returns, how a signal ends it and its job, and that no input makes a traceback."""

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from cli_jobs import (
    IGNORE_TERM,
    WAIT_FOR_SIGNAL,
    background,
    job_names,
    one_rank,
    python,
    wait_for_status,
    write_job,
)
from waiting import wait_until

from drumline.control.facts import description
from drumline.control.jobs import lookup

PYTHON = shlex.quote(sys.executable)
"""As a word of a shell command: the checkout may be in a folder with blanks."""

TWO_RANKS = ("run", "--procs", "2", "--name", "job", "--")


def said_no_traceback(result):
    return "Traceback" not in result.err and "internal error" not in result.err


# drumline run


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 77"], 77),
        (["sh", "-c", "kill -9 $$"], 128 + 9),
        (["sh", "-c", "kill -ABRT $$"], 128 + 6),
        (["no-such-program"], 127),
        ([os.devnull], 126),
    ],
)
def test_run_returns_the_code_of_the_rank(cli, program, code):
    assert cli("run", "--", *program).rc == code


def test_run_returns_the_code_of_the_rank_that_failed_first(cli):
    program = python(
        "import os, signal",
        "if os.environ['RANK'] != '1': signal.pause()",
        "raise SystemExit(41)",
    )
    result = cli("run", "--nodes", "2", "--procs", "2", "--", *program)
    assert result.rc == 41
    assert re.search(
        r"rank 1 on node 0 failed first, [\d.]+ s in: exit code 41; ranks 0 and 2-3 were then stopped",
        result.err,
    )


def test_run_detached_prints_the_name_and_returns_at_once(cli):
    result = cli("run", "--detach", "--", *python(WAIT_FOR_SIGNAL))
    assert result.rc == 0
    name = result.out.removesuffix("\n")
    assert name in lookup.all_names()
    assert cli("job", "cancel", name, "--at-once").rc == 0


def test_run_passes_arguments_on_as_they_are(cli):
    words = ["a b", "$HOME", "*", "", "--nodes", "'", '"', "ü"]
    result = cli("run", "--", *python("import sys; print(sys.argv[1:])"), *words)
    assert result.out == f"{words!r}\n"


def test_run_gives_env_to_the_ranks(cli):
    result = cli("run", "--env", "A=1=2", "--env", "B=", "--", "sh", "-c", 'echo "$A,${B-unset}"')
    assert result.out == "1=2,\n"


# Ctrl-C


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_ranks_with_sigterm_and_the_job_is_canceled(tmp_path, number):
    program = python(
        "import signal, sys",
        "def on_term(*_): print('got TERM', flush=True); sys.exit(0)",
        "signal.signal(signal.SIGTERM, on_term)",
        "print('ready', flush=True)",
        "while True: signal.pause()",
    )
    with background(*TWO_RANKS, *program, cwd=tmp_path) as run:
        run.wait_for_output("ready", 2)
        run.process.send_signal(number)
        assert run.end() == 130
        assert run.out.count("got TERM") == 2
        assert "stopping the job" in run.err
    assert description.show_job("job")["status"] == "Canceled"


def test_a_second_interrupt_kills_ranks_that_ignore_sigterm(tmp_path):
    with background(*TWO_RANKS, *python(IGNORE_TERM), cwd=tmp_path) as run:
        run.wait_for_output("ready", 2)
        run.interrupt()
        wait_until(lambda: "stopping the job" in run.err)
        assert run.process.poll() is None
        run.interrupt()
        assert run.end() == 130
    described = description.show_job("job")
    assert described["status"] == "Canceled"
    assert [rank["signal"] for rank in described["ranks"]] == [9, 9]


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace(tmp_path):
    arguments = ("run", "--grace", "0.2", "--name", "job", "--", *python(IGNORE_TERM))
    with background(*arguments, cwd=tmp_path) as run:
        run.wait_for_output("ready")
        run.interrupt()
        assert run.end() == 130
    assert [rank["signal"] for rank in description.show_job("job")["ranks"]] == [9]


@pytest.mark.parametrize("moment", ["job.yml", "events.jsonl", "plan.json", "user_logs"])
def test_an_interrupt_of_the_whole_group_while_submitting_cancels_the_job(tmp_path, drumline_home, moment):
    """A terminal sends it to every process of the foreground: the supervisor that is being forked too."""
    folder = drumline_home / "jobs" / "job"
    with background(
        "run", "--name", "job", "--", *python(WAIT_FOR_SIGNAL), cwd=tmp_path, new_session=True
    ) as run:
        wait_until((folder / moment).exists)
        os.killpg(run.process.pid, signal.SIGINT)
        assert run.end() == 130
    assert description.show_job("job")["status"] == "Canceled"


def test_an_interrupt_of_stream_leaves_the_job_running(cli, tmp_path):
    job = write_job(tmp_path, f'exec python -c "{WAIT_FOR_SIGNAL}"', **one_rank())
    cli("job", "create", "-f", job, "-n", "job")
    with background("job", "stream", "job", cwd=tmp_path) as stream:
        stream.wait_for_output("ready")
        stream.interrupt()
        assert stream.end() == 130
        assert "job job is still running" in stream.err
    assert description.show_job("job")["status"] == "Running"
    assert cli("job", "cancel", "job", "--at-once").rc == 0


# Bad input


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["--frobnicate"],
        ["job"],
        ["job", "frobnicate"],
        ["job", "show", "--frobnicate"],
        ["job", "show", "-o", "xml", "-n", "x"],
        ["job", "create"],
        ["job", "list", "--max-results", "many"],
        ["job", "list", "--archived-only", "--include-archived"],
        ["plan"],
        ["run"],
        ["run", "--"],
        ["run", "--nodes", "two", "--", "true"],
        ["run", "--nodes", "0", "--", "true"],
        ["run", "--nodes", "-1", "--", "true"],
        ["run", "--procs", "0", "--", "true"],
        ["run", "--procs", "100000", "--", "true"],
        ["run", "--timeout", "0", "--", "true"],
        ["run", "--grace", "x", "--", "true"],
        ["run", "--grace", "-1", "--", "true"],
        ["run", "--grace", "nan", "--", "true"],
        ["run", "--env", "A", "--", "true"],
        ["run", "--env", "=A", "--", "true"],
        ["run", "--ranks", "7", "--", "true"],
        ["run", "--ranks", "a-b", "--", "true"],
        ["run", "--ranks", "0-99999999999999", "--", "true"],
        ["run", "--workers", "2", "--", "true"],
        ["run", "--distribution", "tensorflow", "--procs", "2", "--", "true"],
        ["run", "--distribution", "tensorflow", "--workers", "0", "--", "true"],
        ["run", "--distribution", "horovod", "--", "true"],
        ["run", "--name", "a/b", "--", "true"],
        ["run", "--name", "../../x", "--", "true"],
        ["run", "--name", "..", "--", "true"],
        ["run", "--name", "a" * 300, "--", "true"],
    ],
)
def test_a_bad_command_line_returns_2_says_why_and_creates_nothing(cli, arguments, drumline_home):
    result = cli(*arguments)
    assert (result.rc, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert said_no_traceback(result)
    assert job_names(drumline_home) == []


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["jbo"], "drumline job"),
        (["job", "sohw"], "drumline job show"),
        (["job", "show", "--nam", "x"], "--name"),
    ],
)
def test_a_word_that_is_nearly_right_is_answered_with_the_right_one(cli, arguments, meant):
    assert f"did you mean {meant!r}?" in cli(*arguments).err


@pytest.mark.parametrize("name", ["../x", ".", "..", "a/b", "", "x" * 5000, "\udcff", "a\nb"])
def test_no_name_of_a_job_leads_out_of_the_jobs_or_to_a_traceback(cli, name, drumline_home):
    (drumline_home / "jobs").mkdir(parents=True)
    (drumline_home / "x").mkdir()
    (drumline_home / "x" / "events.jsonl").write_text("")
    result = cli("job", "show", "-n", name)
    assert result.rc in (2, 3)
    assert said_no_traceback(result)


def test_the_help_of_every_command_fits_and_returns_0(cli):
    for words in ([], ["job"], ["job", "create"], ["run"], ["plan"]):
        result = cli(*words, "--help")
        assert result.rc == 0
        assert result.out.startswith("usage: drumline")


def test_debug_shows_the_traceback(cli):
    assert "Traceback" in cli("--debug", "job", "show", "-n", "none").err


def test_a_home_that_cannot_be_made_is_a_message(cli, tmp_path):
    (tmp_path / "file").write_text("")
    result = cli("run", "--", "true", env={"DRUMLINE_HOME": str(tmp_path / "file" / "home")})
    assert (1, f"error: File exists: {tmp_path / 'file'}\n") == (result.rc, result.err)
    assert said_no_traceback(result)


# Pipes that close


def run_with_closed_stdout(*arguments, cwd):
    """Nobody reads its stdout: the read end is closed before it starts."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "drumline", *arguments],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["job", "--help"], ["job", "list"], ["job", "create", "--help"]]
)
def test_nothing_is_said_when_nobody_reads_the_output(tmp_path, arguments):
    done = run_with_closed_stdout(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_run_ends_its_job_when_nobody_reads_its_output(tmp_path):
    program = python("import signal", "print('line', flush=True)", "signal.pause()")
    done = run_with_closed_stdout("run", "--name", "job", "--", *program, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")
    assert description.show_job("job")["status"] == "Canceled"


def test_run_to_head_shows_the_first_line(tmp_path):
    command = f"{PYTHON} -m drumline run --name job -- yes | head -1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("y\n", "")
    wait_for_status("job", "Canceled")


@pytest.mark.parametrize("arguments", ["--help", "job --help", "job list", "run -- echo hi"])
def test_a_full_disk_under_stdout_is_a_message(tmp_path, arguments, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # argparse ignores an error of its own write
    command = f"{PYTHON} -m drumline {arguments} > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_start_are_no_trouble(tmp_path, drumline_home, closed):
    command = f"{PYTHON} -m drumline run --name job -- echo hi {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert (drumline_home / "jobs" / "job" / "user_logs" / "std_log.txt").read_text() == "hi\n"
    assert description.show_job("job")["status"] == "Completed"
