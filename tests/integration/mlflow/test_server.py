"""
The real ``mlflow server``, which is too heavy to be installed for the tests: DRUMLINE_MLFLOW names a Python that has
it, as of ``python -m venv there && there/bin/pip install mlflow``.
"""

import json
import os
import signal
import socket
import subprocess
import urllib.request

import pytest
from cli_jobs import two_by_two, write_job
from waiting import wait_until

PYTHON = os.environ.get("DRUMLINE_MLFLOW", "")

pytestmark = pytest.mark.skipif(
    not os.environ.get("DRUMLINE_SLOW") or not PYTHON,
    reason="half a minute for a server to start; DRUMLINE_SLOW=1 and DRUMLINE_MLFLOW=/path/to/python run it",
)

LOG = """
import os
import mlflow
mlflow.log_params({"lr": 0.1})
for step in range(3):
    mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
with mlflow.start_run(run_name="below", nested=True):
    mlflow.log_metric("own", float(os.environ["RANK"]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [PYTHON, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/runs.db"]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "--artifacts-destination", str(folder), "--port", str(port), "--workers", "1"],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    uri = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is None and answers(uri), 60, (folder / "log").read_text())
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def answers(uri):
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_ranks_log_to_the_one_run_there(cli, tmp_path, server):
    (tmp_path / "train.py").write_text(LOG)
    write_job(tmp_path, "python train.py", code=".", name="job", experiment_name="tried", **two_by_two())
    env = {"MLFLOW_TRACKING_URI": server}
    done = cli("job", "create", "-f", "job.yml", "--stream", env=env)
    assert done.rc == 0, done.out
    shown = json.loads(cli("job", "show", "job", env=env).out)
    assert shown["metrics"]["loss"] == pytest.approx(1 / 3)
    run_id = shown["services"]["Tracking"]["endpoint"].rpartition("/")[2]
    with urllib.request.urlopen(f"{server}/api/2.0/mlflow/runs/get?run_id={run_id}") as answer:
        run = json.load(answer)["run"]
    assert (run["info"]["run_name"], run["info"]["status"]) == ("job", "FINISHED")
    assert run["data"]["params"] == [{"key": "lr", "value": "0.1"}]
    found = json.loads(cli("job", "metrics", "job", "-o", "json", env=env).out)
    assert sorted(one["last"] for one in found if one["metric"] == "own") == [0.0, 1.0, 2.0, 3.0]
    (loss,) = [one for one in found if one["metric"] == "loss"]
    # A database of MLflow's keeps what is equal in one millisecond once.
    assert 3 <= loss["count"] <= 12
    assert {point["step"] for point in loss["points"]} == {0, 1, 2}
