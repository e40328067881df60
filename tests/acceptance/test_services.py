"""TensorBoard beside a job."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, one_rank, wait_for_status, write_job, write_script
from waiting import wait_until

from drumline.linux import descendants

WRITES = f"""
    from tensorboardX import SummaryWriter
    with SummaryWriter("outputs/board") as writer:
        writer.add_scalar("loss", 0.5, 3)
    {WAIT_FOR_SIGNAL}
"""


def board_of(cli, name="job"):
    return json.loads(cli("job", "show-services", "-n", name).out).get("board", {})


def answer(url):
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20) as response:
            return response.status, response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, ""


def test_tensorboard_shows_a_running_job_to_whoever_knows_its_address(cli, tmp_path):
    pytest.importorskip("tensorboard")
    service = {"board": {"type": "tensor_board", "log_dir": "outputs"}}
    job = write_script(tmp_path, WRITES, services=service, **one_rank(resources={"instance_count": 1}))
    assert cli("job", "create", "-f", job).rc == 0
    board = wait_until(lambda: (found := board_of(cli)).get("endpoint") and found, 60, "TensorBoard is there")
    assert (board["type"], board["status"]) == ("TensorBoard", "Running")
    status, page = answer(board["endpoint"])
    assert status == 200
    assert "TensorBoard" in page
    wait_until(lambda: "board" in answer(board["endpoint"] + "data/plugin/scalars/tags")[1])
    base = board["endpoint"].rstrip("/").rpartition("/")[0]
    assert answer(base + "/data/plugin/scalars/tags")[0] == 404
    metrics = json.loads(cli("job", "metrics", "job", "-o", "json").out)
    assert "board/loss" in json.dumps(metrics)
    assert cli("job", "cancel", "-n", "job").rc == 0
    assert board_of(cli)["status"] == "Stopped"
    with pytest.raises(urllib.error.URLError):
        answer(board["endpoint"])


def test_a_job_goes_on_without_a_tensorboard_that_does_not_start(cli, tmp_path, monkeypatch):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tensorboard.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    job = write_job(tmp_path, WAIT_FOR_SIGNAL, **one_rank(services={"board": {"type": "tensor_board"}}))
    job.write_text(job.read_text().replace(WAIT_FOR_SIGNAL, "sleep 60"))
    assert cli("job", "create", "-f", job, "-n", "job").rc == 0
    board = wait_until(lambda: (found := board_of(cli)).get("error") and found, 60, "it is said")
    assert board["status"] == "Failed"
    assert "-m pip install tensorboard" in board["error"]
    assert json.loads(cli("job", "show", "-n", "job").out)["status"] in ("Running", "Starting")
    assert cli("job", "cancel", "-n", "job").rc == 0


STAND_IN = """\
import http.server, os, threading

print("a plug-in says hello")

class TensorBoardServerException(Exception):
    pass

class TensorBoard:
    def configure(self, argv):
        self.port = int(argv[argv.index("--port") + 1])
        self.prefix = argv[argv.index("--path_prefix") + 1]

    def launch(self):
        try:
            server = http.server.HTTPServer(("127.0.0.1", self.port), http.server.BaseHTTPRequestHandler)
        except OSError:
            raise TensorBoardServerException(f"could not bind to port {self.port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}{self.prefix}/"
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """For TensorBoard, which takes a second to start."""
    package = tmp_path / "stand-in" / "tensorboard"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "program.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


def create(cli, tmp_path, command, port=0, **fields):
    services = {"board": {"type": "tensor_board", "port": port}}
    job = write_job(tmp_path, command, services=services, **fields)
    assert cli("job", "create", "-f", job, "-n", "job").rc == 0


def endpoint(cli):
    return wait_until(lambda: board_of(cli).get("endpoint"), 20, "an address")


def is_open(address):
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", urllib.parse.urlsplit(address).port)) == 0


def running(run_folder):
    """Process ids of what speaks for the services of that job, and of what is below that."""
    speakers = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_of(pid, run_folder)]
    return [pid for one in speakers for pid in (one, *descendants.list_descendants(one))]


def _is_of(pid, run_folder):
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"drumline.supervisor.helpers.service_programs" in words and os.fsencode(run_folder) in words


def test_with_its_supervisor_it_ends(cli, tmp_path, drumline_home, stand_in):
    create(cli, tmp_path, "sleep 60")
    address = endpoint(cli)
    assert address.startswith("http://127.0.0.1:")
    os.kill(
        json.loads((drumline_home / "jobs" / "job" / "supervisor.json").read_text())["pid"], signal.SIGKILL
    )
    wait_until(lambda: not is_open(address), 10, "it to end")
    wait_until(lambda: not running(drumline_home / "jobs" / "job"), 10, "nothing to be left")
    wait_for_status("job", "Failed")
    assert board_of(cli)["status"] == "Stopped"


def test_each_attempt_has_one_of_its_own(cli, tmp_path, drumline_home, stand_in):
    go_on = tmp_path / "go-on"
    waits = f"until [ -e {go_on} ]; do sleep 0.02; done; rm {go_on}; exit 3"
    create(cli, tmp_path, waits, drumline={"max_restarts": 1, "restart_on": ["failure"]})
    first = endpoint(cli)
    go_on.touch()
    second = wait_until(lambda: (now := endpoint(cli)) != first and now, 20, "another one")
    assert is_open(second)
    assert not is_open(first)
    go_on.touch()
    wait_for_status("job", "Failed")
    assert not is_open(second)
    assert not running(drumline_home / "jobs" / "job")


def test_a_job_that_is_over_before_it_leaves_nothing(cli, tmp_path, drumline_home, stand_in):
    create(cli, tmp_path, "true")
    wait_for_status("job", "Completed")
    folder = drumline_home / "jobs" / "job"
    assert not running(folder)
    assert "JobEnded" in (folder / "events.jsonl").read_text().splitlines()[-1]
    # A supervisor that is killed before the other process has come so far as to look who that is.
    start = (
        "import os, sys; from drumline.contract.folder import RunFolder; from drumline.contract.plan import Plan; "
        "from drumline.supervisor.helpers.service_programs import ServicePrograms; folder = RunFolder(sys.argv[1]); "
        "ServicePrograms(folder, Plan.read(folder.plan)).start(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", start, folder], check=False)
    wait_until(lambda: not running(folder), 5, "nothing to be left")


def test_why_it_is_not_there_is_said(cli, tmp_path, drumline_home, stand_in):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        create(cli, tmp_path, "sleep 60", port)
        board = wait_until(lambda: (found := board_of(cli)).get("error") and found, 20, "it is said")
    assert (board["error"], board["status"]) == (f"could not bind to port {port}", "Failed")
    assert cli("job", "cancel", "-n", "job").rc == 0


def test_one_that_ends_is_no_longer_said_to_run(cli, tmp_path, drumline_home, stand_in):
    create(cli, tmp_path, "sleep 60")
    endpoint(cli)
    os.kill(running(drumline_home / "jobs" / "job")[-1], signal.SIGKILL)
    board = wait_until(lambda: (found := board_of(cli)).get("error") and found, 20, "it is said")
    assert (board["status"], board["endpoint"]) == ("Failed", None)
    assert "ended with code -9" in board["error"]
    assert cli("job", "cancel", "-n", "job").rc == 0


def test_a_port_is_one(cli, tmp_path):
    job = write_job(tmp_path, "true", services={"board": {"type": "tensor_board", "port": 70000}})
    refused = cli("job", "create", "-f", job)
    assert refused.rc == 2
    assert "services.board.port: 70000 is not a port number" in refused.err
