"""Jobs that azure-ai-ml made or loaded, as jobs of ours: what they say, and that they run."""

import json
from pathlib import Path
from typing import Any

import pytest

azure_ai_ml = pytest.importorskip(
    "azure.ai.ml", reason="azure-ai-ml (96 MB with its dependencies) is not installed"
)

from azure.ai.ml import Input, Output, PyTorchDistribution, automl, command, load_job  # noqa: E402
from azure.ai.ml.entities import Environment, JupyterLabJobService, UserIdentityConfiguration  # noqa: E402
from azure.ai.ml.parallel import RunFunction, parallel_run_function  # noqa: E402
from azure.ai.ml.sweep import BanditPolicy, Choice, LogUniform  # noqa: E402

import drumline  # noqa: E402
import drumline.entities  # noqa: E402
from drumline.exceptions import ValidationException  # noqa: E402
from drumline.spec.foreign import translate_object  # noqa: E402
from drumline.spec.jobs.job import to_dict  # noqa: E402
from drumline.spec.jobs.pipeline import fill_component  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

CONFORMANCE = Path(__file__).parents[2] / "conformance"
CASES = CONFORMANCE / "cases"
ACCEPTED = [name for name, good in json.loads((CONFORMANCE / "verdicts.json").read_text()).items() if good]
DIFFERENT = {
    "dup_keys.yml": "refused here",
    "env_file_ref.yml": "theirs drops the name of an environment within a job",
    "env_inline_named.yml": "theirs drops the name of an environment within a job",
    "services_rest_type.yml": "theirs drops a type of service that it does not know",
}
PIPELINES = [name for name in ACCEPTED if name.startswith("pipe_")]
OTHERS = [name for name in ACCEPTED if name not in (*PIPELINES, *DIFFERENT)]


def in_full(job):
    values = to_dict(job, absolute=True)
    if "compute" in values:  # theirs drops the scheme
        values["compute"] = values["compute"].removeprefix("azureml:")
    return values


@pytest.mark.parametrize("name", OTHERS)
def test_a_job_that_theirs_loads_is_the_job_that_ours_loads(name):
    assert in_full(translate_object(load_job(CASES / name))) == in_full(drumline.load_job(CASES / name))


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_that_theirs_loads_has_the_nodes_that_ours_loads(name):
    theirs, mine = translate_object(load_job(CASES / name)), drumline.load_job(CASES / name)
    assert nodes_of(theirs) == nodes_of(mine)
    theirs.jobs = mine.jobs = {}
    assert in_full(theirs) == in_full(mine)


def nodes_of(pipeline):
    """Each with its component filled in, as the driver runs it."""
    found = {}
    for name, node in pipeline.jobs.items():
        values = in_full(fill_component(node, lambda reference: pytest.fail(reference)))
        # A port that is bound to the pipeline's has its component's type there, and none here.
        outputs = {
            key: item if isinstance(item, str) else item.get("path")
            for key, item in values["outputs"].items()
        }
        found[name] = {**values, "outputs": outputs}
    return found


def made(run, **more):
    given = {
        "display_name": "d", "description": "text", "tags": {"a": "b"}, "properties": {"p": "q"},
        "experiment_name": "exp", "code": "./src", "compute": "cpu", "environment_variables": {"A": 1, "B": "x"},
        "command": "python train.py --x ${{inputs.x}} --d ${{inputs.data}} --o ${{outputs.o}}",
        "instance_count": 2, "shm_size": "3g", "docker_args": "--ipc=host", "timeout": 60, "job_tier": "spot",
        **more,
    }  # fmt: skip
    return run(**given)


def of_theirs():
    return made(
        command,
        environment=Environment(name="e", version="2", image="ubuntu"),
        inputs={
            "x": 1,
            "f": 0.5,
            "b": True,
            "s": "t",
            "data": Input(type="uri_folder", path="./src", mode="direct"),
        },
        outputs={"o": Output(type="uri_folder"), "m": Output(type="uri_file", name="n", version="3")},
        distribution=PyTorchDistribution(process_count_per_instance=2),
        services={"lab": JupyterLabJobService(nodes="all")},
        identity=UserIdentityConfiguration(),
    )


def of_ours():
    return made(
        drumline.command,
        environment=drumline.entities.Environment(name="e", version="2", image="ubuntu"),
        inputs={
            "x": 1, "f": 0.5, "b": True, "s": "t",
            "data": drumline.Input(type="uri_folder", path="./src", mode="direct"),
        },
        outputs={"o": drumline.Output(type="uri_folder"), "m": drumline.Output(type="uri_file", name="n", version="3")},
        distribution=drumline.PyTorchDistribution(process_count_per_instance=2),
        services={"lab": drumline.entities.JupyterLabJobService(nodes="all")},
        identity=drumline.entities.UserIdentityConfiguration(),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import os; print(os.environ['RANK'], os.listdir('.'))")
    return tmp_path


def test_a_command_says_what_the_same_call_of_ours_says(folder):
    assert to_dict(translate_object(of_theirs()), absolute=True) == to_dict(of_ours(), absolute=True)


def test_a_command_keeps_the_folder_in_which_it_was_made(folder, monkeypatch):
    job = translate_object(of_theirs())
    monkeypatch.chdir("/")
    assert to_dict(job, absolute=True)["code"] == str(folder / "src")


def test_what_was_set_after_the_call_counts(folder):
    job = of_theirs()
    job.inputs.x = 5
    job.inputs.data.path = "./other"
    job.outputs.o.mode = "upload"
    job.distribution.process_count_per_instance = 3
    job.resources.instance_count = 4
    job.environment_variables["A"] = "2"
    job.command = "true"
    found = translate_object(job)
    assert (found.inputs.x, found.inputs.data.path, found.outputs.o.mode) == (5, "./other", "upload")
    assert (found.distribution.process_count_per_instance, found.resources.instance_count) == (3, 4)
    assert (found.environment_variables["A"], found.command) == ("2", "true")


def test_a_sweep_says_what_the_same_call_of_ours_says(folder):
    def swept(run, choice, log_uniform, policy):
        job = run(
            code="./src", command="python train.py ${{inputs.lr}} ${{inputs.n}} ${{inputs.x}}", environment="e@latest",
            inputs={"lr": 0.1, "n": 1, "x": "y"}, compute="cpu", instance_count=2, environment_variables={"A": "b"},
            distribution={"type": "pytorch", "process_count_per_instance": 2},
        )  # fmt: skip
        sweep = job(lr=log_uniform(-3, -1), n=choice([1, 2])).sweep(
            primary_metric="accuracy", goal="maximize", sampling_algorithm="random", max_total_trials=4,
            max_concurrent_trials=2, timeout=600, trial_timeout=120,
            early_termination_policy=policy(slack_factor=0.1, evaluation_interval=2),
        )  # fmt: skip
        sweep.experiment_name = "exp"
        return sweep

    theirs = to_dict(translate_object(swept(command, Choice, LogUniform, BanditPolicy)), absolute=True)
    from drumline.sweep import BanditPolicy as Policy
    from drumline.sweep import Choice as Choices
    from drumline.sweep import LogUniform as Log

    mine = to_dict(swept(drumline.command, Choices, Log, Policy), absolute=True)
    theirs["early_termination"].setdefault("slack_amount", 0)  # theirs says None
    assert theirs == mine


def test_a_job_of_another_kind_is_refused_by_its_type(folder):
    job = automl.classification(
        training_data=Input(type="mltable", path="./src"), target_column_name="y", primary_metric="accuracy"
    )
    with pytest.raises(ValidationException, match="ClassificationJob is not supported"):
        drumline.MLClient().jobs.create_or_update(job)


def test_a_parallel_node_is_refused_by_its_type(folder):
    job = parallel_run_function(
        inputs={"data": Input(type="mltable", path="./src")},
        input_data="${{inputs.data}}",
        task=RunFunction(code="./src", entry_script="train.py", environment="azureml:e:1"),
    )
    with pytest.raises(ValidationException, match="Parallel is not supported"):
        translate_object(job)


def test_a_command_runs(folder, drumline_home):
    client = drumline.MLClient(credential=object(), subscription_id="s", resource_group_name="g")
    job = command(
        code="./src",
        command="python train.py && echo $RANK of $WORLD_SIZE, ${{inputs.x}} > ${{outputs.o}}/$RANK",
        environment="AzureML-acpt-pytorch-2.2-cuda12.1@latest",
        inputs={"x": 7},
        outputs={"o": Output(type="uri_folder")},
        distribution=PyTorchDistribution(process_count_per_instance=2),
        instance_count=2,
    )
    returned = client.create_or_update(job, tags={"a": "b"})
    client.jobs.stream(returned.name)
    assert isinstance(returned, drumline.Command)
    assert (returned.tags, job.tags, job.name) == ({"a": "b"}, {}, None)
    written = drumline_home / "jobs" / returned.name / "named-outputs" / "o"
    assert sorted(file.read_text() for file in written.iterdir()) == [
        f"{rank} of 4, 7\n" for rank in range(4)
    ]


LOGGING = """
import glob, os, sys, time
from urllib.parse import unquote
root = unquote(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://"))
(folder,) = glob.glob(f"{glob.escape(root)}/*/{os.environ['MLFLOW_RUN_ID']}/metrics")
with open(f"{folder}/loss", "a") as file:
    file.write(f"{int(time.time() * 1000)} {sys.argv[1]} 0\\n")
"""
"""As MLflow's file store has it."""


def test_a_sweep_runs(folder):
    (folder / "src" / "log.py").write_text(LOGGING)
    job = command(
        code="./src", command="python log.py ${{inputs.x}}", environment="e@latest", inputs={"x": 1}
    )
    sweep = job(x=Choice([0.5, 0.25])).sweep(
        primary_metric="loss", goal="minimize", sampling_algorithm="grid"
    )
    sweep.set_limits(max_total_trials=2, max_concurrent_trials=2)
    client = drumline.MLClient()
    returned = client.jobs.create_or_update(sweep)
    client.jobs.stream(returned.name)
    found: Any = client.jobs.get(returned.name)
    assert (found.status, found.best_trial["metric"], len(found.trials)) == ("Completed", 0.25, 2)


def test_a_job_can_be_checked_without_being_submitted(folder):
    job = command(command="echo ${{inputs.nothing}}", environment="e@latest", code="./missing")
    result = drumline.MLClient().jobs.validate(job)
    assert not result.passed
    assert "code" in result.error_messages
