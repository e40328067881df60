"""Where a job's page is: in a studio that runs, else its run folder."""

import json

from cli_jobs import write_job
from studio_server import API, run_studio

from drumline import MLClient


def endpoint(cli, *arguments):
    return json.loads(cli("job", "show", *arguments, "-o", "json").out)["services"]["Studio"]["endpoint"]


def test_a_job_points_at_a_studio_while_one_runs(cli, tmp_path, drumline_home):
    write_job(tmp_path, "true", name="job")
    cli("workspace", "create", "-n", "vision")
    folder = f"file://{drumline_home}/jobs/job"
    said = cli("job", "create", "-f", "job.yml", "--stream")
    assert f"Web View: {folder}\n" in said.out
    cli("job", "create", "-f", "job.yml", "-w", "vision", "--stream")
    with run_studio() as studio:
        page = f"http://127.0.0.1:{studio.port}/jobs/job"
        assert endpoint(cli, "-n", "job") == page
        assert endpoint(cli, "-n", "job", "-w", "vision") == f"{page}?workspace=vision"
        assert MLClient().jobs.get("job").studio_url == page
        listed = json.loads(cli("job", "list", "-o", "json").out)
        assert [job["services"]["Studio"]["endpoint"] for job in listed] == [page]
        assert f"Web View: {page}\n" in cli("job", "stream", "-n", "job").out
        said = cli("job", "show", "-n", "job", "--web", "-o", "none")
        assert said.err.strip() == page, "no login where no terminal is"
        assert studio.ask(page.partition(str(studio.port))[2], headers={}).status == 401
    assert endpoint(cli, "-n", "job") == folder
    # The list keeps what it knows of a job that has ended, but not where its page was.
    listed = json.loads(cli("job", "list", "-o", "json").out)
    assert [job["services"]["Studio"]["endpoint"] for job in listed] == [folder]
    assert cli("job", "show", "-n", "job", "--web", "-o", "none").err.strip() == folder


def test_a_studio_of_a_workspace_shows_jobs_of_others_too(cli, tmp_path):
    cli("workspace", "create", "-n", "vision")
    write_job(tmp_path, "true", name="plain")
    cli("job", "create", "-f", "job.yml", "--stream")
    write_job(tmp_path, "true", name="seen")
    cli("job", "create", "-f", "job.yml", "-w", "vision", "--stream")
    with run_studio("-w", "vision") as studio:
        page = f"http://127.0.0.1:{studio.port}/jobs"
        assert endpoint(cli, "-n", "seen", "-w", "vision") == f"{page}/seen"
        assert endpoint(cli, "-n", "plain") == f"{page}/plain?workspace=-"
        assert studio.get("/jobs/plain?workspace=-")["row"]["name"] == "plain"
        assert studio.ask(f"{API}/jobs/plain").status == 404
