"""The studio's server: it comes, answers, and goes."""

import contextlib
import http.client
import json
import os
import re
import signal
import ssl
import sys
from pathlib import Path

import pytest
import yaml
from certificates import make_certificate
from cli_jobs import two_by_two, write_job
from studio_server import API, run_studio
from waiting import wait_until

from drumline.contract import events as e
from drumline.contract.errors import UsageError
from drumline.contract.folder import RunFolder, private_folder
from drumline.control.settings import studios
from drumline.studio import serve

MOST_KB = 60_000
"""Resident, with ten pages open."""


@pytest.fixture
def failed(cli, tmp_path):
    """A job whose rank 3 fails."""
    write_job(
        tmp_path,
        "python -c \"import os, sys; print('rank', os.environ['RANK']); sys.exit(os.environ['RANK'] == '3')\"",
        **two_by_two(experiment_name="digits", tags={"team": "vision"}, display_name="A failure"),
    )
    assert cli("job", "create", "-f", "job.yml", "-n", "bad", "--stream").rc == 1


def test_a_list_and_a_job(cli, failed, tmp_path):
    write_job(tmp_path, "true", name="good")
    cli("job", "create", "-f", "job.yml", "--stream")
    with run_studio() as studio:
        told = studio.get("/jobs")
        assert [job["name"] for job in told["jobs"]] == ["good", "bad"]
        assert told["counts"] == {"Completed": 1, "Failed": 1}
        assert (told["total"], told["matched"], told["pending"]) == (2, 2, 0)
        assert told["sentence"] == "nothing runs; 2 ended (1 failed)"
        bad = told["jobs"][1]
        assert "rank 3 on node 1 failed first" in bad["sentence"]
        assert (bad["display_name"], bad["nodes"], bad["processes"]) == ("A failure", 2, 4)

        def found(query):
            return [job["name"] for job in studio.get(f"/jobs?{query}")["jobs"]]

        assert found("status=failed") == ["bad"]
        assert found("q=FAILURE") == ["bad"]
        assert found("tag=team=vision") == ["bad"]
        assert found("tag=team=other") == []
        assert found("experiment=dig*") == ["bad"]
        assert found("sort=created") == ["bad", "good"]
        assert found("offset=1&limit=1") == ["bad"]
        assert found("archived=1") == []
        assert studio.get("/jobs?status=failed")["counts"] == {"Completed": 1, "Failed": 1}

        job = studio.get("/jobs/bad")
        assert job["row"] == {**bad, "metric": None}
        assert job["verdict"]["rank"] == 3
        assert job["exit_code"] == 1
        assert {"rank": 3, "text": "rank 3"} in job["last_lines"]
        assert job["attempts"][0]["kind"] == "failed"
        assert job["commands"]["logs"] == "drumline job logs -n bad"
        events = studio.get("/jobs/bad/events")
        assert events["events"][0]["text"].startswith("submitted by ")
        assert events["events"][-1]["kind"] == "JobEnded"
        later = studio.get(f"/jobs/bad/events?after={events['events'][-2]['seq']}")
        assert later["events"] == events["events"][-1:]
        assert studio.get(f"/jobs/bad/events?after={events['next']}")["events"] == []
        assert yaml.safe_load(studio.get("/jobs/bad/spec")["yaml"])["display_name"] == "A failure"
        assert len(studio.get("/jobs/bad/plan")["plan"]["nodes"]) == 2


def test_a_job_that_comes_and_ends_is_in_the_next_list(cli, tmp_path):
    with run_studio() as studio:
        assert studio.get("/jobs")["sentence"] == "no jobs yet"
        write_job(tmp_path, "true", name="job")
        cli("job", "create", "-f", "job.yml", "--stream")
        jobs = wait_until(lambda: studio.get("/jobs")["jobs"], 10.0)
        assert jobs[0]["status"] == "Completed"
        cli("job", "archive", "-n", "job")
        wait_until(lambda: not studio.get("/jobs")["jobs"], 10.0)
        assert studio.get("/jobs?archived=all")["jobs"][0]["archived"]


WRONG_QUESTIONS = (
    ("/jobs?status=Filed", 400, "did you mean 'Failed'?"),
    ("/jobs?sort=height", 400, "no order 'height'"),
    ("/jobs?limit=5000", 400, "limit must be 0 to 1000"),
    ("/jobs?limit=x", 400, "limit must be a whole number"),
    ("/jobs?since=tomorrow", 400, "is not a time"),
    ("/jobs?workspace=none", 404, "there is no workspace 'none'"),
    ("/jobs?workspace=../x", 400, "cannot be a workspace's name"),
    ("/jobs/missing", 404, "there is no job 'missing'"),
    ("/jobs/..", 404, ""),
    ("/jobs/%2e%2e%2fstudio", 404, ""),
    ("/nothing", 404, "there is no /api/v1/nothing"),
)


def test_a_wrong_question_gets_one_sentence():
    with run_studio() as studio:
        for path, status, says in WRONG_QUESTIONS:
            answer = studio.ask(API + path)
            assert answer.status == status, f"{path}: {answer.data!r}"
            error = answer.json["error"]
            assert says in f"{error['message']} {error['hint']}", path
            assert "Traceback" not in error["message"], path


def test_a_workspace_has_its_own_list(cli, tmp_path):
    write_job(tmp_path, "true", name="job")
    cli("workspace", "create", "-n", "vision")
    cli("job", "create", "-f", "job.yml", "-w", "vision", "--stream")
    with run_studio() as studio:
        assert studio.get("/jobs")["jobs"] == []
        assert studio.get("/me")["workspaces"] == ["vision"]
        assert [job["name"] for job in studio.get("/jobs?workspace=vision")["jobs"]] == ["job"]
        commands = studio.get("/jobs/job?workspace=vision")["commands"]
        assert commands["show"] == "drumline job show -n job -w vision"
    with run_studio("-w", "vision") as studio:
        assert [job["name"] for job in studio.get("/jobs")["jobs"]] == ["job"]


def test_it_may_end_in_any_way():
    """And the next one starts after each of them."""
    for end in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        with run_studio() as studio:
            assert studio.get("/me")["can_write"]
            studio.process.send_signal(end)
            wait_until(lambda process=studio.process: process.poll() is not None, 20.0)
            assert studios.find_running() is None
            assert studio.record.exists() == (end == signal.SIGKILL)


def test_a_second_one_leads_to_the_first(cli):
    with run_studio() as studio:
        for port in ((), ("--port", studio.port)):
            said = cli("studio", "--no-browser", *port)
            assert f"http://127.0.0.1:{studio.port}" in said.out
            assert "runs already" in said.err
            assert studio.token not in said.out + said.err
            assert "once=" not in said.out + said.err, "a login is for a terminal, not for a log"


def test_the_browser_is_given_a_file_and_no_secret(cli, tmp_path, monkeypatch):
    browser = tmp_path / "browser"
    browser.write_text(
        f"#!/bin/sh\ncp \"$1\" '{tmp_path}/page.part'\nmv '{tmp_path}/page.part' '{tmp_path}/page'\n"
    )
    browser.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":9")
    monkeypatch.setenv("BROWSER", str(browser))
    with run_studio() as studio:
        cli("studio")
        page = wait_until(lambda: (tmp_path / "page").exists() and (tmp_path / "page").read_text(), 20.0)
        path = (
            page.partition(f"url=http://127.0.0.1:{studio.port}")[2].partition('"')[0].replace("&amp;", "&")
        )
        assert studio.ask(path, headers={}).headers["Set-Cookie"]
        left = list(Path(os.environ["DRUMLINE_HOME"], "studio").glob("open-*.html"))
        assert [file.stat().st_mode & 0o777 for file in left] == [0o600]


def test_without_its_packages_it_says_which_command_installs_them(monkeypatch):
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else sys)
    with pytest.raises(UsageError, match="the studio needs uvicorn") as caught:
        serve.serve(serve.Wish())
    assert "studio]" in caught.value.hint


def test_it_stays_small_with_many_jobs_and_ten_pages():
    make_jobs(2000)
    with run_studio() as studio, contextlib.ExitStack() as pages:
        wait_until(lambda: not studio.get("/jobs")["pending"], 60.0)
        for _ in range(10):
            connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=60)
            pages.enter_context(contextlib.closing(connection))
            connection.request("GET", f"{API}/stream?jobs=job_1", headers=studio.own_headers)
            assert connection.getresponse().status == 200
        for query in ("", "?spark=1", "?q=job_1&sort=name", "?limit=1000"):
            assert studio.get(f"/jobs{query}")["jobs"]
        status = Path(f"/proc/{studio.process.pid}/status").read_text()
        assert int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) < MOST_KB


def make_jobs(count):
    """Jobs that have ended, as their run folders show them; nothing has run."""
    private_folder(f"{os.environ['DRUMLINE_HOME']}/jobs")
    for number in range(count):
        folder = RunFolder.for_job(f"job_{number}")
        folder.create()
        folder.write(folder.job, f"experiment_name: exp-{number % 7}\ncommand: 'true'\n")
        folder.begin(e.JobSubmitted(1000.0 + number, "me"))
        folder.append(
            e.JobEnded(2000.0 + number, "Failed", 1, "rank 3 failed first: ValueError: loss is nan")
        )


def test_it_serves_https(tmp_path):
    certificate, key = make_certificate(tmp_path)
    with run_studio("--certfile", certificate, "--keyfile", key) as studio:
        assert json.loads(studio.record.read_text())["address"] == f"https://127.0.0.1:{studio.port}"
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", studio.port, timeout=60, context=context)
        with contextlib.closing(connection):
            connection.request("GET", studios.make_login(studio.token))
            answer = connection.getresponse()
            cookie, _ = answer.headers["Set-Cookie"], answer.read()
            connection.request("GET", f"{API}/me", headers={"Cookie": cookie.partition(";")[0]})
            assert connection.getresponse().status == 200
        assert "; Secure" in cookie
