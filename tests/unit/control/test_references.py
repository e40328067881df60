"""What a job refers to, as paths of this machine. Jobs here are run folders without processes."""

import json
import os
import sys
import time

import pytest

from drumline import Input, Output, command, load_job
from drumline.contract import events as e
from drumline.contract.errors import PlanError
from drumline.contract.folder import RunFolder, workspace
from drumline.control.assets import asset_verbs
from drumline.control.assets.references import resolve_references
from drumline.control.submission import planning
from drumline.entities import Environment
from drumline.spec.registered.assets import Data, Model


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("1")
    return tmp_path / "data"


def registered(kind, **fields):
    return asset_verbs.create(kind(**fields))


def job_with(path, **fields):
    return command(command="true", inputs={"x": Input(path=path, **fields)})


def input_of(path, **fields):
    made = resolve_references(job_with(path, **fields))
    return made.job.inputs["x"].path, made.job.inputs["x"].type


def refusal(job):
    with pytest.raises(PlanError) as caught:
        planning.plan(job)
    return str(caught.value)


def ran(name, status="Completed", parent="", outputs=None, root=None):
    """The run folder of a job that has, or has not, ended."""
    folder = RunFolder.for_job(name, root)
    folder.create()
    variables = {f"AZURE_ML_OUTPUT_{output}": path for output, path in (outputs or {}).items()}
    folder.write(folder.plan, json.dumps({"user_env": variables}))
    folder.write(folder.job, json.dumps({"parent_job_name": parent}))
    folder.begin(e.JobSubmitted(time.time(), "ann"))
    if status:
        folder.append(e.JobEnded(time.time(), status, 0, "because"))
    return folder


# assets


@pytest.mark.parametrize("path", ["azureml:d:1", "azureml:d@latest", "azureml:azureml:d:1"])
def test_an_asset_is_its_path_and_its_type(data, path):
    registered(Data, name="d", path=str(data / "a.csv"), type="uri_file")
    assert input_of(path) == (str(data / "a.csv"), "uri_file")


def test_a_label_is_the_version_that_it_was_on(data):
    for _ in range(2):
        registered(Data, name="d", path=str(data))
    found = resolve_references(job_with("azureml:d@latest")).found
    assert found == {"inputs.x.asset": "azureml:d:2", "inputs.x.path": str(data)}


def test_the_job_itself_stays_as_it_was_written(data):
    registered(Data, name="d", path=str(data))
    job = job_with("azureml:d:1")
    assert resolve_references(job).job is not job
    assert job.inputs["x"].path == "azureml:d:1"


def test_a_model_is_found_by_the_inputs_type(data):
    registered(Model, name="m", path=str(data), type="mlflow_model")
    assert input_of("azureml:m:1", type="mlflow_model") == (str(data), "mlflow_model")
    assert "there is a model of that name; give the input its type" in hint_of(job_with("azureml:m:1"))


def hint_of(job):
    with pytest.raises(PlanError) as caught:
        resolve_references(job)
    return caught.value.hint


def test_an_asset_may_be_in_a_datastore_or_another_asset(data, drumline_home):
    inside = drumline_home / "datastores" / "workspaceblobstore" / "set"
    inside.mkdir(parents=True)
    registered(Data, name="d", path="azureml://datastores/workspaceblobstore/paths/set")
    registered(Data, name="e", path="azureml:d@latest")
    assert input_of("azureml:e:1")[0] == str(inside)


def test_assets_that_lead_in_a_circle_are_told(data):
    registered(Data, name="d", path="azureml:e:1")
    registered(Data, name="e", path="azureml:d:1")
    assert "leads in a circle" in refusal(job_with("azureml:e:1"))


def test_a_workspace_has_the_assets_of_the_base_home_too(data):
    registered(Data, name="d", path=str(data))
    with workspace("w"):
        assert input_of("azureml:d:1")[0] == str(data)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("azureml:nothing:1", r"inputs.x: there is no data 'nothing'"),
        ("azureml:d:7", r"data 'd' has no version '7'"),
        ("azureml:d", r"'azureml:d' names no version"),
        ("azureml://registries/azureml/data/d/versions/1", r"in a registry of Azure's, which is not asked"),
        ("azureml:../../etc:1", r"unknown form of reference"),
        ("azureml://datastores/nowhere/paths/x", r"there is no datastore 'nowhere'"),
        ("azureml://datastores/workspaceblobstore/paths/../../x", r"leads out of the datastore"),
        ("azureml://jobs/none/outputs/o", r"there is no job 'none'"),
        ("azureml://jobs/../outputs/o", r"there is no job '\.\.'"),
    ],
)
def test_what_leads_nowhere_is_refused_with_the_inputs_name(data, path, message):
    registered(Data, name="d", path=str(data))
    with pytest.raises(PlanError, match=message) as caught:
        resolve_references(job_with(path))
    assert [problem.path for problem in caught.value.problems] == ["inputs.x.path"]


def test_every_mistake_is_told_at_once_with_its_line(tmp_path):
    path = tmp_path / "job.yml"
    path.write_text("command: 'true'\ninputs:\n  a: {path: azureml:n}\n  b: {path: 'azureml:o:1'}\n")
    with pytest.raises(PlanError) as caught:
        planning.plan(load_job(path))
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (3, "inputs.a.path"),
        (4, "inputs.b.path"),
    ]


def test_a_type_that_the_file_says_and_the_asset_has_not_is_refused(data, tmp_path):
    registered(Data, name="d", path=str(data / "a.csv"), type="uri_file")
    path = tmp_path / "job.yml"
    path.write_text("command: 'true'\ninputs: {x: {path: 'azureml:d:1', type: uri_folder}}\n")
    assert "is of type uri_file, and the input of type uri_folder" in refusal(load_job(path))
    path.write_text("command: 'true'\ninputs: {x: {path: 'azureml:d:1'}}\n")
    assert resolve_references(load_job(path)).job.inputs["x"].type == "uri_file"


def test_a_text_that_looks_like_a_reference_is_a_text(data):
    job = command(command="echo ${{inputs.x}}", inputs={"x": "azureml:d:1"})
    assert planning.plan(job).argv[-1] == "echo azureml:d:1"


# outputs of jobs


def test_the_output_of_a_job_is_where_that_job_wrote_it(tmp_path):
    ran("first", outputs={"o": str(tmp_path / "elsewhere")})
    assert input_of("azureml://jobs/first/outputs/o")[0] == str(tmp_path / "elsewhere")
    assert input_of("azureml://jobs/first/outputs/o/paths/")[0] == str(tmp_path / "elsewhere")
    assert input_of("azureml://jobs/first/outputs/o/paths/a/b/")[0] == str(tmp_path / "elsewhere/a/b")
    assert input_of("azureml://jobs/first/outputs/default")[0] == RunFolder.for_job("first").outputs


def test_azures_own_asset_of_an_output_is_that_output(tmp_path):
    ran("calm_drum", outputs={"data_o": str(tmp_path)})
    assert input_of("azureml:azureml_calm_drum_output_data_data_o:1")[0] == str(tmp_path)


def test_the_output_of_a_job_that_has_not_ended_is_refused(drumline_home):
    folder = ran("first", status="", outputs={"o": "/o"})
    folder.write(folder.supervisor, json.dumps(_me()))
    with pytest.raises(PlanError, match="job first is NotStarted; its output is whole when it has Completed"):
        resolve_references(job_with("azureml://jobs/first/outputs/o"))


def _me():
    from drumline.contract import process_identity

    return process_identity.identify_process(os.getpid())


def test_the_output_of_a_failed_job_is_used_with_a_warning():
    ran("first", status="Failed", outputs={"o": "/o"})
    made = resolve_references(job_with("azureml://jobs/first/outputs/o"))
    assert made.job.inputs["x"].path == "/o"
    assert made.warnings == ("inputs.x: job first is Failed, and what it wrote may not be whole",)


def test_an_output_that_the_job_has_not_is_told_with_those_it_has():
    ran("first", outputs={"o": "/o"})
    assert hint_of(job_with("azureml://jobs/first/outputs/p")) == "it has artifacts, default, o"


@pytest.mark.parametrize("inside", ["../x", "a/../../x", "/../../x"])
def test_a_path_out_of_an_output_is_refused(inside):
    ran("first", outputs={"o": "/data/o"})
    with pytest.raises(PlanError, match="leads out of the output 'o' of job first"):
        resolve_references(job_with(f"azureml://jobs/first/outputs/o/paths/{inside}"))


def pipeline_with(link):
    """A pipeline whose output ``o`` its driver has linked."""
    folder = ran("whole")
    os.unlink(folder.plan)
    os.mkdir(folder.named_outputs)
    os.symlink(link, os.path.join(folder.named_outputs, "o"))
    return folder


def test_the_output_of_a_pipeline_is_that_of_its_step(tmp_path):
    inside = os.path.join(ran("step").named_outputs, "o")
    os.makedirs(inside)
    pipeline_with(inside)
    assert input_of("azureml://jobs/whole/outputs/o")[0] == inside


def test_a_step_may_have_written_elsewhere_and_nobody_else(tmp_path):
    pipeline_with(tmp_path / "o")
    job = job_with("azureml://jobs/whole/outputs/o")
    with pytest.raises(PlanError, match="no job of it wrote"):
        resolve_references(job)
    ran("step", parent="whole", outputs={"o": str(tmp_path / "o")})
    RunFolder.for_job("whole").append(e.StepStarted(time.time(), "s", "step"))
    assert resolve_references(job).job.inputs["x"].path == str(tmp_path / "o")


def test_a_job_on_another_compute_is_followed_to_its_folder(tmp_path):
    made = ran("far", outputs={"o": "/o"}, root=str(tmp_path / "shared"))
    os.makedirs(os.path.dirname(RunFolder.for_job("far").path))
    os.symlink(made.path, RunFolder.for_job("far").path)
    assert input_of("azureml://jobs/far/outputs/o")[0] == "/o"


def test_files_of_a_run_are_what_it_logged_else_what_it_kept(drumline_home):
    folder = ran("first")
    place = drumline_home / "mlruns" / "0" / "first" / "artifacts"
    (place / "model").mkdir(parents=True)
    variables = {
        "MLFLOW_TRACKING_URI": f"file://{drumline_home}/mlruns".replace(" ", "%20"),
        "MLFLOW_RUN_ID": "first",
        "MLFLOW_EXPERIMENT_NAME": "Default",
    }
    folder.write(folder.plan, json.dumps({"user_env": variables}))
    assert input_of("runs:/first/model")[0] == str(place / "model")
    assert input_of("runs:/first/outputs/model")[0] == os.path.join(folder.outputs, "model")
    with pytest.raises(PlanError, match="leads out of the run of job first"):
        resolve_references(job_with("runs:/first/../../../x"))


def test_the_output_artifacts_is_what_a_run_logged_and_kept(drumline_home):
    folder = ran("first")
    os.makedirs(os.path.join(folder.outputs, "kept"))
    place = drumline_home / "mlruns" / "0" / "first" / "artifacts"
    (place / "model").mkdir(parents=True)
    variables = {"MLFLOW_TRACKING_URI": f"file://{drumline_home}/mlruns", "MLFLOW_RUN_ID": "first"}
    folder.write(folder.plan, json.dumps({"user_env": {**variables, "MLFLOW_EXPERIMENT_NAME": "Default"}}))
    inside = "azureml://jobs/first/outputs/artifacts/paths/"
    assert input_of(inside + "model/")[0] == str(place / "model")
    assert input_of(inside + "outputs/kept")[0] == os.path.join(folder.outputs, "kept")
    for _ in range(2):
        whole = input_of("azureml://jobs/first/outputs/artifacts")[0]
    assert {name: os.path.realpath(os.path.join(whole, name)) for name in os.listdir(whole)} == {
        "model": str(place / "model"),
        "outputs": folder.outputs,
        "user_logs": folder.user_logs,
        "system_logs": folder.system_logs,
    }


def test_an_output_that_a_job_itself_calls_artifacts_is_that(tmp_path):
    ran("own", outputs={"artifacts": str(tmp_path / "o")})
    assert input_of("azureml://jobs/own/outputs/artifacts")[0] == str(tmp_path / "o")
    assert input_of("azureml://jobs/own/outputs/artifacts/paths/a")[0] == str(tmp_path / "o" / "a")


# outputs of the job


def test_an_output_in_a_datastore_is_a_folder_there(drumline_home):
    path = "azureml://datastores/workspaceblobstore/paths/sets/${{name}}/${{output_name}}"
    planned = planning.plan(
        command(name="j", command="echo ${{outputs.o}}", outputs={"o": Output(path=path)})
    )
    place = str(drumline_home / "datastores/workspaceblobstore/sets/j/o")
    assert planned.folders == (place,)
    assert planned.resolved == {"outputs.o.path": place}
    assert planned.warnings == ()


def test_nothing_is_written_to_an_asset_or_to_another_jobs_output():
    for path in ("azureml:d:1", "azureml://jobs/first/outputs/other"):
        job = command(command="true", outputs={"o": Output(path=path)})
        assert f"outputs.o: nothing can be written to '{path}'" in refusal(job)


def test_a_named_output_is_registered_in_the_jobs_home(drumline_home):
    outputs = {"o": Output(name="d"), "m": Output(name="m", version="3", type="mlflow_model")}
    with workspace("w"):
        planned = planning.plan(command(name="j", command="true", outputs=outputs))
    home = str(drumline_home / "workspaces" / "w")
    assert [tuple(one)[:5] for one in planned.registers] == [
        ("o", "data", "d", "", "uri_folder"),
        ("m", "model", "m", "3", "mlflow_model"),
    ]
    assert {one.home for one in planned.registers} == {home}
    assert planned.registers[0].path == f"{home}/jobs/j/named-outputs/o"


def test_a_version_that_is_there_is_refused_before_anything_runs(data):
    registered(Data, name="d", version="3", path=str(data))
    job = command(command="true", outputs={"o": Output(name="d", version="3")})
    assert "outputs.o.version: there is version '3' of data 'd' already" in refusal(job)


# environments


def test_the_python_of_an_environment_is_the_one_behind_its_shim(tmp_path, monkeypatch):
    """pyenv's finds a version by the folder that it is started in, and the ranks' is another."""
    real = tmp_path / "versions" / "3.x" / "bin" / "python"
    shim, pyenv = tmp_path / "shims" / "python", tmp_path / "pyenv"
    for path in (real, shim):
        path.parent.mkdir(parents=True)
    real.symlink_to(os.path.realpath(sys.executable))
    shim.write_text(f'#!/bin/bash\nexec "{pyenv}" exec "${{0##*/}}" "$@"\n')
    pyenv.write_text(f'#!/bin/bash\nexec "{tmp_path}/versions/$(cat .python-version)/bin/$2" "${{@:3}}"\n')
    for path in (shim, pyenv):
        path.chmod(0o755)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".python-version").write_text("3.x\n")
    monkeypatch.chdir(tmp_path / "here")
    environment = Environment(name="e", version="1", python=str(shim))
    assert resolve_references(command(command="true", environment=environment)).interpreter == str(real)
    registered(Environment, name="e", version="1", python=str(shim))
    monkeypatch.chdir(tmp_path)
    assert resolve_references(command(command="true", environment="azureml:e:1")).interpreter == str(real)
    with pytest.raises(PlanError, match=f"environment: the shim {shim} finds no Python"):
        resolve_references(command(command="true", environment=environment))


@pytest.fixture
def python(tmp_path):
    """An interpreter of its own folder."""
    (tmp_path / "bin").mkdir()
    path = tmp_path / "bin" / "python"
    path.symlink_to(sys.executable)
    return str(path)


@pytest.mark.parametrize(
    "reference",
    [
        "azureml:curated:1",
        "azureml:curated@latest",
        "curated@latest",
        "curated:1",
        "azureml:curated",
        "azureml://registries/azureml/environments/curated/versions/1",
        "azureml://registries/azureml/environments/curated/labels/latest",
    ],
)
def test_an_environment_with_a_python_is_what_the_ranks_run_with(python, reference):
    registered(Environment, name="curated", python=python)
    planned = planning.plan(command(command="true", environment=reference))
    assert planned.user_env["PATH"].split(":")[0] == os.path.dirname(python)
    assert planned.resolved == {"environment": "azureml:curated:1", "environment.python": python}
    assert planned.warnings == ()


def test_an_environment_of_an_image_is_not_built(monkeypatch):
    monkeypatch.setenv("DRUMLINE_CONTAINER", "none")
    registered(Environment, name="e", image="ubuntu")
    (warning,) = planning.plan(command(command="true", environment="azureml:e:1")).warnings
    assert warning.startswith("environment.image: ubuntu is not used")


def test_an_environment_that_is_not_registered_is_told_with_the_line_that_does_it():
    (warning,) = planning.plan(command(command="true", environment="AzureML-acpt@latest")).warnings
    assert warning.startswith("environment: 'AzureML-acpt@latest' is not registered; the command runs with ")
    assert warning.endswith("drumline environment create --name AzureML-acpt --python PATH")
    (warning,) = planning.plan(command(command="true", environment="azureml:AzureML-acpt:12")).warnings
    assert "--name AzureML-acpt --version 12 --python PATH" in warning


def test_a_python_that_is_gone_is_refused_here_and_left_to_the_nodes_elsewhere(python):
    registered(Environment, name="e", python=python)
    os.unlink(python)
    job = command(command="true", environment="azureml:e:1")
    assert f"environment: its python, {python}, is not there" in refusal(job)
    assert resolve_references(job, is_local=False).interpreter == python


def test_a_job_that_refers_to_nothing_is_not_looked_at(monkeypatch):
    monkeypatch.setitem(sys.modules, "drumline.control.assets.references", None)
    planning.plan(command(command="true", inputs={"n": 1}, outputs={"o": None}))
