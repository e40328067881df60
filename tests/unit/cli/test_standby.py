import os
import signal
import subprocess
import sys
import time

import pytest
from cli_jobs import write_job
from waiting import wait_until

from drumline.cli.jobs import standby
from drumline.cli.jobs.standby import Standby
from drumline.cli.main import main
from drumline.contract.errors import EngineError
from drumline.linux import kernel


@pytest.fixture
def adopting():
    """The supervisor that waits is orphaned at once; here this process adopts it, and sees its end."""
    kernel.adopt_orphans()
    yield
    kernel.adopt_orphans(wanted=False)


def wait_for_child(pid=-1):
    wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0], 20, "the supervisor that waits has ended")


def test_one_that_is_dismissed_ends(adopting):
    waiting = Standby()
    waiting.dismiss()
    waiting.dismiss()
    wait_for_child()


def test_none_waits_for_a_job_that_was_refused(adopting, tmp_path, capsys):
    """The program goes on where a notebook or a test calls the command."""
    job = write_job(tmp_path, "true", drumline={"notify": [7]})
    assert main(["job", "create", "-f", str(job)]) == 2
    assert "one has a name or a command" in capsys.readouterr().err
    wait_for_child()


def test_one_that_has_died_is_an_error(adopting, monkeypatch, tmp_path):
    pid = tmp_path / "pid"

    def die(_reader):
        pid.write_text(str(os.getpid()))
        signal.pause()

    monkeypatch.setattr(standby, "_await_job", die)
    waiting = Standby()
    wait_until(lambda: pid.exists() and pid.read_text(), 20)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    # An orphan of an earlier test may end now, too.
    wait_for_child(int(pid.read_text()))
    with pytest.raises(EngineError, match="the supervisor of the job did not start"):
        waiting(str(tmp_path))


def test_a_reader_of_a_usage_error_does_not_wait_for_a_supervisor(tmp_path):
    """The one that was forked early holds none of the command's descriptors while it imports its modules."""
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(
        "import os, pathlib, sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'drumline.supervisor':\n"
        f"            pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "drumline", "run", "--bad", "--", "true"],
        env={**os.environ, "PYTHONPATH": str(slow)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "--bad" in done.stderr) == (2, True)
    assert time.monotonic() - before < 30
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text(), 20)
    os.kill(int(pid.read_text()), signal.SIGKILL)
