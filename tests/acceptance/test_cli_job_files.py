"""Where a job file comes from, what ``--set`` changes in it, and in which formats results are printed."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from cli_jobs import job_names, one_rank, two_by_two, write_job

from drumline.control.facts import description

DATA_JOB = {
    "command": 'cat "${{inputs.data}}"',
    "inputs": {"data": {"type": "uri_file", "path": "data/in.txt"}},
    "distribution": {"type": "pytorch", "process_count_per_instance": 1},
}


def create_from_stdin(spec, cwd, file):
    argv = [sys.executable, "-m", "drumline", "job", "create", "-f", file, "--stream"]
    return subprocess.run(argv, cwd=cwd, input=json.dumps(spec), text=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("file", ["-", "/dev/stdin"])
def test_paths_of_a_job_on_stdin_are_those_of_the_current_folder(tmp_path, file):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("from the current folder\n")
    done = create_from_stdin(DATA_JOB, tmp_path, file)
    assert done.returncode == 0, done.stderr
    assert "from the current folder" in done.stdout


def test_paths_of_a_job_file_are_those_of_its_folder(cli, tmp_path):
    (tmp_path / "there" / "data").mkdir(parents=True)
    (tmp_path / "there" / "data" / "in.txt").write_text("from the file's folder\n")
    (tmp_path / "there" / "job.yml").write_text(json.dumps(DATA_JOB))
    (tmp_path / "here").mkdir()
    done = cli("job", "create", "-f", "../there/job.yml", "--stream", cwd=tmp_path / "here")
    assert "from the file's folder" in done.out


def test_set_changes_the_file_before_it_is_checked(cli, tmp_path):
    job = write_job(
        tmp_path, "echo $WORLD_SIZE", name="x", resources={"instance_count": "many"}, **one_rank()
    )
    done = cli(
        "job", "create", "-f", job, "--stream",
        "--set", "resources.instance_count=2", "distribution.process_count_per_instance=2",
        "--set", "environment_variables.A=b=c", "--set", "name=set", "tags.t=1",
    )  # fmt: skip
    assert done.rc == 0, done.err
    assert "[3|node-1] 4" in done.out
    described = description.show_job("set")
    assert described["environment_variables"] == {"A": "b=c"}
    assert described["tags"] == {"t": "1"}


@pytest.mark.parametrize(
    "change", ["resources", "=1", "a..b=1", "resources.instance_count.x=1", 'tags={"a":']
)
def test_a_set_that_cannot_be_is_refused(cli, tmp_path, change, drumline_home):
    job = write_job(tmp_path, "true", **two_by_two())
    refused = cli("job", "create", "-f", job, "--set", change)
    assert refused.rc == 2
    assert refused.err.startswith("error: ")
    assert job_names(drumline_home) == []


def test_skip_validation_leaves_out_azures_checks_and_not_those_of_this_machine(cli, tmp_path):
    job = write_job(tmp_path, "echo ${{inputs.gone}}", **one_rank())
    assert "not an input" in cli("job", "create", "-f", job).err
    skipped = cli("job", "create", "-f", job, "--skip-validation")
    assert skipped.rc == 2
    assert "which the job does not have" in skipped.err


@pytest.fixture
def ended(cli, tmp_path):
    job = write_job(tmp_path, "true", display_name="naïve 🥁", tags={"b": "1"}, **one_rank())
    assert cli("job", "create", "-f", job, "-n", "ended", "--stream").rc == 0
    return "ended"


def test_json_jsonc_and_yaml_hold_the_same(cli, ended):
    texts = {form: cli("job", "show", ended, "-o", form).out for form in ("json", "jsonc", "yaml")}
    assert json.loads(texts["json"]) == json.loads(texts["jsonc"]) == yaml.safe_load(texts["yaml"])


def test_json_is_what_a_pipe_gets_when_nothing_is_said(cli, ended):
    assert cli("job", "show", ended).out == cli("job", "show", ended, "-o", "json").out


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("name", "ended\n"),
        ("[name, status]", "ended\nCompleted\n"),
        ("{n: name, s: status}", "ended\tCompleted\n"),
        ("ranks[].[rank, state]", "0\tdone\n"),
        ("tags", "1\n"),
        ("exit_code", "0\n"),
        ("display_name", "naïve 🥁\n"),
        ("nothing", ""),
    ],
)
def test_tsv_is_a_line_an_item_and_tabs_between_values(cli, ended, query, text):
    assert cli("job", "show", ended, "-o", "tsv", "--query", query).out == text


def test_none_prints_nothing(cli, ended):
    assert cli("job", "show", ended, "-o", "none").out == ""


def test_a_table_has_headings_and_a_line_a_job(cli, ended):
    heading, line = cli("job", "list", "-o", "table").out.splitlines()
    assert heading.split() == ["NAME", "AGE", "TIME", "SIZE", "COMPUTE", "METRIC", "STATUS"]
    assert (line.split()[0], line.split()[-1]) == ("ended", "Completed")


def test_a_query_of_a_list_is_of_the_list(cli, ended):
    assert json.loads(cli("job", "list", "--query", "[?status=='Completed'].name").out) == ["ended"]


def test_a_query_that_is_none_is_refused(cli, ended):
    refused = cli("job", "show", ended, "--query", "][")
    assert refused.rc == 2
    assert "--query: '][' is not a JMESPath expression" in refused.err


def test_text_that_the_terminals_alphabet_lacks_is_shown_and_no_error(cli, ended):
    shown = cli("job", "show", ended, "-o", "table", env={"PYTHONIOENCODING": "ascii"})
    assert shown.rc == 0, shown.err
    assert "na\\xefve" in shown.out


def test_warnings_go_to_stderr_and_nothing_else_to_stdout(cli, tmp_path):
    job = write_job(tmp_path, "true", compute="azureml:gpu-cluster", **one_rank())
    created = cli("job", "create", "-f", job, "-o", "none", "-n", "warned")
    assert created.out == ""
    assert "warning: compute: 'gpu-cluster' is not attached" in created.err
    assert cli("job", "stream", "warned").rc == 0


def test_plan_shows_the_ranks_and_creates_nothing(cli, tmp_path, drumline_home):
    job = write_job(tmp_path, "echo hi", **two_by_two())
    shown = cli("plan", "-f", job)
    assert shown.rc == 0
    assert shown.out.startswith("pytorch: 4 ranks on 2 nodes\n")
    planned = json.loads(cli("plan", "-f", job, "-o", "json").out)
    assert [len(node["ranks"]) for node in planned["nodes"]] == [2, 2]
    assert not os.path.exists(drumline_home)
