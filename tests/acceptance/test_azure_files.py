"""Files and scripts as people have them for Azure, each small."""

import json

import pytest

from drumline import Input, MLClient, Output, command
from drumline.contract import extras
from drumline.contract.uris import parse_uri
from drumline.dsl import pipeline
from drumline.exceptions import SpecError, UsageError
from drumline.spec.jobs.job import to_dict
from drumline.staging.stores import open_store
from drumline.sweep import Choice

CONDA = "dependencies: [{pip: [drumline-has-no-such-package]}]\n"
INLINE = {
    "type": "pipeline",
    "jobs": {
        "s": {
            "type": "command",
            "component": {"command": "cat a.txt", "code": "src", "environment": "file:./env/environment.yml"},
        }
    },
}
PARALLEL = """
type: pipeline
jobs:
  s:
    type: parallel
    inputs: {d: {type: uri_folder, path: ./src}}
    outputs: {o: {type: uri_file}}
    input_data: ${{inputs.d}}
    task:
      type: run_function
      code: ./src
      entry_script: entry.py
      append_row_to: ${{outputs.o}}
      environment: {image: "python:3.11", conda_file: ./env/conda.yml}
"""
OUTER = "type: pipeline\njobs: {outer: {type: pipeline, component: azureml:inline@latest}}\n"


def write_file(folder, **fields):
    path = folder / "file.yml"
    path.write_text(json.dumps(fields))
    return path


@pytest.fixture
def files(tmp_path, monkeypatch):
    """In a folder below that where the commands are run; environments are those at hand."""
    monkeypatch.setenv("DRUMLINE_ENVIRONMENT", "current")
    below = tmp_path / "below"
    for name, text in {
        "src/a.txt": "found\n",
        "src/entry.py": "def run(items):\n    return [str(item) for item in items]\n",
        "env/conda.yml": CONDA,
        "env/environment.yml": "image: python:3.11\nconda_file: conda.yml\n",
    }.items():
        (below / name).parent.mkdir(parents=True, exist_ok=True)
        (below / name).write_text(text)
    return below


def test_paths_of_a_step_are_relative_to_its_file(cli, files, tmp_path):
    inline = write_file(files, **INLINE)
    done = cli("job", "create", "-f", inline, "--stream", cwd=tmp_path)
    assert (done.rc, "[s] found" in done.out) == (0, True), done.out + done.err
    (files / "parallel.yml").write_text(PARALLEL)
    done = cli("job", "create", "-f", files / "parallel.yml", "--stream", cwd=tmp_path)
    assert done.rc == 0, done.out + done.err


def test_an_environment_to_be_built_is_found_from_everywhere(cli, files, tmp_path, monkeypatch):
    monkeypatch.delenv("DRUMLINE_ENVIRONMENT")
    (files / "parallel.yml").write_text(PARALLEL)
    assert cli("job", "validate", "-f", files / "parallel.yml", cwd=tmp_path).rc == 0


def test_code_of_a_step_within_a_registered_pipeline(cli, files, tmp_path):
    inline = write_file(files, **INLINE, name="inline")
    assert cli("component", "create", "-f", inline, cwd=tmp_path).rc == 0
    (tmp_path / "outer.yml").write_text(OUTER)
    done = cli("job", "create", "-f", "outer.yml", "--stream", cwd=tmp_path)
    assert (done.rc, "found" in done.out) == (0, True), done.out + done.err


def test_several_bindings_in_one_text(cli, tmp_path):
    text = "${{parent.inputs.a}}-${{parent.inputs.b}}/${{parent.inputs.n}}"
    step = {
        "type": "command",
        "component": {"command": 'echo "got ${{inputs.m}}"', "inputs": {"m": {"type": "string"}}},
        "inputs": {"m": text},
    }
    job = write_file(tmp_path, type="pipeline", inputs={"a": "x", "b": "y", "n": 3}, jobs={"s": step})
    assert "got x-y/3" in cli("job", "create", "-f", job, "--stream").out


def test_an_output_that_is_set_after_it_was_taken(drumline_home):
    make = command(command="echo hi > ${{outputs.m}}/f", outputs={"m": Output(type="uri_folder")})

    @pipeline()
    def whole():
        made = make()
        kept = made.outputs.m
        made.outputs.m = Output(type="uri_folder", path="azureml://datastores/workspaceblobstore/paths/x/")
        return {"o": kept}

    job = whole()
    assert job.outputs.o.path == "azureml://datastores/workspaceblobstore/paths/x/"


def test_tags_of_any_type(drumline_home):
    job = command(command="true", tags={"ort": False, "n": 3, "x": None}, properties={"n": 1})
    job.tags["later"] = 0.5
    job.tags.update({"more": 1})
    client = MLClient()
    stored = client.jobs.create_or_update(job)
    assert stored.tags == {"ort": "False", "n": "3", "later": "0.5", "more": "1", "x": None}
    with pytest.raises(SpecError, match="tags cannot be of type 'list'"):
        command(command="true", tags=["a"])
    client.jobs.stream(stored.name)
    assert client.jobs.begin_delete(stored.name).result() is None
    with pytest.raises(UsageError, match="a job's name is text, and this is None"):
        client.jobs.stream(None)


@pytest.mark.parametrize(
    ("mode", "sent"), [("mount", "ro_mount"), ("eval_mount", "ro_mount"), ("eval_download", "download")]
)
def test_modes_that_python_takes(drumline_home, mode, sent):
    job = command(command="true", inputs={"x": Input(type="uri_folder", path="/tmp", mode=mode)})
    assert MLClient().jobs.validate(job).passed
    assert to_dict(job)["inputs"]["x"]["mode"] == sent


def test_a_validation_of_a_sweep_stores_nothing(tmp_path, drumline_home):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("")
    trial = command(command="python a.py ${{inputs.x}}", code=str(tmp_path / "src"), inputs={"x": 1})

    def search():
        made = trial(x=Choice([1, 2])).sweep(sampling_algorithm="grid", primary_metric="m", goal="Minimize")
        made.set_limits(max_total_trials=2)
        return made

    @pipeline
    def within():
        search()

    client = MLClient()
    for job in (search(), within()):
        assert client.jobs.validate(job).passed
        assert not list(drumline_home.rglob("a.py"))


def test_a_validation_knows_the_names_that_are_taken():
    client = MLClient()
    made = client.jobs.create_or_update(command(name="own", command="true"))
    assert client.jobs.validate(made).passed
    again = client.jobs.validate(command(name="own", command="true"))
    assert "there is a job 'own' already" in again.error_messages["*"]


def test_validate_says_what_create_refuses(drumline_home):
    client = MLClient()
    assert client.jobs.validate(command(command="true")).passed
    missing = command(command="true", inputs={"a": Input(type="uri_file", path="/not/there")})
    assert "there is no /not/there" in client.jobs.validate(missing).error_messages["inputs.a.path"]
    with pytest.raises(SpecError, match="there is no /not/there"):
        client.jobs.validate(missing, raise_on_failure=True)
    sweep = command(command="true", inputs={"a": Choice([1, 2])}).sweep(
        sampling_algorithm="random", primary_metric="loss", goal="minimize"
    )
    sweep.trial = "azureml:not_there:1"
    sweep.set_limits(max_total_trials=2)
    assert "there is no component 'not_there'" in client.jobs.validate(sweep).error_messages["*"]


def test_a_public_blob_needs_no_package_of_azures(monkeypatch):
    """It is read as any file of a web server."""
    address = "https://lab.blob.core.windows.net/digits/iris.csv"
    assert type(open_store(parse_uri(address))).__name__ == "ObjectStore"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert extras.missing_for(address) == ("obstore", "azure")
    assert extras.missing_for(address, reads_file=True) is None
    assert type(open_store(parse_uri(address))).__name__ == "WebStore"
    for other in ("wasbs://digits@lab.blob.core.windows.net/iris.csv", "s3://digits/iris.csv"):
        assert extras.missing_for(other, reads_file=True) is not None
