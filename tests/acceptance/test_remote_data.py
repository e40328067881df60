"""Inputs and outputs at real services on loopback: Azurite, an S3 server, a web server."""

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cli_jobs import one_rank, write_job
from services import ACCOUNT, ACCOUNT_KEY
from waiting import wait_until

from drumline.contract.folder import RunFolder

ROOT = Path(__file__).parents[2]
DIGITS = (ROOT / "examples" / "digits-ddp" / "data" / "digits.csv").read_bytes()


@pytest.fixture
def example(tmp_path):
    folder = tmp_path / "remote data"
    shutil.copytree(ROOT / "examples" / "remote-data", folder)
    return folder


@pytest.fixture
def store(azurite, monkeypatch):
    """A container of this test, and its address."""
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)
    return azurite


@pytest.fixture
def bucket(s3_server, monkeypatch):
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


def data_of(cli, name):
    return json.loads(cli("job", "show", "-n", name, "-o", "json").out)["data"]


def run(cli, tmp_path, command, name="job", rc=0, **fields):
    result = cli(
        "job", "create", "-f", write_job(tmp_path, command, **one_rank(**fields)), "-n", name, "--stream"
    )
    assert result.rc == rc, result.out + result.err
    return result.out + result.err


def test_digits_from_azure_storage_become_a_model_that_the_next_job_reads(cli, example, store):
    store.make_container("digits", {"train/digits.csv": DIGITS})
    path = f"inputs.digits.path={store.uri('digits', 'train')}"
    trained = cli("job", "create", "-f", example / "train.yml", "-n", "train", "--stream", "--set", path)
    assert "trained on 1797 images with 4 ranks" in trained.out, trained.out + trained.err
    tested = cli("job", "create", "-f", example / "evaluate.yml", "-n", "test", "--stream", "--set", path)
    accuracy = float(tested.out.split("accuracy ")[1].split()[0])
    assert accuracy > 0.9
    first, second = (data_of(cli, name)["inputs.digits"] for name in ("train", "test"))
    assert (first["file_count"], first["cached_bytes"]) == (1, 0)
    assert second["cached_bytes"] == second["size_bytes"] == len(DIGITS)


def test_the_same_from_s3(cli, example, bucket):
    bucket.make_bucket("lab", {"train/digits.csv": DIGITS})
    changes = ["inputs.digits.path=s3://lab/train", "outputs.model.path=s3://lab/models/digits"]
    small = "resources.instance_count=1"
    trained = cli(
        "job", "create", "-f", example / "train.yml", "-n", "train", "--stream", "--set", *changes, small
    )
    assert "trained on 1797 images with 2 ranks" in trained.out, trained.out + trained.err
    assert bucket.names("lab") == ["models/digits/net.pt", "train/digits.csv"]
    # The asset is what is in the bucket; without its cache the next job fetches it.
    assert json.loads(cli("data", "show", "-n", "digits-model", "--label", "latest").out)["path"] == (
        "s3://lab/models/digits"
    )
    changes = changes[:1]
    tested = cli("job", "create", "-f", example / "evaluate.yml", "-n", "test", "--stream", "--set", *changes)
    assert "accuracy 0.9" in tested.out, tested.out + tested.err
    assert data_of(cli, "test")["inputs.model"]["uri"] == "s3://lab/models/digits"


def test_a_datastore_keeps_the_key_out_of_the_run_folder(cli, tmp_path, azurite, drumline_home):
    azurite.make_container("kept", {"in/a.txt": b"from the store"})
    record = {
        "name": "lab",
        "type": "azure_blob",
        "account_name": ACCOUNT,
        "container_name": "kept",
        "endpoint": azurite.endpoint,
        "credentials": {"account_key": ACCOUNT_KEY},
    }
    (tmp_path / "lab.yml").write_text(json.dumps(record))
    made = cli("datastore", "create", "-f", tmp_path / "lab.yml")
    assert made.rc == 0, made.err
    out = run(
        cli,
        tmp_path,
        "cat ${{inputs.d}}/a.txt; echo written > ${{outputs.o}}/b.txt",
        inputs={"d": {"path": "azureml://datastores/lab/paths/in"}},
        outputs={
            "o": {"path": "azureml://datastores/lab/paths/out/${{name}}", "mode": "upload", "name": "left"}
        },
    )
    assert "from the store" in out
    assert azurite.get("kept", "out/job/b.txt") == b"written\n"
    asset = json.loads(cli("data", "show", "-n", "left", "--label", "latest").out)
    assert asset["path"] == "azureml://datastores/lab/paths/out/job"
    kept = [path for path in (drumline_home / "jobs" / "job").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if ACCOUNT_KEY.encode() in path.read_bytes()]
    again = run(
        cli, tmp_path, "cat ${{inputs.d}}/b.txt", "again", inputs={"d": {"path": "azureml:left@latest"}}
    )
    assert "written" in again


def test_a_mounted_output_goes_on_where_the_job_before_ended(cli, tmp_path, bucket):
    bucket.make_bucket("checkpoints")
    command = "cat ${{outputs.c}}/* 2>/dev/null; date +%s%N > ${{outputs.c}}/$AZUREML_RUN_ID; exit 3"
    outputs = {"c": {"path": "s3://checkpoints/run", "mode": "rw_mount"}}
    run(cli, tmp_path, command, "one", rc=1, outputs=outputs)
    first = bucket.get("checkpoints", "run/one").decode()
    assert first.strip() in run(cli, tmp_path, command, "two", rc=1, outputs=outputs)
    assert bucket.names("checkpoints") == ["run/one", "run/two"]


def test_what_is_not_there_fails_the_job_before_a_rank_starts(cli, tmp_path, bucket, drumline_home):
    bucket.make_bucket("empty")
    marker = tmp_path / "started"
    out = run(cli, tmp_path, f"touch '{marker}'", rc=1, inputs={"d": {"path": "s3://empty/nothing"}})
    assert "job job failed: inputs.d: there is nothing at s3://empty/nothing" in out
    assert not marker.exists()


def test_an_output_that_cannot_be_written_fails_the_job(cli, tmp_path, bucket):
    output = {"path": "s3://no-such-bucket/x", "mode": "upload"}
    out = run(cli, tmp_path, "echo 1 > ${{outputs.o}}/a", rc=1, outputs={"o": output})
    assert "failed" in out
    assert "s3://no-such-bucket/x" in out
    assert "Traceback" not in out


def test_a_supervisor_that_takes_over_writes_outputs_and_starts_no_rank(
    cli, tmp_path, bucket, drumline_home, monkeypatch
):
    bucket.make_bucket("late")
    job = write_job(
        tmp_path,
        "echo . >> ${{outputs.o}}/a",
        **one_rank(outputs={"o": {"path": "s3://late/x", "mode": "upload"}}),
    )
    folder = RunFolder.for_job("job", str(drumline_home))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert cli("job", "create", "-f", job, "-n", "job", env={"AWS_ENDPOINT_URL": address}).rc == 0
        silent.accept()[0].close()
        os.kill(json.loads(Path(folder.supervisor).read_text())["pid"], signal.SIGKILL)
    # As another node of a cluster would.
    os.unlink(folder.supervisor)
    subprocess.run([sys.executable, "-m", "drumline.supervisor", folder.path], check=True)
    assert cli("job", "stream", "-n", "job").rc == 0
    assert bucket.get("late", "x/a") == b".\n"


class _Stuck(http.server.BaseHTTPRequestHandler):
    """Half of a file, and no more until the test is over."""

    over: threading.Event
    asked: threading.Event

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2000000")
        self.send_header("ETag", '"1"')
        self.end_headers()
        if self.command == "GET":
            with contextlib.suppress(OSError):
                self.wfile.write(bytes(1_000_000))
            self.asked.set()
            self.over.wait()

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def slow_file():
    _Stuck.over, _Stuck.asked = threading.Event(), threading.Event()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Stuck) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/half.bin"
        _Stuck.over.set()
        server.shutdown()


@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_a_fetch_is_ended_with_its_job(cli, tmp_path, slow_file, drumline_home, how):
    job = write_job(tmp_path, "true", **one_rank(inputs={"d": {"type": "uri_file", "path": slow_file}}))
    assert cli("job", "create", "-f", job, "-n", "job").rc == 0
    folder = RunFolder.for_job("job", str(drumline_home))
    assert _Stuck.asked.wait(60)
    if how == "cancel":
        assert cli("job", "cancel", "-n", "job").rc == 0
        shown = json.loads(cli("job", "show", "-n", "job").out)
        assert (shown["status"], shown["reason"][:12]) == ("Canceled", "canceled by ")
    else:
        os.kill(json.loads(Path(folder.supervisor).read_text())["pid"], signal.SIGKILL)
        wait_until(lambda: json.loads(cli("job", "show", "-n", "job").out)["status"] == "Failed")
