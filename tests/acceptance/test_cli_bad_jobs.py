"""Job files that cannot be: refused with every mistake and its place, and nothing is created."""

import re
import sys

import pytest
from cli_jobs import job_names, one_rank, write_job


@pytest.fixture
def refused(cli, tmp_path, drumline_home):
    """Create is given this file, and refuses it with exit code 2: what it says."""

    def create(text, *options):
        (tmp_path / "job.yml").write_text(text)
        result = cli("job", "create", "-f", "job.yml", *options)
        assert (result.rc, result.out) == (2, "")
        assert result.err.startswith("error: ")
        assert "Traceback" not in result.err
        assert "internal error" not in result.err
        assert job_names(drumline_home) == []
        return result.err

    return create


def test_every_mistake_is_told_at_once_with_its_place(refused):
    said = refused(
        "command: python train.py\n"
        "comand: x\n"
        "distribution:\n"
        "  type: pytorch\n"
        "  process_count_per_instance: many\n"
        "resources:\n"
        "  instance_cuont: 2\n"
        "limits:\n"
        "  timeout: soon\n"
    )
    for place in ("job.yml:2:1: ", "job.yml:5:31: ", "job.yml:7:3: ", "job.yml:9:12: "):
        assert place in said, said
    assert "did you mean 'instance_count'?" in said
    assert "(4 errors)" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "job.yml"),
        ("- a\n", "job.yml:1:1"),
        ("command: [\n", "job.yml:2:1"),
        ("command: a\ncommand: b\n", "already set on line 1"),
        ("type: nonsense\ncommand: a\n", "job.yml:1:7"),
        ("command: a\nname: a b\n", "name"),
        ("command: a\nname: a/b\n", "name"),
        ("command: a\nname: ../../a\n", "name"),
        ("command: a\nname: ..\n", "name"),
        ("command: ''\n", "command"),
        ("command: a\nresources: {instance_count: 0}\n", "resources.instance_count: 0 is not between 1 and"),
        ("command: a\nresources: {instance_count: -3}\n", "instance_count"),
        (
            "command: a\ndistribution: {type: mpii}\n",
            "job.yml:2:22: 'mpii' is not a type of distribution",
        ),
        (
            "command: a\ndistribution: {type: pytorch}\ndrumline: {mpi: environment}\n",
            "drumline.mpi: only distribution: {type: mpi}",
        ),
        ("command: a\ndrumline: {onse: true}\n", "did you mean 'once'?"),
        (
            "command: a\ndistribution: {type: pytorch}\ndrumline: {chief: true}\n",
            "drumline.chief: only distribution: {type: tensorflow}",
        ),
        (
            "command: a\ndistribution: {type: ray, address: 'h:1'}\n",
            "joining a Ray cluster that is there already",
        ),
        (
            'command: a\ndistribution: {type: ray, worker_node_additional_args: "\'"}\n',
            "no closing quotation",
        ),
        (
            "command: a\ndistribution: {type: tensorflow, worker_count: 1}\nresources: {instance_count: 2}\n",
            "leaves 1 of 2 nodes without a worker",
        ),
        ("command: a ${{inputs.x}}\n", "job.yml:1:10: "),
        ("command: a ${{outputs.x}}\n", "outputs.x"),
        ("command: a ${{inputs.x\n", "never closed"),
        ("command: a\ncode: not-there\n", "not-there"),
        ("command: a\ncode: https://host/x\n", "job.yml:2:7: code"),
        ("command: a\ninputs: {d: {path: not-there}}\n", "inputs.d: there is no "),
        ("command: a\ninputs: {d: {path: 'azureml:data:1'}}\n", "inputs.d"),
        ("command: a\ninputs: {d: {path: 'azureml://jobs/none/outputs/m'}}\n", "inputs.d"),
        ("command: a\ninputs: {d: {path: 'azureml://jobs/../outputs/m'}}\n", "inputs.d"),
        ("command: a\ninputs: {d: {type: uri_file, path: .}}\n", "is a folder, and its type is uri_file"),
        (
            "command: a\ninputs: {d: {type: uri_folder, path: job.yml}}\n",
            "is a file, and its type is uri_folder",
        ),
        ("command: a\nenvironment_variables: {'a b': c}\n", "a b"),
        ("command: a\nlimits: {timeout: 0}\n", "limits.timeout"),
    ],
)
def test_a_job_that_cannot_be_is_refused(refused, text, words):
    said = refused(text)
    assert words in said
    assert re.match(r"error: job\.yml:\d+:\d+: " if text else r"error: job\.yml: ", said), said


def test_a_mistake_on_the_command_line_has_no_place_in_the_file(refused):
    said = refused("command: a\nresources: {instance_count: 2}\n", "--set", "resources.instance_count=0")
    assert said.startswith("error: resources.instance_count: 0 is not between 1 and"), said


def test_the_name_of_the_command_line_has_no_place_in_the_file(refused):
    assert refused("command: a\nname: b\n", "-n", "a b").startswith("error: job.yml: name: 'a b' cannot be")


def test_two_inputs_that_are_missing_are_both_told(refused):
    said = refused("command: a\ninputs: {d: {path: one}, e: {path: two}}\n")
    assert "inputs.d" in said
    assert "inputs.e" in said


def test_binary_junk_is_no_traceback(cli, tmp_path):
    (tmp_path / "job.yml").write_bytes(bytes(range(256)) * 10)
    result = cli("job", "create", "-f", "job.yml")
    assert result.rc == 2
    assert "Traceback" not in result.err


@pytest.mark.parametrize(("file", "words"), [("none.yml", "no such file"), (".", "is a folder, not a file")])
def test_a_file_that_is_none_is_refused(cli, file, words):
    result = cli("job", "create", "-f", file)
    assert result.rc == 2
    assert words in result.err


def test_an_empty_code_folder_is_refused(refused, tmp_path):
    (tmp_path / "src").mkdir()
    assert "has no files to take" in refused("command: a\ncode: src\n")


def test_a_code_folder_that_cannot_be_read_is_refused(refused, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x").symlink_to("nowhere")
    refused("command: a\ncode: src\n")


def test_a_name_that_exists_is_refused_and_the_job_untouched(cli, tmp_path, drumline_home):
    job = write_job(tmp_path, "echo first", **one_rank())
    assert cli("job", "create", "-f", job, "-n", "taken", "--stream").rc == 0
    before = sorted(path.stat().st_mtime_ns for path in (drumline_home / "jobs" / "taken").rglob("*"))
    again = cli("job", "create", "-f", job, "-n", "taken")
    assert again.rc == 2
    assert "there is a job 'taken' already" in again.err
    assert before == sorted(path.stat().st_mtime_ns for path in (drumline_home / "jobs" / "taken").rglob("*"))


def test_an_output_that_is_not_defined_is_refused_by_validate_and_lint(cli, tmp_path):
    job = write_job(tmp_path, "a ${{outputs.x}}")
    for command in (("job", "validate"), ("lint",)):
        result = cli(*command, "-f", job)
        assert result.rc == 2
        assert "job.yml:1:13: command: " in result.err


def test_an_input_that_is_set_and_that_nothing_uses_is_refused(cli, tmp_path):
    job = write_job(tmp_path, "echo ${{inputs.lr}}", inputs={"lr": 1}, name="first")
    what = "inputs.lrr is set, but the job neither declares nor uses this input"
    assert cli("job", "create", "-f", job, "--stream").rc == 0
    for command in (("job", "create", "-f", job), ("job", "rerun", "first")):
        done = cli(*command, "--set", "inputs.lrr=2")
        assert (done.rc, what in done.err, "did you mean 'lr'?" in done.err) == (2, True, True), done.err
    assert cli("job", "list", "--query", "[].name").out.split() == ["[", '"first"', "]"]


def test_a_line_in_quotes_is_no_program(cli):
    done = cli("run", "--", "python train.py")
    assert done.rc == 2
    assert "there is no program 'python train.py'" in done.err
    assert "drumline run ... -- python train.py" in done.err


def test_a_program_of_another_machine_may_have_a_blank_in_its_name(cli):
    assert cli("compute", "attach", "--type", "local", "--name", "lab").rc == 0
    done = cli("run", "--compute", "lab", "--", "/opt/my tools/train")
    assert "could not start '/opt/my tools/train'" in done.err


@pytest.mark.parametrize(
    "words", [["job.yml"], ["-f", "job.yml"], ["--file=job.yml"], ["--set", "inputs.lr=1", "--", "ls"]]
)
def test_a_job_file_is_run_by_another_verb(cli, words):
    done = cli("run", *words)
    assert (done.rc, "drumline job create -f " in done.err) == (2, True), done.err


def test_lint_takes_a_file_with_and_without_its_option(cli, tmp_path):
    job = write_job(tmp_path, "ls")
    assert cli("lint", job).out == cli("lint", "-f", job, job).out == "nothing found\n"
    for words in ([], ["-f", job, "other.yml"]):
        done = cli("lint", *words)
        assert (done.rc, "file" in done.err, "hint: " in done.err) == (2, True, True), done.err


@pytest.mark.parametrize("has_other", [False, True])
def test_a_python_of_another_name_is_what_python_means(cli, tmp_path, has_other):
    (tmp_path / "python3").symlink_to(sys.executable)
    if has_other:
        (tmp_path / "python").symlink_to("/bin/false")
    done = cli(
        "run", "--python", tmp_path / "python3", "--", "python", "-c", "import sys; print(sys.executable)"
    )
    assert done.rc == 0, done.err
    assert done.out.strip() == str(tmp_path / "python3")


def test_a_compute_that_is_nearly_attached_is_refused(cli, tmp_path):
    assert cli("compute", "attach", "--type", "local", "--name", "lab").rc == 0
    done = cli("job", "create", "-f", write_job(tmp_path, "true", compute="azureml:labb"))
    assert done.rc == 2
    assert "there is no compute 'labb'" in done.err
    assert "did you mean 'lab'?" in done.err


def test_validate_refuses_what_azure_refuses(cli, tmp_path):
    job = write_job(tmp_path, "a ${{inputs.x}}")
    result = cli("job", "validate", "-f", job)
    assert (result.rc, result.out) == (2, "")
    assert "not an input" in result.err


def test_jobs_of_other_types_are_not_supported(refused):
    assert "not supported" in refused("type: automl\ntask: classification\n")


def test_a_component_is_no_job(refused):
    text = "$schema: https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json\nname: c\ncommand: ls\n"
    said = refused(text)
    assert "this is a component, not a job" in said
    assert "drumline component create" in said
