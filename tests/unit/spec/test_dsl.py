"""Functions under ``@pipeline``: what their calls become."""
# ruff: noqa: F841, N806, PLC2401, B008 - variables give nodes their names, and defaults inputs their types

from __future__ import annotations

import functools
import sys
import threading
from enum import Enum
from typing import Any

import pytest

from drumline import Input, Output, command, dsl, load_job
from drumline.contract.errors import SpecError
from drumline.dsl import pipeline
from drumline.entities import CommandComponent, Environment, PipelineJob, ResourceConfiguration
from drumline.plan.pipelines import build_graph
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.pipeline import fill_component
from drumline.spec.jobs.validate import validate

STEP = CommandComponent(
    name="step",
    command="echo ${{inputs.n}}",
    inputs={
        "n": {"type": "integer", "default": 1},
        "data": {"type": "uri_folder", "optional": True},
    },
    outputs={"o": {"type": "uri_folder"}, "log": {"type": "uri_file"}},
    distribution={"type": "tensorflow", "worker_count": 1},
)
OUTSIDE = command(
    command="cat ${{inputs.x}}",
    inputs={"x": Input(path="a")},
    outputs={"o": Output()},
    display_name="Out side",
)


def names(job):
    return list(job.jobs)


def inputs(node):
    return {name: str(value) for name, value in node.inputs.items()}


def graph(job):
    """Checked as a whole, and its steps by name."""
    whole = fill_component(job, None)
    return {step.name: step for step in build_graph(whole, None).steps}


# names


def test_nodes_have_the_names_of_their_variables():
    @pipeline
    def whole():
        first = STEP()
        Second = STEP(data=first.outputs.o)
        return {"made": Second.outputs.o}

    job = whole()
    assert names(job) == ["first", "second"]
    assert inputs(job.jobs["second"])["data"] == "${{parent.jobs.first.outputs.o}}"
    assert graph(job)["second"].needs == ("first",)


def test_nodes_without_a_variable_have_the_name_of_their_component():
    @pipeline
    def whole():
        STEP()
        STEP()
        OUTSIDE(x=Input(path="b"))
        step_1 = STEP()
        return step_1.outputs

    assert names(whole()) == ["step", "step_2", "out_side", "step_1"]


def test_nodes_of_a_loop_are_numbered():
    @pipeline
    def whole():
        nodes = [STEP(n=number) for number in range(3)]
        for number in range(3, 5):
            node = STEP(n=number, data=nodes[0].outputs.o)

    job = whole()
    assert names(job) == ["step", "step_1", "step_2", "step_3", "node"]
    assert [job.jobs[name].inputs.n for name in names(job)] == [0, 1, 2, 3, 4]
    assert graph(job)["node"].needs == ("step",)


def test_a_name_that_is_set_goes_first():
    @pipeline
    def whole():
        node = STEP()
        node.name = "My Train.1"
        my_train_1 = STEP()
        my_train_1.display_name = "shown"

    job = whole()
    assert names(job) == ["my_train_1", "my_train_1_1"]
    assert [node.name for node in job.jobs.values()] == [None, None]
    assert job.jobs["my_train_1_1"].display_name == "shown"


def test_a_name_may_be_of_another_alphabet():
    @pipeline
    def whole():
        größe = STEP()
        größe.name = "1"

    assert names(whole()) == ["node"]


def test_a_variable_that_is_bound_twice_names_the_last():
    @pipeline
    def whole():
        a = STEP(n=1)
        a = STEP(n=2)

    assert {name: node.inputs.n for name, node in whole().jobs.items()} == {"step": 1, "a": 2}


def test_a_decorated_function_is_looked_into():
    def logged(function):
        @functools.wraps(function)
        def call(*args, **named):
            return function(*args, **named)

        return call

    @pipeline
    @logged
    def whole():
        mine = STEP()

    assert names(whole()) == ["mine"]


# commands within and without


def test_a_command_within_is_a_node_whether_called_or_not():
    @pipeline
    def whole():
        plain = command(command="ls")
        pattern = command(command="cat ${{inputs.x}}", inputs={"x": Input(path="a")})
        one = pattern(x=plain.outputs.default) if "default" in plain.outputs else pattern()
        two = pattern(x=Input(path="b"))

    job = whole()
    assert names(job) == ["plain", "one", "two"]
    assert job.jobs["two"].inputs.x.path == "b"


def test_a_command_without_is_a_node_once_it_is_called():
    @pipeline
    def whole():
        one = OUTSIDE()
        two = OUTSIDE(x=one.outputs.o)

    job = whole()
    assert names(job) == ["one", "two"]
    assert inputs(job.jobs["two"]) == {"x": "${{parent.jobs.one.outputs.o}}"}
    assert OUTSIDE.inputs.x.path == "a"


def test_a_sweep_is_a_node_and_its_command_is_none():
    from drumline.sweep import Uniform

    @pipeline
    def whole():
        base = command(command="echo ${{inputs.lr}}", inputs={"lr": 0.1}, outputs={"o": Output()})
        tuned = base(lr=Uniform(0.01, 0.9)).sweep(primary_metric="m", goal="maximize")
        tuned.set_limits(max_total_trials=2)
        last = STEP(data=tuned.outputs.o)

    job = whole()
    assert names(job) == ["tuned", "last"]
    assert job.jobs["tuned"].type == "sweep"


def test_nodes_are_of_the_thread_that_made_them():
    made = []

    @pipeline
    def whole():
        mine = STEP()
        other = threading.Thread(target=lambda: made.append(STEP()))
        other.start()
        other.join()

    assert (names(whole()), len(made)) == (["mine"], 1)


# what a node is changed in


def test_nodes_are_changed_like_jobs():
    @pipeline
    def whole(n: int):
        node = STEP(n=n)
        node.distribution.worker_count = 2
        node.resources = ResourceConfiguration(instance_count=2, instance_type="gpu")
        node.compute = "cluster"
        node.outputs.o.mode = "upload"
        node.environment_variables["A"] = "b"
        node.environment_variables["N"] = n
        node.environment = Environment(image="img")
        node.set_limits(timeout=60)

    node = whole(3).jobs["node"]
    assert to_dict(node) == {
        "type": "command",
        "environment": {"image": "img"},
        "environment_variables": {"A": "b", "N": "${{parent.inputs.n}}"},
        "compute": "cluster",
        "inputs": {"n": "${{parent.inputs.n}}"},
        "outputs": {"o": {"type": "uri_folder", "mode": "upload"}, "log": {"type": "uri_file"}},
        "distribution": {"type": "tensorflow", "parameter_server_count": 0, "worker_count": 2},
        "resources": {"instance_type": "gpu", "instance_count": 2},
        "limits": {"timeout": 60},
        "component": to_dict(node)["component"],
    }
    assert STEP.distribution.worker_count == 1


def test_the_job_is_changed_after_the_call():
    @pipeline(default_compute="a")
    def whole(n: int = 1):
        one = STEP(n=n)
        return {"made": one.outputs.o}

    job = whole()
    job.jobs["one"].distribution.worker_count = 4
    job.settings.default_compute = "b"
    job.settings.force_rerun = True
    job.inputs.n = 7
    job.outputs.made.path = "./there"
    job.outputs.made.name = "asset"
    assert to_dict(job)["settings"] == {"default_compute": "azureml:b", "force_rerun": True}
    assert to_dict(job)["outputs"] == {"made": {"type": "uri_folder", "path": "./there", "name": "asset"}}
    assert (job.inputs.n, to_dict(whole())["inputs"]) == (7, {"n": 1})


# settings


def test_settings_are_those_of_the_decorator():
    @dsl.pipeline(
        name="nightly",
        display_name="Nightly",
        description="all of it",
        experiment_name="exp",
        tags={"a": "1"},
        compute="cluster",
        default_datastore="store",
        continue_on_step_failure=True,
        force_rerun=False,
    )
    def whole():
        STEP()

    job = whole()
    assert (job.display_name, job.description, job.experiment_name, job.tags) == (
        "Nightly",
        "all of it",
        "exp",
        {"a": "1"},
    )
    assert to_dict(job)["settings"] == {
        "default_datastore": "azureml:store",
        "default_compute": "azureml:cluster",
        "continue_on_step_failure": True,
        "force_rerun": False,
    }


def test_a_function_tells_its_name_and_what_it_does():
    @pipeline()
    def train_all():
        """Trains."""
        STEP()

    assert (train_all().display_name, train_all().description, train_all.__name__) == (
        "train_all",
        "Trains.",
        "train_all",
    )


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(SpecError, match="unknown keyword 'default_computer'") as caught:
        pipeline(default_computer="x")
    assert "did you mean 'default_compute'?" in str(caught.value)


# parameters


def test_parameters_are_inputs():
    @pipeline
    def whole(data, n: int, rate: float = 0.5, name="x"):
        one = STEP(data=data, n=n)
        two = command(command="echo", inputs={"rate": rate, "text": f"name is {name}"})

    job = whole(Input(path="d"), n=3)
    assert to_dict(job)["inputs"] == {
        "data": {"type": "uri_folder", "path": "d"},
        "n": 3,
        "rate": 0.5,
        "name": "x",
    }
    assert inputs(job.jobs["two"]) == {
        "rate": "${{parent.inputs.rate}}",
        "text": "name is ${{parent.inputs.name}}",
    }
    assert set(graph(job)) == {"one", "two"}


def test_parameters_may_be_declared_by_inputs():
    @pipeline
    def whole(
        data: Input(type="uri_folder"),
        n: Input(type="integer", default=4),
        note: Input(type="string", optional=True),
        rate=Input(type="number", default=0.5),
    ):
        one = STEP(data=data, n=n)

    job = whole(Input(path="d"))
    assert (job.inputs.n, job.inputs.rate, "note" in job.inputs) == (4, 0.5, False)
    with pytest.raises(SpecError, match="whole: n is of type integer, and gets 'many'"):
        whole(Input(path="d"), n="many")


class Size(Enum):
    SMALL = "small"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older Pythons look the names up at the definition")
def test_an_annotation_for_a_type_checker_alone_says_nothing():
    scope: dict[str, Any] = {}
    text = "def whole(n: NDArray, m: int | numpy.int64, *, k: int = 3) -> Job: ..."
    exec(compile(text, "whole.py", "exec", dont_inherit=True), scope)
    function = pipeline(scope["whole"])
    assert dict(function(n=1, m=2).inputs) == {"n": 1, "m": 2, "k": 3}
    with pytest.raises(SpecError, match="k is of type integer"):
        function(n=1, m=2, k="three")


def test_a_parameter_may_be_of_a_choice():
    @pipeline
    def whole(size=Size.SMALL):
        one = command(command="echo ${{inputs.s}}", inputs={"s": size})

    assert whole().inputs.size == "small"


def test_none_is_an_input_that_is_not_given():
    @pipeline
    def whole(data=None, n=None):
        one = STEP(data=data, n=n)

    job = whole()
    assert dict(job.inputs) == {}
    assert validate(job).passed
    assert dict(graph(job)["one"].job.inputs) == {"n": 1}
    assert set(graph(whole(data=Input(path="d")))["one"].job.inputs) == {"data", "n"}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "missing a required argument: 'n'"),
        ({"n": 1, "x": 2}, "got an unexpected keyword argument 'x'"),
        ({"n": [1]}, r"n is of type integer, and gets \[1\]"),
        ({"n": "one"}, "n is of type integer, and gets 'one'"),
        ({"n": Input(path="d")}, "n is of type integer, and gets data of type uri_folder"),
    ],
)
def test_a_call_with_what_the_function_does_not_take_is_refused(given, what):
    @pipeline
    def whole(n: int):
        STEP(n=n)

    with pytest.raises(SpecError, match=what):
        whole(**given)


def test_a_pipeline_has_no_parameters_without_a_name():
    @pipeline
    def whole(*steps):
        STEP()

    with pytest.raises(SpecError, match=r"whole: a pipeline cannot have the parameter \*steps"):
        whole(1)


# what is returned


def test_outputs_that_are_returned_are_the_pipelines():
    @pipeline
    def whole():
        one = STEP()
        one.outputs.o = Output(type="uri_folder", mode="upload", name="asset", version="2", path="./p")
        return {"made": one.outputs.o, "log": one.outputs.log}

    job = whole()
    assert to_dict(job)["outputs"] == {
        "made": {"type": "uri_folder", "path": "./p", "mode": "upload", "name": "asset", "version": "2"},
        "log": {"type": "uri_file"},
    }
    assert to_dict(job.jobs["one"])["outputs"]["log"]["path"] == "${{parent.outputs.log}}"
    assert graph(job)["one"].publishes == {"o": "made", "log": "log"}


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (lambda node: node.outputs.o, "may return a dictionary of outputs, not a Output"),
        (lambda node: {"a": 1}, "returns 'a', which is not an output of its nodes"),
        (lambda node: {"a": OUTSIDE.outputs.o}, "returns 'a', which is not an output of its nodes"),
        (lambda node: {"a": node.outputs.o, "b": node.outputs.o}, "returns the output 'o' of a node twice"),
    ],
)
def test_what_is_returned_is_outputs_of_its_nodes(returned, what):
    @pipeline
    def whole():
        one = STEP()
        return returned(one)

    with pytest.raises(SpecError, match=what):
        whole()


# pipelines in pipelines


def test_a_pipeline_is_a_node_of_another():
    @pipeline(force_rerun=True)
    def inner(data, n: int = 2):
        one = STEP(data=data, n=n)
        two = STEP(data=one.outputs.o)
        return {"made": two.outputs.o}

    @pipeline
    def outer(data, n=5):
        first = inner(data=data)
        second = inner(data=first.outputs.made, n=n)
        last = STEP(data=second.outputs.made)
        return {"all": second.outputs.made}

    job = outer(Input(path="d"))
    assert names(job) == ["first", "second", "last"]
    assert names(job.jobs["second"]) == ["one", "two"]
    assert inputs(job.jobs["second"]) == {
        "data": "${{parent.jobs.first.outputs.made}}",
        "n": "${{parent.inputs.n}}",
    }
    found = graph(job)
    assert {name: step.needs for name, step in found.items()} == {
        "first": (),
        "second": ("first",),
        "last": ("second",),
    }
    assert found["second"].publishes == {"made": "all"}
    assert job.jobs["first"].settings.force_rerun


def test_a_parameter_that_is_not_given_is_not_given_below():
    @pipeline
    def inner(data=None):
        one = STEP(data=data)

    @pipeline
    def outer(data=None):
        first = inner(data=data)

    found = graph(outer())
    assert dict(found["first"].inner.steps[0].job.inputs) == {"n": 1}


def test_a_pipeline_is_called_again_with_other_inputs():
    @pipeline
    def whole(n: int, data=None):
        one = STEP(n=n, data=data)

    first = whole(1)
    second = first(n=2, data=Input(path="d"))
    assert (dict(first.inputs), list(second.inputs), second.inputs.n) == ({"n": 1}, ["n", "data"], 2)
    with pytest.raises(SpecError, match="the pipeline has no input 'm'"):
        first(m=1)


# as a file


def test_a_pipeline_of_python_loads_back_to_the_same(tmp_path):
    @pipeline(default_compute="cpu")
    def whole(data, n: int = 2):
        one = STEP(data=data, n=n)
        two = STEP(data=one.outputs.o)
        return {"made": two.outputs.o}

    job = whole(Input(path=str(tmp_path)))
    job.dump(tmp_path / "job.yml")
    back = load_job(tmp_path / "job.yml")
    assert isinstance(back, PipelineJob)
    assert to_dict(back) == to_dict(job)
    assert graph(back).keys() == graph(job).keys()


# the surroundings


def test_an_error_of_the_function_comes_through_and_leaves_nothing():
    @pipeline
    def whole():
        STEP()
        raise KeyError("mine")

    before = sys.getprofile()
    with pytest.raises(KeyError, match="mine"):
        whole()
    assert sys.getprofile() is before
    assert STEP()._node_name == ""


def test_a_call_gives_a_new_pipeline_each_time():
    @pipeline
    def whole(n: int):
        one = STEP(n=n)

    first, second = whole(1), whole(2)
    first.jobs["one"].distribution.worker_count = 9
    assert second.jobs["one"].distribution.worker_count == 1
    assert (first.inputs.n, second.inputs.n) == (1, 2)


def test_a_variable_with_other_digits_gives_a_name_that_a_step_may_have():
    @pipeline
    def one():
        x٣ = CommandComponent(name="c", command="true")()

    assert list(one().jobs) == ["x_"]
