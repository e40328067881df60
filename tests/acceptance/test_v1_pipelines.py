"""Pipelines of v1, with nothing but their import lines changed."""

from typing import Any

import pytest

from drumline.exceptions import UsageError, ValidationException
from drumline.v1 import (
    DataPath,
    DataPathComputeBinding,
    Dataset,
    DatasetConsumptionConfig,
    Datastore,
    Experiment,
    OutputFileDatasetConfig,
    Pipeline,
    PipelineData,
    PipelineParameter,
    PythonScriptStep,
    StepSequence,
    Workspace,
)

COPY = """
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--read", type=pathlib.Path)
parser.add_argument("--write", type=pathlib.Path)
parser.add_argument("--times", type=int, default=1)
args = parser.parse_args()
os.makedirs(args.write, exist_ok=True)
text = (args.read / "numbers.txt").read_text() * args.times
(args.write / "numbers.txt").write_text(text)
print("wrote", text)
"""


@pytest.fixture
def ws(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "copy_data.py").write_text(COPY)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "numbers.txt").write_text("7")
    monkeypatch.chdir(tmp_path)
    return Workspace.get("lab")


def text_of(run):
    return run.get_details_with_logs()["logFiles"]["user_logs/std_log.txt"]


def test_data_goes_from_step_to_step_and_what_has_run_is_reused(ws):
    store = ws.get_default_datastore()
    store.upload("data", target_path="numbers")
    numbers = Dataset.File.from_files((store, "numbers")).as_named_input("numbers").as_mount()
    first = PipelineData("prepared data", datastore=store)
    second = OutputFileDatasetConfig()
    times = PipelineParameter(name="times", default_value=2)
    prepare = PythonScriptStep(
        name="Prepare data",
        script_name="copy_data.py",
        source_directory="src",
        arguments=["--read", numbers, "--write", first, "--times", times],
        inputs=[numbers],
        outputs=[first],
        compute_target="local",
    )
    train = PythonScriptStep(
        name="Train",
        script_name="copy_data.py",
        source_directory="src",
        arguments=["--read", first, "--write", second],
        inputs=[first],
        allow_reuse=False,
    )
    report = PythonScriptStep(
        name="Report",
        script_name="copy_data.py",
        source_directory="src",
        arguments=["--read", second.as_input("trained"), "--write", "outputs"],
    )
    pipeline = Pipeline(workspace=ws, steps=[report, train, prepare])
    assert pipeline.validate() == []
    run = pipeline.submit("numbers", pipeline_parameters={"times": 3})
    run.wait_for_completion(show_output=True)
    assert run.get_status() == "Completed"
    assert [one.display_name for one in run.get_steps()] == ["Prepare data", "Train", "Report"]
    (step,) = run.find_step_run("Report")
    assert text_of(step) == "wrote 777\n"
    again: Any = Experiment(ws, "numbers").submit(pipeline, pipeline_parameters={"times": 3})
    again.wait_for_completion()
    # What the third step reads has not changed.
    assert [one.display_name for one in again.get_steps()] == ["Train"]


def test_data_that_is_a_parameter_and_a_file_of_a_datastore(ws, tmp_path):
    """The steps' data is a file, which the datastore knows; what reads it last is all that the pipeline names."""
    (tmp_path / "src" / "show.py").write_text("import sys; print(open(sys.argv[1]).read())")
    store = ws.get_default_datastore()
    store.upload_files(["data/numbers.txt"], target_path="one")
    (tmp_path / "data" / "numbers.txt").write_text("8")
    store.upload_files(["data/numbers.txt"], target_path="two")
    path = PipelineParameter("path", DataPath(datastore=store, path_on_datastore="one/numbers.txt"))
    sets = [Dataset.File.from_files(store.path(f"{name}/numbers.txt")) for name in ("one", "two")]
    given, late = PipelineParameter("given", sets[0]), PipelineParameter("late", sets[0])
    steps = [
        PythonScriptStep("show.py", "path", [(path, DataPathComputeBinding())], source_directory="src"),
        PythonScriptStep(
            "show.py", "set", [DatasetConsumptionConfig("set", given, "mount")], source_directory="src"
        ),
        PythonScriptStep(
            "show.py", "got", [DatasetConsumptionConfig("got", late).as_download()], source_directory="src"
        ),
    ]
    other = {"path": DataPath(datastore=store, path_on_datastore="two/numbers.txt"), "late": sets[1]}
    run = Pipeline(ws, steps).submit("e", pipeline_parameters=other)
    run.wait_for_completion()
    assert [text_of(*run.find_step_run(name)) for name in ("path", "set", "got")] == ["8\n", "7\n", "8\n"]
    (got,) = run.find_step_run("got")
    assert ws._client.jobs.get(got.id).inputs["got"].mode == "download"


def test_a_datastore_of_azures_is_registered_and_other_kinds_are_refused(ws):
    made = Datastore.register_azure_blob_container(ws, "theirs", "digits", "account", account_key="a2V5")
    assert (made.account_name, made.container_name, ws.datastores["theirs"].name) == (
        "account",
        "digits",
        "theirs",
    )
    assert made.path("a")._type == "uri_folder"
    assert ws._client.datastores.get("theirs").credentials is not None
    with pytest.raises(UsageError, match="containers of blobs or folders"):
        Datastore.register_azure_data_lake_gen2(ws, "lake")
    ws.set_default_datastore("workspaceblobstore")
    for use, words in (
        (lambda: ws.set_default_datastore("theirs"), "the default datastore is"),
        (ws.get_default_keyvault, "Drumline has no key vault"),
    ):
        with pytest.raises(UsageError, match=words):
            use()


def test_a_step_runs_after_one_whose_data_it_does_not_read(ws, tmp_path):
    def step(name, *arguments):
        return PythonScriptStep(
            script_name="say.py", name=name, source_directory="src", arguments=list(arguments)
        )

    (tmp_path / "src" / "say.py").write_text("import sys; open(sys.argv[1], 'a').write(sys.argv[2])")
    steps = [
        step("a", tmp_path / "order", "1"),
        step("b", tmp_path / "order", "2"),
        step("c", tmp_path / "order", "3"),
    ]
    run = Pipeline(ws, StepSequence(steps)).submit("e")
    assert run.wait_for_completion()["status"] == "Completed"
    assert (tmp_path / "order").read_text() == "123"


def test_what_cannot_be_is_told_before_anything_runs(ws):
    nowhere = PipelineData("nowhere")
    reads = PythonScriptStep(
        "copy_data.py", "r", ["--read", nowhere], source_directory="src", inputs=[nowhere]
    )
    with pytest.raises(ValidationException, match="no step has 'nowhere' among its outputs"):
        Pipeline(ws, [reads])
    with pytest.raises(ValidationException, match="object is not supported as a step"):
        Pipeline(ws, [object()])
    fine = Pipeline(ws, [PythonScriptStep("copy_data.py", source_directory="src")])
    with pytest.raises(ValidationException, match="the pipeline has no parameter 'x'"):
        fine.submit("e", pipeline_parameters={"x": 1})
    with pytest.raises(UsageError, match="publishing pipelines"):
        fine.publish("name")
