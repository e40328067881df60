"""``drumline job top`` and the samples behind it, of real jobs."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
from cli_jobs import on_terminal, one_rank, wait_for_status, write_job, write_script
from waiting import wait_until

from drumline.cli.views import top
from drumline.contract import samples
from drumline.contract.record import describe_record
from drumline.control.facts import description, usage
from drumline.control.jobs import lookup, recovery

BUSY = """
    import os, signal, time

    if os.environ["RANK"] == "0":
        held = bytearray(200 << 20)
        held[::4096] = b"x" * len(held[::4096])
        # CPU time, not time: however busy the machine is.
        while time.process_time() < 2.0:
            pass
    print("done", flush=True)
    signal.pause()
"""
MEGABYTE = 1 << 20


def read(file):
    with open(file, "rb") as opened:
        return opened.read()


def snapshot_when(ready):
    def look():
        described = usage.describe_usage(lookup.folder_of("job"), recovery.recover(lookup.folder_of("job")))
        return described if described.ranks and ready(described) else None

    return wait_until(look, 20.0, "a sample")


def test_a_rank_that_works_and_one_that_waits(cli, tmp_path):
    path = write_script(tmp_path, BUSY, drumline={"grace": 1}, resources={"instance_count": 1})
    assert cli("job", "create", "-f", path).rc == 0
    folder = lookup.folder_of("job").path
    ranks = snapshot_when(lambda described: described.ranks[0].get("memory_bytes", 0) > 200 * MEGABYTE).ranks
    newest = samples.from_line(read(samples.path_of(folder, 0)).splitlines()[-1])
    # One core at most, as much of it as the kernel had to give, and the other one waits.
    assert ranks[0]["cpu_seconds"] > 0.1
    assert 2 * ranks[1]["cpu_percent"] < ranks[0]["cpu_percent"] <= 110.0
    assert ranks[0]["memory_bytes"] < 300 * MEGABYTE
    assert ranks[1]["memory_bytes"] < 100 * MEGABYTE
    assert [rank["state"] for rank in ranks] == ["running", "running"]
    assert newest.attempt == 0

    shown = cli("job", "top", "job", "--once").out
    assert re.match(r"job job is Running for [\d.]+s\n\nNODE  CPU ", shown)
    rows = [line.split() for line in shown.partition("RANK")[2].splitlines()[1:]]
    pids = {one["rank"]: str(one["pid"]) for one in description.show_job("job")["processes"]["ranks"]}
    assert [row[:4] for row in rows] == [["0", "0", pids[0], "running"], ["1", "0", pids[1], "running"]]
    listed = json.loads(cli("job", "top", "job", "-o", "json").out)
    assert [rank["pid"] for rank in listed["ranks"]] == [int(pids[0]), int(pids[1])]
    assert cli("job", "top", "job", "--query", "nodes[0].cores").out.strip().isdigit()
    assert cli("job", "top", "job", "--node", "3").rc == 2

    cli("job", "cancel", "job")
    wait_for_status("job", "Canceled")
    ended = cli("job", "top", "job").out
    assert re.match(r"job job is Canceled after [\d.]+s: means and peaks of its last attempt\n", ended)
    peak = re.search(r"^0 .*?signal \d+ +\d+ % +(\d+) MiB", ended, re.MULTILINE)
    assert 200 < int(peak[1]) < 300
    # The page of the job has the same record, and says the same.
    assert f"{peak[1]} MiB of memory at most in a rank" in on_terminal("job", "show", "job", cwd=tmp_path)[1]
    used = json.loads(cli("job", "show", "job").out)["resources_used"]["ranks"]
    assert [one["rank"] for one in used] == [0, 1]
    assert used[0]["peak_memory_bytes"] > 200 * MEGABYTE
    assert used[0]["cpu_seconds"] > used[1]["cpu_seconds"]
    # Nothing else is left in the folder, and nothing was said.
    assert os.listdir(os.path.join(folder, samples.FOLDER)) == ["node-0.jsonl"]
    assert os.path.getsize(os.path.join(folder, "system_logs", "node-0.log")) == 0


@pytest.mark.parametrize("where", ["job", "surroundings"])
def test_nothing_is_sampled_where_that_is_not_wished(cli, tmp_path, where):
    switch = {samples.SWITCH: "0"}
    given = {"environment_variables": switch} if where == "job" else {}
    path = write_job(tmp_path, "true", **one_rank(**given))
    assert (
        cli("job", "create", "-f", path, "-n", "job", "--stream", env=switch if where != "job" else {}).rc
        == 0
    )
    assert not os.path.exists(os.path.join(lookup.folder_of("job").path, samples.FOLDER))
    shown = cli("job", "top", "job").out
    assert re.match(r"job job is Completed after [\d.]+s; it was not sampled\n", shown)
    assert json.loads(cli("job", "show", "job").out)["resources_used"] is None


def test_files_that_a_job_wrote_itself_are_no_trouble(cli, tmp_path):
    path = write_job(tmp_path, "true", **one_rank())
    assert cli("job", "create", "-f", path, "-n", "job", "--stream").rc == 0
    file = samples.path_of(lookup.folder_of("job").path, 0)
    whole = read(file)
    data = json.loads(whole)
    for broken in (
        b"{}\n" * 100,
        b"\xff" * (1 << 19),
        whole + b'{"t":1e999}\n[1,2\n',
        json.dumps({**data, "t": 1e300, "gpus": [{"i": "\x1b[2J", "name": "\x1b]0;x\x07"}]}).encode() + b"\n",
        json.dumps({**data, "e": float("nan")}).encode() + b"\n",
        json.dumps({**data, "e": -1.0, "mem": [10**400, 0]}).encode() + b"\n",
    ):
        with open(file, "wb") as damaged:
            damaged.write(broken)
        described = usage.describe_usage(lookup.folder_of("job"), recovery.recover(lookup.folder_of("job")))
        plain = describe_record(described)
        assert json.loads(json.dumps(plain)) == plain
        assert "\x1b" not in "".join(top.format_usage(described))
    os.unlink(file)
    os.mkfifo(file)
    assert cli("job", "top", "job").rc == 0


def test_a_pipeline_shows_the_steps_that_run(cli, tmp_path):
    pipeline = {"type": "pipeline", "jobs": {"train": {"command": "sleep 600", **one_rank()}}}
    (tmp_path / "pipeline.yml").write_text(json.dumps(pipeline))
    assert cli("job", "create", "-f", "pipeline.yml", "-n", "line").rc == 0
    wait_until(lambda: "\n0 " in cli("job", "top", "line").out, 20.0, "the step's rank")
    assert re.search(r"^train: job line[\w-]* is Running", cli("job", "top", "line").out, re.MULTILINE)
    assert cli("job", "top", "line", "--node", "0").rc == 2
    cli("job", "cancel", "line", "--at-once")
    wait_for_status("line", "Canceled")
    assert "no step of it is under way now" in cli("job", "top", "line").out


class Terminal:
    """``drumline job top`` on a terminal of its own."""

    def __init__(self, cwd, *arguments):
        self.master, slave = pty.openpty()
        self.resize(30, 120)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drumline", "job", "top", *arguments],
            cwd=cwd, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: (fcntl.ioctl(0, termios.TIOCSCTTY, 0), signal.signal(signal.SIGINT, signal.SIG_DFL)),  # noqa: PLW1509
        )  # fmt: skip

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.master, keys)

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 1 << 16).decode(errors="replace")
        return self.text

    def wait_for(self, text):
        """From here on, what came before is forgotten."""
        wait_until(lambda: text in self.read(), 20.0, f"{text!r} on the terminal")
        self.text = self.text.partition(text)[2]

    def end(self):
        wait_until(lambda: (self.read(), self.process.poll())[1] is not None, 20.0, "its end")
        return self.process.returncode

    def is_as_before(self):
        return termios.tcgetattr(self.slave) == self.before and self.text.rstrip().endswith("\x1b[?1049l")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def job(cli, tmp_path):
    path = write_job(tmp_path, "sleep 600", **one_rank(drumline={"grace": 1}))
    assert cli("job", "create", "-f", path, "-n", "job").rc == 0
    wait_for_status("job", "Running")
    yield
    if not recovery.recover(lookup.folder_of("job")).is_final:
        cli("job", "cancel", "job", "--at-once")


@pytest.fixture
def terminal(job, tmp_path):
    opened = []

    def start(*arguments):
        opened.append(Terminal(tmp_path, *arguments))
        opened[-1].wait_for("\x1b[?1049h")
        opened[-1].wait_for("job job is Running")
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_a_terminal_is_given_back_whatever_ends_it(terminal):
    for how, code in ((b"q", 0), (b"\x03", 130), (signal.SIGTERM, 143)):
        session = terminal("job")
        if isinstance(how, bytes):
            session.press(how)
        else:
            session.process.send_signal(how)
        assert session.end() == code
        assert session.is_as_before()
        assert "Traceback" not in session.text


def test_it_follows_the_job_and_the_size_of_its_terminal(terminal, cli):
    session = terminal("job")
    session.wait_for("running")
    session.resize(5, 40)
    wait_until(
        lambda: (os.kill(session.process.pid, signal.SIGWINCH), "more lines below" in session.read())[1]
    )
    session.press(b"\x1b[6~")
    session.wait_for("running"[:4])
    # Ctrl-Z and fg.
    session.press(b"\x1a")
    session.wait_for("\x1b[?1049l")
    wait_until(lambda: stat_of(session.process.pid) == "T", 10.0, "it to stop")
    os.kill(session.process.pid, signal.SIGCONT)
    session.wait_for("\x1b[?1049h")
    started = time.monotonic()
    cli("job", "cancel", "job", "--at-once")
    assert session.end() == 0
    assert time.monotonic() - started < 30.0
    _, _, after = session.text.partition("\x1b[?1049l")
    assert "job job is Canceled" in after
    assert termios.tcgetattr(session.slave) == session.before


def stat_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
