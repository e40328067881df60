"""Data from elsewhere, for nodes that are machines: fetched once, into a folder that all of them see."""

import functools
import http.server
import threading

import pytest
from cli_jobs import logs_of
from waiting import wait_until

from drumline.control.facts import description

FINAL = ("Completed", "Failed", "Canceled")
SHOWS = """
    import os, pathlib
    path = pathlib.Path(os.environ["AZURE_ML_INPUT_d"])
    print(path.read_text(), path.resolve(), os.environ["AZUREML_CR_NODE_RANK"])
"""


class _Counted(http.server.SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *_: object) -> None:
        self.asked.append(self.command)


@pytest.fixture
def server(tmp_path):
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "a.txt").write_text("from elsewhere")
    _Counted.asked = []
    handler = functools.partial(_Counted, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("0.0.0.0", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


def test_data_is_fetched_once_for_all_nodes(slurm, server, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    slurm.attach("--partition", "main", "--folder", str(shared))
    host = slurm.cluster.exec("e1", "ip", "-4", "route", "show", "default").stdout.split()[2]
    address = {"type": "uri_file", "path": f"http://{host}:{server}/a.txt"}
    slurm.create(SHOWS, inputs={"d": address})
    wait_until(lambda: description.show_job("job")["status"] in FINAL, 30.0, "the job ends")
    shown = description.show_job("job")
    assert shown["status"] == "Completed", shown["reason"]
    said = [line.split() for line in logs_of(shared / "jobs" / "job")]
    assert {node for *_, node in said} == {"0", "1"}
    (place,) = {path for *_, path, _ in said}
    assert place.startswith(str(shared / "cache"))
    # What it is, its digest, and the content.
    assert len(_Counted.asked) <= 3
