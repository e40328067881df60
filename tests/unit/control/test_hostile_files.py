"""What a job has put into its own run folder: pipes, links, and addresses of others."""

import json
import os
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from made_jobs import MadeJob

from drumline.contract.errors import DrumlineError, NotFoundError
from drumline.contract.plan import Plan
from drumline.control.access.job_files import look_at, open_file
from drumline.control.driver.children import read_graph
from drumline.control.facts import metrics
from drumline.control.facts.changes import JobWatch, read_events
from drumline.control.facts.job import show_spec
from drumline.control.facts.job_table import JobTable
from drumline.control.facts.ranks import describe_ranks
from drumline.control.jobs import lookup
from drumline.control.logs.follow import last_lines
from drumline.control.logs.line_queries import read_lines
from drumline.control.logs.log_history import History
from drumline.control.logs.printer import LogChoice
from drumline.control.logs.rank_log import RankLog, open_log
from drumline.control.logs.view import explain_link
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
        show_spec(job.name)
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


# files of others


@pytest.fixture
def others(tmp_path):
    """A folder that a viewer of jobs must not see."""
    folder = tmp_path / "others"
    folder.mkdir()
    for name in ("secret.txt", "std_log_process_0.txt"):
        (folder / name).write_text("canary\n")
    return folder


@pytest.mark.parametrize(
    "log", ["/etc/passwd", "../../x", "user_logs/../../x", "a/b/c", "x", "user_logs/", 7, ["a/b"]]
)
def test_a_plan_whose_logs_are_elsewhere_is_refused(job, log):
    plan = json.loads(job.plan.to_json())
    plan["nodes"][0]["ranks"][0]["log"] = log
    job.folder.write(job.folder.plan, json.dumps(plan))
    with pytest.raises(DrumlineError, match="is not in the run folder"):
        lookup.read_plan(job.folder)


@pytest.mark.parametrize("field", ["ranks", "cores"])
def test_a_plan_whose_lists_are_none_is_damaged(job, field):
    plan = json.loads(job.plan.to_json())
    plan["nodes"][0][field] = None
    job.folder.write(job.folder.plan, json.dumps(plan))
    with pytest.raises(DrumlineError, match="damaged"):
        lookup.read_plan(job.folder)


@pytest.mark.parametrize("attempt", ["", "attempt-0"])
def test_logs_in_a_folder_that_is_a_link_are_not_shown(job, others, attempt):
    task = job.plan.ranks[0]
    path = job.log(0, "fine\n", is_earlier=bool(attempt))
    os.close(open_log(str(path)))
    (others / path.name).write_text("canary\n")
    path.unlink()
    if attempt:
        path.parent.rmdir()
        path.parent.symlink_to(others)
    else:
        shutil.rmtree(job.folder.user_logs)
        os.symlink(others, job.folder.user_logs)
    assert path.read_text() == "canary\n"
    with pytest.raises(OSError, match="a link"):
        open_log(str(path))
    assert last_lines(job.folder, job.plan, task.rank, 3) == []
    assert read_lines(job.name).lines == []
    assert list(History(job.folder, job.plan, LogChoice(), 1).blocks()) == []
    followed = RankLog(os.path.join(job.folder.path, task.log), "0", 0)
    assert (followed.read(), list(followed.finish())) == (b"", [])
    assert explain_link(job.folder) == (
        "" if attempt else f"user_logs of job {job.name} is a link, which is not followed"
    )
    assert describe_ranks(job.name).ranks[0].last_line == ""


@pytest.mark.parametrize(
    ("area", "name"),
    [("outputs", "outputs"), ("outputs", "named-outputs"), ("logs", "user_logs"), ("inputs", "inputs")],
)
def test_an_area_that_is_a_link_is_not_shown(job, others, area, name):
    place = os.path.join(job.folder.path, name)
    shutil.rmtree(place, ignore_errors=True)
    os.symlink(others, place)
    assert "secret" not in json.dumps(look_at(job.name, area))
    for path in ("secret.txt", f"{name}/secret.txt"):
        with pytest.raises(NotFoundError), open_file(job.name, area, path):
            pass


def test_outputs_beside_the_code_are_shown_and_a_link_there_is_not(job, others):
    code = os.path.join(job.folder.path, "code")
    os.makedirs(os.path.join(code, "outputs"))
    with open(os.path.join(code, "outputs", "mine.txt"), "w") as file:
        file.write("mine")
    job.folder.write(job.folder.plan, job.plan._replace(cwd=code).to_json())
    assert look_at(job.name, "outputs", "mine.txt").text == "mine"
    shutil.rmtree(code)
    os.makedirs(others / "outputs")
    (others / "outputs" / "secret.txt").write_text("canary")
    os.symlink(others, code)
    with pytest.raises(NotFoundError):
        look_at(job.name, "outputs", "secret.txt")


def run_beside(job, cwd):
    """Have the plan say that the job runs in a folder of the user, as with ``drumline run``."""
    job.folder.write(job.folder.plan, job.plan._replace(cwd=str(cwd)).to_json())


def test_outputs_where_a_command_was_called_are_shown_and_through_a_link_they_are_not(job, tmp_path):
    real, linked = tmp_path / "real", tmp_path / "linked"
    (real / "outputs").mkdir(parents=True)
    (real / "outputs" / "mine.txt").write_text("mine")
    linked.symlink_to(real)
    run_beside(job, real)
    real.chmod(0o300)  # It can be passed, and not listed.
    try:
        assert look_at(job.name, "outputs", "mine.txt").text == "mine"
    finally:
        real.chmod(0o700)
    run_beside(job, linked)
    with pytest.raises(NotFoundError, match="it is a link"):
        look_at(job.name, "outputs", "mine.txt")


def test_outputs_that_are_a_link_are_not_shown_and_the_reason_is_given(job, others, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    run_beside(job, here)
    assert look_at(job.name, "outputs").why == ""
    (here / "outputs").symlink_to(others)
    told = look_at(job.name, "outputs")
    assert (told.kind, told.entries) == ("none", ())
    assert told.why == f"{here}/outputs is a link to '{others}', which is not followed here"
    run_beside(job, job.folder.code)
    os.mkdir(job.folder.code)
    os.symlink("../outputs", os.path.join(job.folder.code, "outputs"))
    assert look_at(job.name, "outputs").why == "", "Drumline's own link to the outputs"
    shutil.rmtree(job.folder.outputs)
    os.symlink(others, job.folder.outputs)
    assert look_at(job.name, "outputs").why == f"outputs is a link to '{others}', which is not followed here"


# files without an end


@pytest.mark.parametrize("name", ["events.jsonl", "plan.json", "graph.json", "job.yml"])
def test_a_file_without_an_end_is_not_read_to_its_end(job, name):
    path = os.path.join(job.folder.path, name)
    job.folder.write(job.folder.job, "command: true\n")
    with open(path, "ab") as file:
        # It takes no place on the disk.
        file.truncate(1 << 40)
    table = JobTable()
    table.refresh(now=True)
    assert [one.name for one in table.overviews()] == [job.name]
    known = list(job.folder.read_events())
    assert type(known[0]).__name__ == "JobSubmitted"
    assert job.folder.read_json(path) is None
    if name != "events.jsonl":
        reads = {
            "plan.json": lookup.read_plan,
            "graph.json": read_graph,
            "job.yml": lambda one: show_spec(one.name),
        }
        with pytest.raises((DrumlineError, OSError)):
            reads[name](job.folder)
    os.truncate(path, 0)
