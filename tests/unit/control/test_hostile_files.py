"""What a job has put into its own run folder: pipes, links, and addresses of others."""

import json
import os
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from made_jobs import MadeJob

from drumline.contract.errors import DrumlineError
from drumline.contract.plan import Plan
from drumline.control.driver.children import read_graph
from drumline.control.jobs import lookup
from drumline.control.observing import metrics
from drumline.control.observing.job_list.one_job import read_spec_text
from drumline.control.observing.job_list.table import JobTable
from drumline.control.observing.job_list.watch import JobWatch, read_events
from drumline.control.settings import tracking


@pytest.fixture
def job(drumline_home):
    made = MadeJob()
    made.start()
    return made


# addresses


@pytest.fixture
def server():
    """An address that notes what it is sent."""

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_GET  # noqa: N815 - as the library wants it

        def log_message(self, *_):
            pass

    asked: list[str | None] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


def name_server(job, uri, **variables):
    user_env = {**job.plan.user_env, "MLFLOW_TRACKING_URI": uri, "MLFLOW_RUN_ID": "abc", **variables}
    job.folder.write(job.folder.plan, job.plan._replace(user_env=user_env).to_json())


def test_our_credentials_go_to_our_own_server_alone(job, server, monkeypatch):
    uri, asked = server
    name_server(job, uri)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "canary")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    metrics.read_metrics(job.folder)
    metrics.read_latest(job.folder)
    assert asked
    assert set(asked) == {None}
    name_server(job, uri, MLFLOW_TRACKING_TOKEN="of the job")
    asked.clear()
    metrics.read_metrics(job.folder)
    assert set(asked) == {"Bearer of the job"}
    name_server(job, uri)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri + "/")
    asked.clear()
    metrics.read_metrics(job.folder)
    assert set(asked) == {"Bearer canary"}


def test_a_sweep_asks_with_what_its_trials_were_given(job, server, monkeypatch):
    uri, asked = server
    name_server(job, uri)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "canary")
    monkeypatch.setattr(tracking.rules, "trusts_plans", True)
    metrics.read_metrics(job.folder)
    assert set(asked) == {"Bearer canary"}


def test_where_nobody_else_is_to_be_asked_a_note_says_where_to_look(job, server, monkeypatch):
    uri, asked = server
    name_server(job, uri)
    monkeypatch.setattr(tracking.rules, "asks_others", False)
    assert metrics.read_metrics(job.folder).notes == (
        f"metrics are at {uri}, which is not asked from here; see there",
    )
    assert metrics.read_latest(job.folder) == ({}, 0)
    assert asked == []
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    metrics.read_metrics(job.folder)
    assert asked


# pipes and links


def replace_by_pipe(path):
    os.remove(path)
    os.mkfifo(path)


def replace_by_link(path):
    os.rename(path, path + ".elsewhere")
    os.symlink(path + ".elsewhere", path)


@pytest.mark.parametrize("replace", [replace_by_pipe, replace_by_link])
def test_a_pipe_or_a_link_for_a_file_of_ours_is_refused_at_once(job, replace):
    folder = job.folder
    folder.write(folder.job, "command: true\n")
    folder.write(folder.graph, json.dumps({}))
    for path in (folder.events, folder.plan, folder.job, folder.graph):
        replace(path)
    with pytest.raises(OSError, match=r"not a plain file|Too many levels"):
        list(folder.read_events())
    with pytest.raises(OSError, match=r"not a plain file|Too many levels"):
        Plan.read(folder.plan)
    with pytest.raises(DrumlineError, match="plan of job calm_drum cannot be read"):
        lookup.read_plan(folder)
    with pytest.raises(OSError, match=r"not a plain file|Too many levels"):
        read_spec_text(job.name)
    with pytest.raises(DrumlineError, match="cannot be read"):
        read_graph(folder)
    assert lookup.read_spec(folder) == {}
    assert read_events(folder) == ([], 0)
    assert not JobWatch(job.name, 0).look()


def test_other_jobs_are_listed_beside_one_with_a_pipe(job):
    other = MadeJob("busy_drum")
    replace_by_pipe(job.folder.events)
    table = JobTable()
    table.refresh(now=True)
    assert other.name in [one.name for one in table.overviews()]
    shutil.rmtree(job.folder.path)
