import pytest

from drumline.compat.pipeline_steps import (
    CommandStep,
    EstimatorStep,
    MpiStep,
    PipelineData,
    PipelineParameter,
    PythonScriptStep,
    to_pipeline,
)
from drumline.compat.run_configuration.configuration import (
    DataPath,
    DataPathComputeBinding,
    RunConfiguration,
)
from drumline.compat.script_run_config import Estimator, ScriptRunConfig
from drumline.contract.errors import SpecError, UsageError


def test_a_step_of_mpi_is_a_distributed_job():
    job = to_pipeline(
        [MpiStep("T", "src", "train.py", ["--a", 1], "gpu", node_count=2, process_count_per_node=4)]
    )
    (node,) = job.jobs.values()
    assert (node.command, node.code, node.compute) == ("python train.py --a 1", "src", "gpu")
    assert (node.distribution.type, node.distribution.process_count_per_instance) == ("mpi", 4)
    assert node.resources.instance_count == 2


def test_steps_have_names_of_their_own_and_keep_theirs():
    job = to_pipeline(
        [PythonScriptStep("train.py"), PythonScriptStep("train.py"), PythonScriptStep("a.py", "My step")]
    )
    assert {name: node.display_name for name, node in job.jobs.items()} == {
        "train": "train.py",
        "train_2": "train.py",
        "my_step": "My step",
    }


def test_data_that_was_made_text_is_found_by_its_variable():
    data = PipelineData("made")
    job = to_pipeline(
        [
            PythonScriptStep("a.py", "a", [f"--out={data}/x"], outputs=[data]),
            PythonScriptStep("b.py", "b", [f"--in={data}"], inputs=[data]),
        ]
    )
    assert job.jobs["a"].command == 'python a.py "--out=${AZURE_ML_OUTPUT_made}/x"'
    assert job.jobs["b"].command == 'python b.py "--in=${AZURE_ML_INPUT_made}"'
    assert job.jobs["b"].inputs["made"].path == "${{parent.jobs.a.outputs.made}}"


def test_the_last_step_brings_those_whose_data_it_reads():
    first, second = PipelineData("first"), PipelineData("second")
    PythonScriptStep("other.py", outputs=[PipelineData("other")])
    PythonScriptStep("a.py", "a", [first], outputs=[first])
    PythonScriptStep("b.py", "b", [second], inputs=[first], outputs=[second])
    last = PythonScriptStep("c.py", "c", [first.as_download(), second])
    assert to_pipeline([last]).jobs.keys() == {"a", "b", "c"}
    assert not hasattr(first, "nothing")
    with pytest.raises(UsageError, match="parse_parquet_files: Drumline has no tables"):
        first.parse_parquet_files()


def test_a_parameter_can_be_data():
    given = PipelineParameter("data", DataPath("store", "a"))
    how = (given, DataPathComputeBinding(mode="download"))
    job = to_pipeline(
        [
            PythonScriptStep("a.py", "a", ["--data", given], inputs=[how]),
            PythonScriptStep("b.py", "b", [(given, DataPathComputeBinding())]),
        ]
    )
    assert (job.inputs["data"].path, job.inputs["data"].mode) == ("azureml://datastores/store/paths/a", None)
    assert job.jobs["a"].command == "python a.py --data ${{inputs.data}}"
    read = job.jobs["a"].inputs["data"]
    assert (read.path, read.mode) == ("${{parent.inputs.data}}", "download")
    assert job.jobs["b"].inputs["data"] == "${{parent.inputs.data}}"


def test_a_listed_step_writes_data_that_another_step_writes_too():
    data = PipelineData("made")
    small = PythonScriptStep("small.py", outputs=[data])
    PythonScriptStep("large.py", outputs=[data])
    use = PythonScriptStep("use.py", inputs=[data])
    assert to_pipeline([small, use]).jobs.keys() == {"small", "use"}


def test_what_is_no_data_is_neither_an_output_nor_has_a_mode():
    with pytest.raises(SpecError, match="outputs of step 'a' cannot have a str") as raised:
        PythonScriptStep("a.py", "a", outputs=["x"])
    assert "PipelineData(name)" in str(raised.value)
    how = (PipelineParameter("q", "text"), DataPathComputeBinding(mode="download"))
    with pytest.raises(SpecError, match="parameter 'q' is no data") as raised:
        to_pipeline([PythonScriptStep("a.py", arguments=[how])])
    assert "DataPath" in str(raised.value)


def test_a_file_and_another_name_of_an_output():
    data = PipelineData("model", output_name="weights", is_directory=False)
    job = to_pipeline([PythonScriptStep("a.py", "a", [data], outputs=[data])])
    assert job.jobs["a"].outputs["weights"].type == "uri_file"


def test_the_configuration_of_a_step_is_left_as_it_was():
    config = RunConfiguration(framework="PyTorch", communicator="Nccl")
    config.node_count = 2
    config.target = "gpu"
    step = PythonScriptStep(
        "a.py",
        runconfig=config,
        compute_target="cpu",
        params={"x": 1, "y": PipelineParameter("y", 2)},
        allow_reuse=False,
    )
    for _ in range(2):
        (node,) = to_pipeline([step]).jobs.values()
        assert (node.compute, node.resources.instance_count, node._is_deterministic) == ("cpu", 2, False)
        assert node.environment_variables == {
            "AML_PARAMETER_x": "1",
            "AML_PARAMETER_y": "${{parent.inputs.y}}",
        }
    assert config.target == "gpu"


def test_an_estimator_can_be_a_step():
    estimator = Estimator(
        "src", entry_script="train.py", compute_target="gpu", distributed_backend="mpi", node_count=2
    )
    data = PipelineData("made")
    step = EstimatorStep("E", estimator, ["--out", data], outputs=[data])
    (node,) = to_pipeline([step]).jobs.values()
    assert (node.command, node.compute) == ("python train.py --out ${{outputs.made}}", "gpu")
    assert (node.distribution.type, node.resources.instance_count) == ("mpi", 2)


@pytest.mark.parametrize(
    "step",
    [
        CommandStep(["echo", "a b"], "c", source_directory="."),
        CommandStep(name="c", runconfig=ScriptRunConfig(".", command=["echo", "a b"])),
    ],
)
def test_a_step_can_be_a_command(step):
    (node,) = to_pipeline([step]).jobs.values()
    assert (node.command, node.code) == ("echo 'a b'", ".")
