"""Pipelines of azure-ai-ml as pipelines of ours, and its components within pipelines of ours."""

from typing import Any

import pytest

azure_ai_ml = pytest.importorskip(
    "azure.ai.ml", reason="azure-ai-ml (96 MB with its dependencies) is not installed"
)

from azure.ai.ml import command  # noqa: E402
from azure.ai.ml.dsl._group_decorator import group  # noqa: E402
from azure.ai.ml.entities import JobResourceConfiguration, ResourceConfiguration  # noqa: E402
from azure.ai.ml.sweep import Uniform  # noqa: E402

import drumline  # noqa: E402
import drumline.dsl  # noqa: E402
import drumline.entities  # noqa: E402
from drumline.exceptions import ValidationException  # noqa: E402
from drumline.spec.foreign import translate_object  # noqa: E402
from drumline.spec.jobs.job import to_dict  # noqa: E402
from drumline.spec.jobs.validate import validate  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

TRAIN = """
name: train
version: 3
type: command
inputs:
  lr: {type: number, default: 0.1}
  data: {type: uri_folder}
  note: {type: string, optional: true}
outputs:
  model: {type: uri_folder}
code: ./src
environment: azureml:e@latest
command: >-
  sh train.sh ${{inputs.data}} ${{outputs.model}} ${{inputs.lr}} $[[${{inputs.note}}]]
distribution: {type: pytorch, process_count_per_instance: 1}
"""
SCRIPT = 'cat "$1"/* | sed "s/$/ $3 $4 of $WORLD_SIZE/" > "$2/$RANK"'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"train.yml": TRAIN, "src/train.sh": SCRIPT, "data/a": "start\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def built(package, train, collect, resources):
    """The same script for both packages."""

    @package.dsl.pipeline(description="two levels", default_compute="local")
    def inner(data, lr: float = 0.2):
        first = train(data=data, lr=lr)
        first.outputs.model.mode = "upload"
        return {"model": first.outputs.model}

    @package.dsl.pipeline(default_compute="local", continue_on_step_failure=True, tags={"a": "b"})
    def outer(data, lr=0.3, nothing=None):
        start = train(data=data, lr=lr, note=nothing)
        start.resources = resources(instance_count=2)
        start.environment_variables = {"A": "b"}
        below = inner(data=start.outputs.model)
        last = collect(made=below.outputs.model, word="end")
        last.name = "renamed"
        last.compute = "serverless"
        return {"all": last.outputs.all, "model": below.outputs.model}

    made = outer(data=package.Input(type="uri_folder", path="./data"))
    made.settings.force_rerun = True
    made.outputs["all"].mode = "upload"
    return made


def collecting(package, run):
    return run(
        name="collect",
        command="cat ${{inputs.made}}/* > ${{outputs.all}}; echo ${{inputs.word}} >> ${{outputs.all}}",
        environment="e@latest",
        inputs={"made": package.Input(type="uri_folder"), "word": "x"},
        outputs={"all": package.Output(type="uri_file")},
    )


def test_a_pipeline_says_what_the_same_script_of_ours_says(folder):
    theirs = built(
        azure_ai_ml,
        azure_ai_ml.load_component("train.yml"),
        collecting(azure_ai_ml, command),
        JobResourceConfiguration,
    )
    mine = built(
        drumline,
        drumline.load_component("train.yml"),
        collecting(drumline, drumline.command),
        drumline.entities.ResourceConfiguration,
    )
    got, expected = to_dict(translate_object(theirs), absolute=True), to_dict(mine, absolute=True)
    assert validate(translate_object(theirs)).passed
    assert list(got["jobs"]) == list(expected["jobs"]) == ["start", "below", "renamed"]
    del expected["jobs"]["start"]["inputs"]["note"]  # bound to a parameter that got nothing; here it is kept
    # Theirs has a component where ours has the inner pipeline itself.
    below, same = got["jobs"].pop("below"), expected["jobs"].pop("below")
    assert below["component"]["jobs"] == same["jobs"]
    assert below["inputs"]["data"] == same["inputs"]["data"] == "${{parent.jobs.start.outputs.model}}"
    assert got == expected


def test_a_pipeline_runs(folder, drumline_home):
    theirs = built(
        azure_ai_ml,
        azure_ai_ml.load_component("train.yml"),
        collecting(azure_ai_ml, command),
        JobResourceConfiguration,
    )
    client = drumline.MLClient()
    returned = client.jobs.create_or_update(theirs, experiment_name="of-theirs")
    client.jobs.stream(returned.name)
    assert client.jobs.get(returned.name).status == "Completed"
    (written,) = (drumline_home / "jobs").glob("*renamed*/named-outputs/all*")
    file = next(path for path in (written, *written.rglob("*")) if path.is_file())
    assert file.read_text().splitlines() == ["start 0.3  of 2 0.2  of 1"] * 2 + ["end"]


def test_a_function_under_pipeline_is_a_component(folder):
    train = azure_ai_ml.load_component("train.yml")

    @azure_ai_ml.dsl.pipeline
    def twice(data: azure_ai_ml.Input(type="uri_folder"), lr: float = 0.2):
        first = train(data=data, lr=lr)
        return {"model": train(data=first.outputs.model).outputs.model}

    client = drumline.MLClient()
    client.components.create_or_update(twice)
    found: Any = client.components.get("twice", label="latest")
    assert (found.inputs["lr"].default, found.outputs["model"].type) == (0.2, "uri_folder")
    assert [node.type for node in found.jobs.values()] == ["command", "command"]


def test_a_node_that_was_swept_is_a_sweep(folder):
    train = azure_ai_ml.load_component("train.yml")

    @azure_ai_ml.dsl.pipeline
    def tuned(data):
        trial = train(data=data, lr=Uniform(0, 1))
        best = trial.sweep(
            primary_metric="acc", goal="maximize", sampling_algorithm="random", max_total_trials=2
        )
        train(data=best.outputs.model)

    job = translate_object(tuned(data=azure_ai_ml.Input(type="uri_folder", path="./data")))
    best, last = job.jobs
    assert (job.jobs[best].type, job.jobs[last].type) == ("sweep", "command")
    assert "${{search_space.lr}}" in to_dict(job)["jobs"][best]["trial"]["command"]
    assert str(job.jobs[last].inputs["data"]) == f"${{{{parent.jobs.{best}.outputs.model}}}}"


def test_their_component_within_our_pipeline_is_a_node_of_ours(folder):
    train = azure_ai_ml.load_component("train.yml")
    ours = drumline.load_component("train.yml")

    @drumline.dsl.pipeline
    def mixed(data, lr=0.5):
        first = train(data=data, lr=lr)
        first.resources = ResourceConfiguration(instance_count=2)
        second = ours(data=first.outputs.model)
        third = train(data=second.outputs.model)
        third.distribution.process_count_per_instance = 2
        return {"model": third.outputs.model}

    job = mixed(data=drumline.Input(type="uri_folder", path="./data"))
    assert all(isinstance(node, drumline.Command) for node in job.jobs.values())
    assert str(job.jobs["third"].inputs["data"]) == "${{parent.jobs.second.outputs.model}}"
    assert str(job.jobs["first"].inputs["lr"]) == "${{parent.inputs.lr}}"
    assert job.jobs["first"].resources.instance_count == 2
    assert validate(job).passed
    # Outside it, a call is theirs again.
    assert type(train(data=azure_ai_ml.Input(path="./data"))).__module__.startswith("azure.ai.ml")


def test_their_pipeline_within_ours_is_refused(folder):
    train = azure_ai_ml.load_component("train.yml")

    @azure_ai_ml.dsl.pipeline
    def theirs(data):
        train(data=data)

    @drumline.dsl.pipeline
    def ours(data):
        theirs(data="x")

    with pytest.raises(
        ValidationException, match=r"azure\.ai\.ml's @pipeline cannot be called under drumline's"
    ):
        ours(data=drumline.Input(path="./data"))


def test_our_component_within_theirs_is_refused(folder):
    train = drumline.load_component("train.yml")

    @azure_ai_ml.dsl.pipeline
    def theirs():
        train(data="x")

    with pytest.raises(ValidationException, match=r"cannot be called under azure\.ai\.ml's @pipeline"):
        theirs()


def test_their_command_within_ours_is_refused(folder):
    job = collecting(azure_ai_ml, command)

    @drumline.dsl.pipeline
    def ours():
        job(word="a")

    with pytest.raises(ValidationException, match=r"azure\.ai\.ml's command\(\) cannot be called"):
        ours()


def test_a_group_of_parameters_is_refused_by_its_name(folder):
    @group
    class Numbers:
        lr: float = 0.1

    train = azure_ai_ml.load_component("train.yml")

    @azure_ai_ml.dsl.pipeline
    def grouped(numbers: Numbers):
        train(lr=numbers.lr, data=azure_ai_ml.Input(path="./data"))

    with pytest.raises(ValidationException, match=r"inputs\.numbers: groups of parameters are not supported"):
        translate_object(grouped(numbers=Numbers(lr=0.2)))  # type: ignore[call-arg]  # of the decorator


def test_an_expression_over_inputs_is_refused_by_its_place(folder):
    train = azure_ai_ml.load_component("train.yml")

    @azure_ai_ml.dsl.pipeline
    def computed(lr: float = 0.1):
        first = train(data=azure_ai_ml.Input(path="./data"))
        first.inputs.lr._data = lr + 1

    with pytest.raises(ValidationException, match=r"jobs\.first: inputs\.lr: an expression"):
        translate_object(computed())
