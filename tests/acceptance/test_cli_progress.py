"""What a terminal shows of copies and builds that take long, and a pipe does not."""

import contextlib
import fcntl
import os
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from cli_jobs import write_job
from programs import first_lines
from waiting import wait_until

ROOT = Path(__file__).parents[2]
LARGE = "import os; os.makedirs('outputs', exist_ok=True); open('outputs/x', 'wb').truncate(200_000_000)"
MICROMAMBA = """
import sys
if sys.argv[1] == "create":
    print("Linking numpy-1.26\\nLinking toolz", flush=True)
    open({gate!r}).read()
"""


class OnTerminal:
    """A command whose standard error is a terminal of 100 columns."""

    def __init__(self, *arguments, cwd, env=None):
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        os.set_blocking(self._ours, False)
        self._got = b""
        plain = {"NO_COLOR": "", "TERM": "xterm", **(env or {})}
        argv = [sys.executable, "-m", "drumline", *map(str, arguments)]
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**os.environ, **plain},
        )
        os.close(theirs)

    @property
    def shown(self):
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 1 << 16):
                self._got += data
        return self._got.decode()

    def has_ended(self):
        self.shown  # noqa: B018 - a terminal that nobody reads fills up
        return self.process.poll() is not None

    def end(self):
        """The exit code, and everything that was shown."""
        wait_until(self.has_ended, 20.0, "the command to end")
        shown = self.shown
        os.close(self._ours)
        return self.process.returncode, shown


@pytest.fixture
def large(cli, tmp_path):
    path = write_job(tmp_path, f"{shlex.quote(sys.executable)} -c {shlex.quote(LARGE)}", name="large")
    assert cli("job", "create", "-f", path, "--stream").rc == 0


def test_a_download_has_a_bar_on_a_terminal_that_is_gone_at_its_end(large, tmp_path):
    code, shown = OnTerminal("job", "download", "large", "-p", "there", cwd=tmp_path).end()
    assert code == 0
    assert "job large    0% |" in shown
    assert "of 191 MiB" in shown
    line = shown.splitlines()[-1]
    assert line == f"downloaded to {tmp_path / 'there'}"
    copied = tmp_path / "there" / "artifacts" / "outputs" / "x"
    assert copied.stat().st_size == 200_000_000
    # Holes stay holes.
    assert copied.stat().st_blocks * 512 < 10_000_000


@pytest.mark.parametrize("how", ["a pipe", "NO_COLOR", "--color never"])
def test_elsewhere_a_download_says_where_it_is_and_no_more(cli, large, tmp_path, how):
    words = ("job", "download", "large", "-p", "there")
    if how == "a pipe":
        done = cli(*words)
        code, said = done.rc, done.err
    else:
        options = ("--color", "never") if how == "--color never" else ()
        env = {"NO_COLOR": "1"} if how == "NO_COLOR" else {}
        code, said = OnTerminal(*options, *words, cwd=tmp_path, env=env).end()
    assert (code, said.strip()) == (0, f"downloaded to {tmp_path / 'there'}")
    assert (tmp_path / "there" / "artifacts" / "outputs" / "x").stat().st_size == 200_000_000


def test_a_small_download_has_no_bar(cli, tmp_path):
    assert cli("run", "--name", "small", "--", "true").rc == 0
    code, shown = OnTerminal("job", "download", "small", "-p", "there", cwd=tmp_path).end()
    assert (code, shown.strip()) == (0, f"downloaded to {tmp_path / 'there'}")


def test_a_build_shows_what_its_tool_says_and_leaves_one_line(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = tmp_path / "bin" / "micromamba"
    program.parent.mkdir()
    stands_for = (ROOT / "tests" / "jobs" / "micromamba.py").read_text()
    program.write_text(first_lines() + MICROMAMBA.format(gate=str(gate)) + stands_for)
    program.chmod(0o755)
    (tmp_path / "conda.yml").write_text("dependencies:\n  - python=3.11\n  - numpy=1.26\n")
    path = write_job(
        tmp_path, "true", name="built", environment={"image": "ubuntu", "conda_file": "conda.yml"}
    )
    env = {"MAMBA_EXE": str(program), "DRUMLINE_CONTAINER": "none"}
    building = OnTerminal("job", "create", "-f", path, "--stream", cwd=tmp_path, env=env)
    wait_until(lambda: "  Linking toolz" in building.shown, 20.0, "the tool's last line")
    before = len(building.shown)
    wait_until(lambda: "environment: 2 conda packages" in building.shown[before:], 20.0, "another second")
    gate.write_text("")
    code, shown = building.end()
    assert code == 0
    assert "\rjob built: environment: ready after " in shown
    assert "\njob built: environment: 2 conda" not in shown
