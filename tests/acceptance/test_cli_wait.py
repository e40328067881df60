"""``drumline job wait``: exit codes, and what it costs."""

import json
import os
import re
import signal
import time

from cli_jobs import WAIT_FOR_SIGNAL, background, on_terminal, one_rank, wait_for_status, write_job
from pipelines import step, write_pipeline
from waiting import remove_folder, wait_until


def create(cli, tmp_path, name, command):
    job = write_job(tmp_path, command, **one_rank(drumline={"grace": 1}))
    assert cli("job", "create", "-f", job, "-n", name).rc == 0


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_exit_code_is_that_of_the_job(cli, tmp_path):
    create(cli, tmp_path, "good", "true")
    create(cli, tmp_path, "bad", "exit 7")
    waited = cli("job", "wait", "good", "bad")
    assert (waited.rc, waited.out) == (7, "")
    assert "job good completed\n" in waited.err
    assert "job bad failed (exit code 7): rank 0" in waited.err
    assert cli("job", "wait", "-n", "good").rc == 0
    assert (cli("job", "wait", "@last").rc, cli("job", "wait", "goo").rc) == (7, 0)
    assert cli("job", "open", "goo").out == cli("job", "open", "good").out
    told = cli("job", "wait", "bad", "-o", "json")
    assert (told.rc, told.err) == (7, "")
    assert [(one["name"], one["status"], one["exit_code"]) for one in json.loads(told.out)] == [
        ("bad", "Failed", 7)
    ]
    assert cli("job", "wait", "none").rc == 3
    assert cli("job", "wait").rc == 2
    assert cli("job", "wait", "good", "--timeout", "soon").rc == 2


def test_of_several_jobs_any_or_all(cli, tmp_path):
    create(cli, tmp_path, "long", f'python -c "{WAIT_FOR_SIGNAL}"')
    create(cli, tmp_path, "bad", "exit 7")
    assert cli("job", "wait", "long", "bad", "--any").rc == 7
    late = cli("job", "wait", "long", "bad", "--timeout", "0.2")
    assert late.rc == 124
    assert "still under way after 0.2: long" in late.err
    with background("job", "wait", "long", cwd=tmp_path) as waiting:
        wait_for_status("long", "Running")
        wait_until(lambda: _sleeps(waiting.process.pid), what="the command to wait")
        before, began = cpu_s(waiting.process.pid), time.monotonic()
        wait_until(lambda: time.monotonic() > began + 1.0)
        assert cpu_s(waiting.process.pid) - before <= 0.02
        cli("job", "cancel", "long")
        assert waiting.end() == 130
        assert "job long canceled (exit code 130)" in waiting.err


def _sleeps(pid):
    with open(f"/proc/{pid}/wchan") as file:
        return "poll" in file.read()


def test_a_job_that_is_removed_has_an_end_too(cli, tmp_path, drumline_home):
    create(cli, tmp_path, "gone", f'python -c "{WAIT_FOR_SIGNAL}"')
    wait_for_status("gone", "Running")
    with background("job", "wait", "gone", cwd=tmp_path) as waiting:
        wait_until(lambda: _sleeps(waiting.process.pid), what="the command to wait")
        remove_folder(drumline_home / "jobs" / "gone")
        assert waiting.end() == 3
        assert "job gone removed (exit code 3)" in waiting.err


def test_the_end_of_a_job_that_was_removed_right_after_is_known(cli, tmp_path, drumline_home):
    create(cli, tmp_path, "short", f'python -c "{WAIT_FOR_SIGNAL}"')
    wait_for_status("short", "Running")
    with background("job", "wait", "short", cwd=tmp_path) as waiting:
        wait_until(lambda: _sleeps(waiting.process.pid), what="the command to wait")
        waiting.process.send_signal(signal.SIGSTOP)
        cli("job", "cancel", "short")
        remove_folder(drumline_home / "jobs" / "short")
        waiting.process.send_signal(signal.SIGCONT)
        assert waiting.end() == 130


def test_a_pipeline_is_waited_for(cli, tmp_path):
    path = write_pipeline(tmp_path, {"a": step("true"), "b": step("exit 3", "a")})
    assert cli("job", "create", "-f", path).rc == 0
    waited = cli("job", "wait", "p")
    assert waited.rc == 1
    assert "job p failed" in waited.err


def test_the_folders_of_a_job_are_printed(cli, tmp_path, drumline_home):
    create(cli, tmp_path, "job", "echo x > outputs/x")
    assert cli("job", "wait", "job").rc == 0
    folder = drumline_home / "jobs" / "job"
    opened = {
        what: cli("job", "open", "job", what).out.strip() for what in ("run", "outputs", "logs", "code")
    }
    assert opened == {
        "run": str(folder),
        "outputs": str(folder / "outputs"),
        "logs": str(folder / "user_logs"),
        "code": str(folder / "code"),
    }
    assert cli("job", "open", "-n", "job").out.strip() == str(folder)
    refused = cli("job", "open", "job", "elsewhere")
    assert refused.rc == 2
    assert "'elsewhere' is not a place" in refused.err
    assert cli("job", "open", "none").rc == 3


def test_an_editor_that_is_no_command_is_an_error(cli, tmp_path):
    assert cli("run", "--name", "job", "--", "true").rc == 0
    without_display = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    code, said = on_terminal("job", "open", "job", cwd=tmp_path, VISUAL="vi 'x", **without_display)
    assert (code, re.sub(r"\x1b\[\d+m", "", said)) == (
        2,
        "error: VISUAL is not a command, \"vi 'x\": no closing quotation\nhint: export VISUAL='code --wait'\n",
    )
