"""The process that brings data in and out, with services on loopback."""

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import services
from planning import plan
from waiting import wait_until

from drumline.contract import process_identity
from drumline.contract.plan import Fetch, Upload
from drumline.staging.stores.store import CHUNK_BYTES
from drumline.store.asset_versions import Records


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    pytest.importorskip("obstore")
    try:
        with services.s3_server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except services.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    (folder / "system_logs").mkdir(parents=True)
    return folder


class TransferError(Exception):
    """With what it said last."""


def write(run, fetches=(), uploads=()):
    made = plan(nodes=1)._replace(fetches=tuple(fetches), uploads=tuple(uploads))
    (run / "plan.json").write_text(made.to_json())


def start(run, what, *arguments, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in services.cloud_variables()}
    return subprocess.Popen(
        [sys.executable, "-m", "drumline.staging.transfer", what, str(run), *arguments],
        env={**clean, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def transfer(run, what, *arguments, **environment):
    """What it said of each transfer; raises TransferError with the last line where it failed."""
    process = start(run, what, *arguments, **environment)
    out, err = process.communicate(timeout=240)
    lines = [json.loads(line) for line in out.splitlines()]
    assert "Traceback" not in err
    if process.returncode:
        assert (process.returncode, lines[-1]["type"]) == (1, "failed"), err
        raise TransferError(f"{lines[-1]['message']} ({lines[-1]['hint']})")
    return [line for line in lines if line["type"] == "transferred"]


def one(run, uri, name="data", **fields):
    target = str(run / "inputs" / name)
    return Fetch(
        f"inputs.{name}",
        uri,
        target=target,
        **{"kind": "folder", "writable": False, "mode": "ro_mount", **fields},
    )


def test_in_from_a_bucket_and_out_to_it(s3, run, tmp_path):
    large = os.urandom(CHUNK_BYTES + 5)
    s3.make_bucket(
        "data", {"digits/a.txt": b"a", "digits/sub/b c.txt": b"b", "digits/large": large, "one": b"1"}
    )
    write(
        run,
        [
            one(run, "s3://data/digits/"),
            one(run, "s3://data/digits", "copy", writable=True, mode="download"),
            one(run, "s3://data/one", "one", kind="file"),
        ],
        [
            Upload("outputs.model", str(run / "inputs" / "copy"), "s3://data/out/", "folder", always=False),
            Upload("outputs.note", str(run / "note"), "s3://data/note.txt", "file", always=True),
        ],
    )
    said = transfer(run, "fetch", **s3.environment)
    total = len(large) + 2
    assert [
        (line["name"], line["size_bytes"], line["file_count"], line["cached_bytes"]) for line in said
    ] == [
        ("inputs.data", total, 3, 0),
        ("inputs.copy", total, 3, total),
        ("inputs.one", 1, 1, 0),
    ]
    assert said[0]["verified"] == 3
    for name in ("data", "copy"):
        assert (run / "inputs" / name / "sub" / "b c.txt").read_bytes() == b"b"
        assert (run / "inputs" / name / "large").read_bytes() == large
    assert os.path.realpath(run / "inputs" / "one").endswith("/one")
    (run / "inputs" / "copy" / "a.txt").write_text("changed")
    (run / "note").write_text("note")
    assert [line["name"] for line in transfer(run, "upload", "--always-only", **s3.environment)] == [
        "outputs.note"
    ]
    transfer(run, "upload", **s3.environment)
    assert s3.get("data", "out/a.txt") == b"changed"
    assert s3.get("data", "out/large") == large
    assert s3.get("data", "note.txt") == b"note"
    (run / "inputs" / "copy" / "a.txt").write_text("again")
    assert [line["file_count"] for line in transfer(run, "upload", **s3.environment)] == [1, 0]


def test_what_an_output_held_before_is_there_and_only_changes_are_written(s3, run):
    s3.make_bucket("mount", {"ck/1": b"1", "ck/2": b"2"})
    target = run / "named-outputs" / "ck"
    target.mkdir(parents=True)
    fetch = one(run, "s3://mount/ck", writable=True, mode="rw_mount", may_be_missing=True)
    fetch = fetch._replace(name="outputs.ck", target=str(target))
    write(run, [fetch], [Upload("outputs.ck", str(target), "s3://mount/ck", "folder", always=True)])
    assert transfer(run, "fetch", **s3.environment)[0]["note"] == "from what it held before"
    (target / "2").write_text("new")
    (target / "3").write_text("3")
    # As after a restart: what the ranks have written is theirs.
    assert transfer(run, "fetch", **s3.environment) == []
    assert [line["file_count"] for line in transfer(run, "upload", "--always-only", **s3.environment)] == [2]
    assert [s3.get("mount", f"ck/{number}") for number in (1, 2, 3)] == [b"1", b"new", b"3"]


def test_what_is_wrong_is_one_sentence(s3, run, tmp_path):
    s3.make_bucket("wrong", {"digits/a.txt": b"a"})
    cases = {
        "s3://wrong/digits/a.txt": (r"s3://wrong/digits/a.txt is a file, and its type is uri_folder", {}),
        "s3://wrong/digits": (r"s3://wrong/digits is a folder, and its type is uri_file", {"kind": "file"}),
        "s3://wrong/none": (r"inputs.data: there is nothing at s3://wrong/none", {}),
        "s3://wrong/there": (
            r"inputs.data: the datastore 'lab' is not visible from this machine \(it is kept in /nowhere",
            {"datastore": "lab", "home": "/nowhere"},
        ),
    }
    for uri, (words, fields) in cases.items():
        write(run, [one(run, uri, **fields)])
        with pytest.raises(TransferError, match=words):
            transfer(run, "fetch", **s3.environment)
    write(run, [one(run, "s3://wrong/none", may_be_missing=True)])
    assert transfer(run, "fetch", **s3.environment)[0]["file_count"] == 0


def test_the_credentials_of_a_datastore_are_used_and_kept_out_of_sight(s3, run, tmp_path):
    """Those that a bucket's store does not need are no hindrance."""
    s3.make_bucket("kept", {"a": b"a"})
    Records(str(tmp_path / "home"), "datastore").create(
        "lab", "1", {"type": "azure_blob", "credentials": {"sas_token": "SECRET"}}
    )
    write(run, [one(run, "s3://kept", datastore="lab", home=str(tmp_path / "home"))])
    transfer(run, "fetch", **s3.environment)
    left = [path for path in (tmp_path / "drumline home").rglob("*") if path.is_file()]
    assert left
    assert all(b"SECRET" not in path.read_bytes() for path in left)


# a server of which parts can be held back


class Server(http.server.ThreadingHTTPServer):
    """One file, by ranges. ``sent``: bytes of answers; those after the first ``free`` wait for ``gate``."""

    daemon_threads = True

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = content
        self.sent = 0
        self.free = 1 << 60
        self.gate = threading.Event()
        self.lock = threading.Lock()
        self.uri = f"http://127.0.0.1:{self.server_address[1]}/data.bin"

    def handle_error(self, request, client_address):
        """Of a client that was killed."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self):
        self._head(200, len(self.server.content))

    def do_GET(self):
        whole = self.server.content
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = (int(found[1]), min(int(found[2]) + 1, len(whole))) if found else (0, len(whole))
        if end - start > 1:
            with self.server.lock:
                self.server.sent += end - start
                waits = self.server.sent > self.server.free
            if waits:
                self.server.gate.wait(60)
        self._head(
            206 if found else 200, end - start, f"bytes {start}-{end - 1}/{len(whole)}" if found else ""
        )
        self.wfile.write(whole[start:end])

    def _head(self, code, length, part=""):
        self.send_response(code)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1"')
        self.send_header("Accept-Ranges", "bytes")
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    made = Server(os.urandom(1 << 20) * 81)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.gate.set()
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_transfer_that_was_ended_goes_on_where_it_was(server, run, drumline_home, number):
    server.free = 6 * CHUNK_BYTES + CHUNK_BYTES // 2
    write(run, [one(run, server.uri, kind="file")])
    process = start(run, "fetch")
    partial = drumline_home / "cache" / "partial"
    wait_until(lambda: [path for path in partial.glob("*.chunks") if path.read_text().count("\n") == 7], 20)
    process.send_signal(number)
    process.communicate(timeout=40)
    assert not os.path.lexists(run / "inputs" / "data")
    server.gate.set()
    server.sent, server.free = 0, 1 << 60
    said = transfer(run, "fetch")
    # Parts are asked for side by side: the last, which is smaller, may be one of the six that were kept.
    kept = 5 * CHUNK_BYTES + len(server.content) % CHUNK_BYTES
    assert server.sent <= len(server.content) - kept + 1
    assert said[0]["size_bytes"] == len(server.content)
    assert (run / "inputs" / "data").read_bytes() == server.content
    assert list(partial.iterdir()) == list((drumline_home / "cache" / "locks").iterdir()) == []


STARTER = """
import subprocess, sys
process = subprocess.Popen([sys.executable, "-m", "drumline.staging.transfer", "fetch", sys.argv[1]])
print(process.pid, flush=True)
sys.stdin.read()
"""


def test_it_dies_with_its_parent(server, run, drumline_home):
    server.free = 0
    write(run, [one(run, server.uri, kind="file")])
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    who = process_identity.identify_process(int(starter.stdout.readline()))
    wait_until(lambda: server.sent, 20)
    starter.kill()
    starter.communicate()
    wait_until(lambda: not process_identity.is_alive(who), 5)
