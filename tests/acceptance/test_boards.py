"""TensorBoard and MLflow over what jobs have left."""

import json
import os
import shlex
import socket
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest
from cli_jobs import background, one_rank, write_script
from waiting import wait_until

WRITES = """
    from tensorboardX import SummaryWriter
    with SummaryWriter("outputs/board") as writer:
        writer.add_scalar("loss", 0.5, 3)
    with SummaryWriter("runs") as writer:
        writer.add_scalar("accuracy", 0.5, 3)
"""
STAND_IN = """import http.server, json, os, sys

if sys.argv[1] == "-c":
    sys.exit()
options = dict(zip(sys.argv[4::2], sys.argv[5::2]))
with open(os.environ["SAID"], "w") as file:
    json.dump([sys.argv, os.environ["MLFLOW_ALLOW_FILE_STORE"]], file)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"OK")


if os.fork() == 0:
    os.setsid()
    http.server.HTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
os.wait()
"""


def fetch(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as response:
        return response.read().decode(errors="replace")


def list_listening(address):
    """The addresses, in the kernel's words, on which somebody listens at the port of that one."""
    port = f"{urllib.parse.urlsplit(address).port:04X}"
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table) as file:
            rows = [line.split() for line in file][1:]
        found += [row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[1].endswith(":" + port)]
    return found


def address_of(command):
    return wait_until(lambda: command.out.endswith("\n") and command.out.strip(), 60, "an address")


def test_tensorboard_shows_a_job_that_has_ended_and_leaves_nothing(cli, tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    job = write_script(tmp_path, WRITES, **one_rank(resources={"instance_count": 1}))
    assert cli("job", "create", "-f", job, "--stream").rc == 0
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with background("tensorboard", "job", cwd=tmp_path) as command:
        address = address_of(command)
        tags = wait_until(
            lambda: (found := fetch(address + "data/plugin/scalars/tags")) != "{}" and found, 30
        )
        assert list_listening(address) == ["0100007F"]
        assert set(json.loads(tags)) == {"job/outputs/board", "job/code/runs"}
        with pytest.raises(urllib.error.HTTPError) as refusal:
            fetch(address.rstrip("/").rpartition("/")[0] + "/data/plugin/scalars/tags")
        refusal.value.close()
        command.interrupt()
        assert command.end() == 0, command.err
    with pytest.raises(urllib.error.URLError):
        fetch(address)
    assert list(temporary.iterdir()) == []


def test_tensorboard_says_what_is_missing(cli, tmp_path):
    assert cli("run", "--name", "job", "--", "true").rc == 0
    done = cli("tensorboard", "job", "--python", "/bin/false")
    assert (done.rc, done.err.splitlines()[0]) == (3, "error: job job has no event files of TensorBoard")
    assert cli("tensorboard", "nothing").rc == 3
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "events.out.tfevents.1").touch()
    done = cli("tensorboard", "job", "--python", "/bin/false")
    assert done.rc == 2
    assert done.err.splitlines() == [
        "error: tensorboard is not installed for /bin/false",
        "hint: /bin/false -m pip install tensorboard, or --python PATH",
    ]


def test_mlflow_serves_the_runs_of_this_home_and_leaves_nothing(cli, tmp_path, drumline_home, monkeypatch):
    """By a program in its place, which starts another in a session of its own, as MLflow does."""
    done = cli("mlflow")
    assert (done.rc, "no job of this workspace has logged" in done.err) == (3, True)
    assert cli("run", "--name", "job", "--", "true").rc == 0
    python = tmp_path / "python"
    program = tmp_path / "stand_in.py"
    program.write_text(STAND_IN)
    # The path of a Python may have a blank, which the first line of a script cannot.
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(program))} "$@"\n')
    python.chmod(0o700)
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    with background("mlflow", "--python", python, cwd=tmp_path) as command:
        address = address_of(command)
        assert fetch(address + "/") == "OK"
        command.process.terminate()
        assert command.end() == 0, command.err
    with pytest.raises(urllib.error.URLError):
        fetch(address)
    words, allowed = json.loads((tmp_path / "said").read_text())
    assert allowed == "true"
    assert "127.0.0.1" in words
    assert words[words.index("--backend-store-uri") + 1].endswith("/mlruns")
    assert os.listdir(drumline_home / "mlruns")


def test_mlflow_that_does_not_start_is_said(cli, tmp_path):
    assert cli("run", "--name", "job", "--", "true").rc == 0
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\necho broken >&2\nexit 3\n')
    python.chmod(0o700)
    with background("mlflow", "--python", python, cwd=tmp_path) as command:
        assert command.end() == 1
        assert command.err == "broken\nerror: MLflow ended with code 3 before it served anything\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with background("mlflow", "--python", python, "--port", port, cwd=tmp_path) as command:
            assert command.end() == 1
            assert command.err.startswith(f"error: port {port} cannot be had: Address already in use\n")
    assert cli("mlflow", "--port", "70000").rc == 2
