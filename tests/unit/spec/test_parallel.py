"""Parallel jobs and components: what they become, and what is refused."""

import json
from typing import Any

import pytest

from drumline import Input, load_component, load_job
from drumline.contract.errors import PlanError, SpecError
from drumline.dsl import pipeline
from drumline.entities import Parallel, ParallelComponent
from drumline.parallel import RunFunction, parallel_run_function
from drumline.plan.pipelines import build_graph
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.pipeline import fill_component
from drumline.spec.paths import resolve

TASK = {"type": "run_function", "entry_script": "score.py"}


def job(**fields):
    fields.setdefault("inputs", {"x": Input(path="data"), "n": 3})
    task = RunFunction(**{"entry_script": "score.py", **fields.pop("of_task", {})})
    return Parallel(**{"task": task, "input_data": "${{inputs.x}}", "outputs": {"o": None}, **fields})


def settings(**fields):
    made: Any = fill_component(job(**fields), None)
    assert made.type == "command"
    return made.drumline["parallel"]


def problems(**fields):
    with pytest.raises(SpecError) as caught:
        settings(**fields)
    return [problem.what for problem in caught.value.problems]


def test_what_is_not_said_is_azures_default():
    assert settings() == {
        "script": "score.py",
        "arguments": "",
        "input": "x",
        "output": None,
        "below": "",
        "batch_size": 1,
        "max_retries": 2,
        "timeout_s": 60,
        "most_batches": -1,
        "most_items": -1,
        "most_percent": 100,
        "level": "INFO",
    }


def test_what_is_said_is_taken_also_as_text():
    found = settings(
        mini_batch_size="10",
        retry_settings={"max_retries": "0", "timeout": 5},
        mini_batch_error_threshold=1,
        max_concurrency_per_instance=3,
        logging_level="warn",
        of_task={
            "append_row_to": "${{ outputs.o }}/a.csv",
            "program_arguments": "--n ${{inputs.n}} --error_threshold 4 --allowed_failed_percent=30",
        },
    )
    assert (found["batch_size"], found["max_retries"], found["timeout_s"], found["workers"]) == (10, 0, 5, 3)
    assert (found["most_batches"], found["most_items"], found["most_percent"]) == (1, 4, 30)
    assert (found["output"], found["below"], found["level"]) == ("o", "/a.csv", "WARNING")


def test_the_field_goes_before_the_argument():
    arguments = {"program_arguments": "--error_threshold 4"}
    assert settings(error_threshold=2, of_task=arguments)["most_items"] == 2


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"task": None}, "missing key 'task' in a parallel job"),
        ({"input_data": "${{outputs.o}}"}, "input_data: '${{outputs.o}}' names no input"),
        ({"input_data": "${{inputs.y}}"}, "input_data: there is no input 'y'"),
        (
            {"inputs": {"x": Input(type="mltable", path="t")}},
            "input_data: tables (mltable) are not split here",
        ),
        ({"mini_batch_size": "10kb"}, "mini_batch_size: '10kb' is a size of a table"),
        ({"mini_batch_size": 0}, "mini_batch_size: 0 is below 1"),
        ({"mini_batch_size": "many"}, "mini_batch_size: must be a whole number; got 'many'"),
        ({"mini_batch_size": "1.5"}, "mini_batch_size: must be a whole number; got '1.5'"),
        ({"partition_keys": ["a"]}, "partition_keys: tables are not split here"),
        ({"logging_level": "loud"}, "logging_level: must be one of DEBUG, INFO, WARNING; got 'loud'"),
        ({"error_threshold": -2}, "error_threshold: -2 is below -1"),
        ({"retry_settings": {"timeout": 0}}, "retry_settings.timeout: 0 is below 1"),
        (
            {"of_task": {"entry_script": None}},
            "task.entry_script: a parallel job needs a script with run(mini_batch)",
        ),
        ({"of_task": {"append_row_to": "a.txt"}}, "task.append_row_to: 'a.txt' names no output"),
        ({"of_task": {"append_row_to": "${{outputs.p}}"}}, "task.append_row_to: there is no output 'p'"),
        (
            {"of_task": {"append_row_to": "${{outputs.o}}/a/../../x.csv"}},
            "task.append_row_to: '..' leads out of the output in '${{outputs.o}}/a/../../x.csv'",
        ),
        (
            {"of_task": {"program_arguments": "--m ${{inputs.m}}"}},
            "task.program_arguments: ${{inputs.m}} is not an input of the job",
        ),
        ({"of_task": {"program_arguments": "--m 'a"}}, "task.program_arguments: no closing quotation"),
    ],
)
def test_what_cannot_be_is_refused(fields, what):
    assert problems(**fields) == [what]


def test_an_optional_argument_may_name_what_is_not_there():
    assert settings(of_task={"program_arguments": "$[[--m ${{inputs.m}}]]"})["arguments"]


def test_a_script_that_is_not_in_the_code_is_refused(tmp_path):
    (tmp_path / "score.py").touch()
    assert settings(of_task={"code": str(tmp_path)})["script"] == "score.py"
    assert settings(of_task={"code": str(tmp_path / "score.py")})["script"] == "score.py"
    of_task = {"code": str(tmp_path), "entry_script": "nope.py"}
    assert problems(of_task=of_task) == [f"task.entry_script: there is no nope.py in {tmp_path}"]
    of_task["code"] = "git+https://example.com/a"
    assert settings(of_task=of_task)["script"] == "nope.py"


def test_a_fraction_of_a_mini_batch_is_cut_as_of_other_whole_numbers(component):
    assert settings(mini_batch_size=1.5, error_threshold=2.0)["batch_size"] == 1
    for written, size in ((1.5, "1"), (4.0, "4"), ("1.5", "1.5")):
        values = {**json.loads(component.read_text()), "mini_batch_size": written}
        component.write_text(json.dumps(values))
        assert load_component(component).mini_batch_size == size


@pytest.mark.parametrize("place", ["node", "function", "pipeline", "step"])
def test_a_table_is_refused_wherever_it_comes_from(component, tmp_path, place):
    table = {"type": "mltable", "path": "."}
    step = {"component": "./score.yml", "inputs": {"x": "${{parent.inputs.data}}"}}
    whole = {"type": "pipeline", "inputs": {"data": table}, "jobs": {"score": step}}
    made: Any
    if place == "function":
        score = parallel_run_function(
            name="score",
            inputs={"x": Input(type="mltable"), "n": 1},
            input_data="${{inputs.x}}",
            task=RunFunction(entry_script="score.py", environment="e@latest"),
        )

        @pipeline
        def scoring(data):
            score(x=data)

        made = scoring(Input(type="uri_folder", path="data"))
    else:
        if place == "node":
            step["inputs"] = {"x": table}
        if place == "step":
            maker = {"command": "true", "outputs": {"t": {"type": "mltable"}}}
            step["inputs"] = {"x": "${{parent.jobs.make.outputs.t}}"}
            whole["jobs"] = {"make": maker, "score": step}
        (tmp_path / "p.yml").write_text(json.dumps(whole))
        made = load_job(tmp_path / "p.yml")
    with pytest.raises((PlanError, SpecError), match=r"input_data: tables \(mltable\) are not split here"):
        build_graph(made, None)


def test_several_mistakes_are_told_at_once():
    assert len(problems(mini_batch_size=0, logging_level="loud", partition_keys=["a"])) == 3


def test_a_task_of_another_type_is_refused():
    with pytest.raises(SpecError, match="'model' is not supported"):
        Parallel(task={"type": "model"})


@pytest.fixture
def component(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "score.py").touch()
    values = {
        "type": "parallel",
        "name": "score",
        "inputs": {"x": {"type": "uri_folder"}, "n": {"type": "integer", "default": 2}},
        "outputs": {"o": {"type": "uri_file"}},
        "input_data": "${{inputs.x}}",
        "mini_batch_size": "7",
        "retry_settings": {"max_retries": 1},
        "resources": {"instance_count": 2},
        "task": {
            **TASK,
            "code": "src",
            "program_arguments": "--n ${{inputs.n}}",
            "environment": "azureml:e:1",
        },
    }
    path = tmp_path / "score.yml"
    path.write_text(json.dumps(values))
    return path


def test_a_component_declares_and_what_the_node_says_goes_first(component, tmp_path):
    made = load_component(component)
    assert isinstance(made, ParallelComponent)
    node = made(x=Input(path="data"))
    node.mini_batch_size = 3
    node.resources.instance_count = 4
    command: Any = fill_component(node, None)
    found = command.drumline["parallel"]
    assert (found["batch_size"], found["max_retries"]) == (3, 1)
    assert (command.resources.instance_count, made.resources.instance_count) == (4, 2)
    assert (command.code, command.environment) == (str(tmp_path / "src"), "azureml:e:1")
    assert command.inputs["n"] == 2
    assert command.outputs["o"].type == "uri_file"


@pytest.mark.parametrize("type_", [{"type": "parallel"}, {}])
def test_a_step_of_a_file_is_parallel_by_its_type_or_its_component(component, tmp_path, type_):
    step = {**type_, "component": "./score.yml", "inputs": {"x": {"type": "uri_folder", "path": "."}}}
    path = tmp_path / "p.yml"
    path.write_text(json.dumps({"type": "pipeline", "jobs": {"a": step}}))
    found: Any
    (found,) = build_graph(load_job(path), None).steps
    assert found.job.drumline["parallel"]["batch_size"] == 7


def test_a_function_of_the_sdk_is_a_node_by_its_call():
    score = parallel_run_function(
        name="score",
        inputs={"x": Input(type="uri_folder"), "n": 1},
        input_data="${{inputs.x}}",
        instance_count=2,
        task=RunFunction(entry_script="score.py", environment="e@latest"),
    )

    @pipeline
    def scoring(data):
        first = score(x=data)
        score(x=first.outputs.default) if "default" in first.outputs else None

    made = scoring(Input(path="data"))
    assert list(made.jobs) == ["first"]
    step: Any
    (step,) = build_graph(made, None).steps
    assert (step.job.resources.instance_count, step.job.drumline["parallel"]["input"]) == (2, "x")


def test_a_job_is_written_and_read_again(tmp_path):
    made = job(mini_batch_size="3", max_concurrency_per_instance=2, resources={"instance_count": 2})
    made.dump(tmp_path / "job.yml")
    again = load_job(tmp_path / "job.yml")
    assert isinstance(again, Parallel)
    read: Any = fill_component(again, None)
    written: Any = fill_component(made, None)
    assert read.drumline == written.drumline


def test_a_conda_file_of_a_task_is_that_beside_the_file_of_the_task(component, tmp_path):
    (tmp_path / "conda.yml").write_text("dependencies: [python]\n")
    values = json.loads(component.read_text())
    values["task"]["environment"] = {"image": "python:3.12", "conda_file": "conda.yml"}
    component.write_text(json.dumps(values))
    command: Any = fill_component(load_component(component)(x=Input(path="data")), None)
    assert resolve(command.environment, command.environment.conda_file) == str(tmp_path / "conda.yml")
    step = {"type": "parallel", "input_data": "${{inputs.x}}", "task": values["task"]}
    (tmp_path / "p.yml").write_text(json.dumps({"type": "pipeline", "jobs": {"a": step}}))
    written = to_dict(load_job(tmp_path / "p.yml"), absolute=True)["jobs"]["a"]["task"]
    assert written["environment"]["conda_file"] == str(tmp_path / "conda.yml")


def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path):
    path = tmp_path / "job.yml"
    path.write_text(
        "type: parallel\ninput_data: x\nmini_batch_sise: 3\ntask: {entry_script: a.py, code: src}\n"
    )
    with pytest.raises(SpecError) as caught:
        load_job(path)
    first, second = caught.value.problems
    assert (first.line, first.hint) == (3, "did you mean 'mini_batch_size'?")
    assert (second.line, second.path) == (4, "task.code")
