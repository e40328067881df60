"""
Jobs whose processes are killed while they are being submitted: what became of each is known at once.

A hook of Python kills a process just before it does one thing, once.
"""

import os
import signal
import subprocess
import sys

import pytest
from cli_jobs import wait_for_status, write_job
from pipelines import step, wait_for_end, write_pipeline

from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.jobs import job_outcome

HOOK = """
import os, signal, sys
def look(event, arguments):
    if event == os.environ["KILLED_AT"] and any(os.environ["KILLED_WITH"] in str(one) for one in arguments[:2]):
        try:
            os.unlink(os.environ["KILLS_ONCE"])
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
if "KILLED_AT" in os.environ:
    sys.addaudithook(look)
"""

SUBMIT = """
from drumline import load_job
from drumline.control.submission.submit import submit
submit(load_job("job.yml"))
"""

NEVER_STARTED = "its supervisor did not start; it or the process that submitted the job was killed"
KILLED = "its supervisor was killed, or the machine restarted"


OWN_LIMIT_S = job_outcome._SUPERVISOR_START_S


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """Has a process killed, of whatever is started with these variables: ``killed("os.link", "supervisor.json")``."""
    # That a job is new does not make it known.
    monkeypatch.setattr(job_outcome, "_DRIVER_START_S", 600.0)
    monkeypatch.setattr(job_outcome, "_SUPERVISOR_START_S", 600.0)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HOOK)
    (hooks / "due").touch()

    def at(event, part):
        return {
            "PYTHONPATH": str(hooks), "KILLED_AT": event, "KILLED_WITH": part, "KILLS_ONCE": str(hooks / "due")
        }  # fmt: skip

    yield at
    assert not (hooks / "due").exists(), "nothing was killed"


@pytest.mark.parametrize(
    ("event", "part", "code", "reason"),
    [
        (
            "os.link",
            "/supervisor.json",
            -signal.SIGKILL,
            NEVER_STARTED,
        ),  # the command: the job is not handed over
        (
            "os.remove",
            "/maker.json",
            -signal.SIGKILL,
            KILLED,
        ),  # the command: its supervisor has not got the job
        ("open", "/supervisor.log", 0, KILLED),  # the supervisor, which has the job
    ],
)
def test_a_job_that_is_killed_before_it_has_begun_has_failed(
    cli, tmp_path, killed, event, part, code, reason
):
    job = write_job(tmp_path, "true", name="job")
    assert cli("job", "create", "-f", job, env=killed(event, part)).rc == code
    assert wait_for_status("job", "Failed")["reason"] == reason


def test_a_supervisor_that_is_killed_before_it_has_a_job_is_told(cli, tmp_path, killed):
    job = write_job(tmp_path, "true", name="job")
    done = cli("job", "create", "-f", job, env=killed("import", "drumline.supervisor.main"))
    assert done.rc == 1
    assert "the supervisor of the job did not start" in done.err
    assert job_outcome.read_outcome(RunFolder.for_job("job")).status == "Failed"


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ("import", "drumline.supervisor.main"),  # the process that starts the supervisor
        ("open", "/supervisor.log"),  # the supervisor
        ("subprocess.Popen", "drumline.supervisor"),  # the program
    ],
)
def test_a_job_of_a_program_whose_supervisor_is_killed_at_its_start_has_failed(tmp_path, killed, event, part):
    write_job(tmp_path, "true", name="job")
    subprocess.run(
        [sys.executable, "-c", SUBMIT], cwd=tmp_path, env={**os.environ, **killed(event, part)}, check=False,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert wait_for_status("job", "Failed")["reason"]


@pytest.mark.parametrize(
    ("event", "part"),
    [
        ("subprocess.Popen", "drumline.control.driver"),  # the command: there is a job, and no driver
        ("open", "/driver.log"),  # the guard of the driver
    ],
)
def test_a_pipeline_whose_driver_is_killed_at_its_start_has_another(cli, tmp_path, killed, event, part):
    pipeline = write_pipeline(tmp_path, {"a": step("true")})
    cli("job", "create", "-f", pipeline, env=killed(event, part))
    assert wait_for_end()["status"] == "Completed"


def test_a_step_whose_supervisor_is_killed_at_its_start_has_failed(cli, tmp_path, killed):
    pipeline = write_pipeline(tmp_path, {"a": step("true")})
    cli("job", "create", "-f", pipeline, env=killed("open", "/supervisor.log"))
    assert wait_for_end()["status"] == "Failed"
    # The driver judges it, in a process that knows of no other limit.
    step_of_it = fold(RunFolder.for_job("p-a").read_events())
    # It may be gone before it was written down.
    assert step_of_it.reason in (KILLED, NEVER_STARTED)
    assert step_of_it.ended - step_of_it.created < OWN_LIMIT_S / 2
