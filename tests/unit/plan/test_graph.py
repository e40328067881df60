"""The steps of a pipeline: their order, and what is refused before anything runs."""

from __future__ import annotations

import time

import pytest

from drumline.contract.errors import NotFoundError, PlanError
from drumline.plan.pipelines import build_graph
from drumline.spec.jobs.command import CommandComponent
from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob, fill_component
from drumline.spec.parts.io import Input

OUT = {"o": None}


def no_component(reference):
    raise NotFoundError(f"there is no component {reference}")


def graph(jobs, lookup=no_component, **fields):
    return build_graph(fill_component(PipelineJob(jobs=jobs, **fields), lookup), lookup)


def problems_of(jobs, lookup=no_component, **fields):
    with pytest.raises(PlanError) as caught:
        graph(jobs, lookup, **fields)
    return [(problem.path, problem.what, problem.hint) for problem in caught.value.problems]


def problem_of(jobs, lookup=no_component, **fields):
    (problem,) = problems_of(jobs, lookup, **fields)
    return problem


def binding(text):
    return "${{" + text + "}}"


def node(*needs, **fields):
    """One that reads the output ``o`` of each of those, and writes one itself."""
    inputs = {need: binding(f"parent.jobs.{need}.outputs.o") for need in needs}
    return {"command": "true", "inputs": inputs, "outputs": OUT, **fields}


def component(inputs=None, **fields):
    return CommandComponent(
        name="c", command="true", inputs=inputs, outputs={"o": {"type": "uri_folder"}}, **fields
    )


def given(value, declared, **fields):
    """The problem of a step whose component declares the input ``x`` so, and which is given that."""
    return problem_of({"a": component({"x": declared})(x=value)}, **fields)


def names(found):
    return [step.name for step in found.steps]


# order


def test_steps_come_after_those_that_they_need():
    found = graph({"c": node("b"), "b": node("a"), "a": node(), "d": node()})
    assert names(found) == ["a", "d", "b", "c"]
    assert {step.name: step.needs for step in found.steps} == {"a": (), "b": ("a",), "c": ("b",), "d": ()}


def test_a_step_needs_another_once_however_often_it_reads_from_it():
    twice = {"x": "${{parent.jobs.a.outputs.o}}", "y": {"path": "${{parent.jobs.a.outputs.o}}"}}
    found = graph({"a": node(), "b": {"command": "true", "inputs": twice}})
    assert found.steps[1].needs == ("a",)


def test_an_output_without_a_type_takes_that_of_the_pipelines_output_that_it_is():
    outputs = {"r": {"type": "uri_file"}, "s": {"type": "mltable"}}
    publish = {"o": "${{parent.outputs.r}}"}
    reader = {"command": "true", "inputs": {"x": "${{parent.jobs.a.outputs.o}}"}}
    found = graph({"a": node(outputs=publish), "b": reader}, outputs=outputs)
    assert found.step("a").job.outputs["o"].type == "uri_file"
    own = {"o": {"type": "uri_folder", "path": "${{parent.outputs.s}}"}}
    found = graph({"a": component()(), "b": node(outputs=own)}, outputs=outputs)
    assert [found.step(name).job.outputs["o"].type for name in "ab"] == ["uri_folder", "uri_folder"]


def test_what_a_step_publishes_is_known():
    found = graph({"a": node(outputs={"o": "${{parent.outputs.r}}"})}, outputs={"r": None})
    assert found.steps[0].publishes == {"o": "r"}


@pytest.mark.parametrize("reverse", [False, True])
def test_a_thousand_steps_in_a_row_are_quick(reverse):
    jobs = {f"s{number}": node(*([f"s{number - 1}"] if number else [])) for number in range(1000)}
    if reverse:
        jobs = dict(reversed(jobs.items()))
    began = time.process_time()
    assert names(graph(jobs)) == [f"s{number}" for number in range(1000)]
    assert time.process_time() - began < 5


# circles


@pytest.mark.parametrize(
    ("jobs", "around", "path"),
    [
        ({"a": node("a")}, "a needs a", "jobs.a.inputs.a"),
        ({"a": node("b"), "b": node("a")}, "a needs b needs a", "jobs.a.inputs.b"),
        (
            {"x": node("a"), "a": node("b", "d"), "b": node("c"), "c": node("a"), "d": node()},
            "a needs b needs c needs a",
            "jobs.a.inputs.b",
        ),
    ],
)
def test_a_circle_is_told_with_the_way_around_it(jobs, around, path):
    where, what, _ = problem_of(jobs)
    assert (where, what) == (path, f"jobs: the steps wait for each other: {around}")


# bindings


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("parent.inputs.numbr", "is not an input of the pipeline", "did you mean 'number'?"),
        ("parent.jobs.first_.outputs.o", "the pipeline has no job 'first_'", "did you mean 'first'?"),
        ("parent.jobs.first.outputs.x", "'first' has no output 'x'", "known: o"),
        (
            "parent.outputs.r",
            "is neither an input of the pipeline nor an output of a step",
            "${{parent.inputs.NAME}}",
        ),
        (
            "inputs.n",
            "is neither an input of the pipeline nor an output of a step",
            "${{parent.inputs.NAME}}",
        ),
        (
            "parent.jobs.first",
            "is neither an input of the pipeline nor an output of a step",
            "${{parent.inputs.NAME}}",
        ),
    ],
)
def test_a_binding_that_leads_nowhere_is_refused_with_a_hint(text, what, hint):
    bound = {"command": "true", "inputs": {"x": binding(text)}}
    path, said, tip = problem_of({"first": node(), "b": bound}, inputs={"number": 1}, outputs={"r": None})
    assert path == "jobs.b.inputs.x"
    assert what in said
    assert tip.startswith(hint)


def test_the_output_default_is_that_of_every_step():
    bound = {"command": "true", "inputs": {"x": "${{parent.jobs.a.outputs.default}}"}}
    assert graph({"a": {"command": "true"}, "b": bound}).steps[1].needs == ("a",)


@pytest.mark.parametrize("text", ["parent.outputs.x", "parent.inputs.n", "outputs.r"])
def test_an_output_is_bound_to_one_of_the_pipeline(text):
    jobs = {"a": node(outputs={"o": binding(text)})}
    path, what, _ = problem_of(jobs, inputs={"n": 1}, outputs={"r": None})
    assert (path, "is not an output of the pipeline" in what) == ("jobs.a.outputs.o", True)


def test_an_output_of_the_pipeline_is_written_by_one_step():
    bound = node(outputs={"o": "${{parent.outputs.r}}"})
    path, what, _ = problem_of({"a": bound, "b": bound}, outputs={"r": None})
    assert path == "jobs.b.outputs.o"
    assert what.endswith("the pipeline's output 'r' is written by jobs.a.outputs.o already")


def test_azures_names_within_the_path_of_an_output_are_no_bindings():
    path = "azureml://datastores/${{default_datastore}}/paths/azureml/${{name}}/${{output_name}}"
    assert graph({"a": node(outputs={"o": {"path": path}})}).steps[0].publishes == {}


def test_variables_take_literals_of_the_pipeline():
    jobs = {"a": node(environment_variables={"A": "n is ${{parent.inputs.n}}", "B": "${{parent.inputs.z}}"})}
    path, what, _ = problem_of(jobs, inputs={"n": 1})
    assert (path, "is not an input" in what) == ("jobs.a.environment_variables.B", True)
    jobs = {"a": node(environment_variables={"A": "${{parent.inputs.d}}"})}
    assert "data of type uri_folder" in problem_of(jobs, inputs={"d": {"path": "x"}})[1]


# what a component declares


@pytest.mark.parametrize(
    ("declared", "value", "what"),
    [
        ({"type": "integer"}, "abc", "it takes a whole number, and gets 'abc'"),
        ({"type": "integer"}, 1.5, "it takes a whole number, and gets 1.5"),
        ({"type": "integer"}, True, "it takes a whole number, and gets True"),
        ({"type": "number"}, "nan", "it takes a number, and gets 'nan'"),
        ({"type": "boolean"}, "maybe", "it takes true or false, and gets 'maybe'"),
        ({"type": "integer", "min": 2}, 1, "1 is below 2"),
        ({"type": "number", "max": 0.5}, 0.6, "0.6 is above 0.5"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "must be one of a, b; got 'c'"),
        ({"type": "uri_folder"}, 3, "it takes uri_folder, and gets 3"),
        ({"type": "uri_folder"}, "./data", "it takes uri_folder, and gets './data'"),
        ({"type": "string"}, Input(path="x"), "it takes text, and gets data of type uri_folder"),
    ],
)
def test_a_value_of_another_type_is_refused(declared, value, what):
    assert given(value, declared)[:2] == ("jobs.a.inputs.x", f"jobs.a.inputs.x: {what}")


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ({"type": "integer", "min": 1, "max": 3}, "3"),
        ({"type": "integer"}, 4.0),
        ({"type": "number"}, 1),
        ({"type": "number"}, "1e-3"),
        ({"type": "boolean"}, "True"),
        ({"type": "string"}, 7),
        ({"type": "string", "enum": ["1", "2"]}, 1),
        ({"type": "mltable"}, Input(type="uri_folder", path="x")),
    ],
)
def test_what_can_be_read_as_the_type_is_taken(declared, value):
    assert graph({"a": component({"x": declared})(x=value)})


@pytest.mark.parametrize(
    ("declared", "inputs", "what"),
    [
        ("integer", {"v": "abc"}, "it takes a whole number, and gets 'abc'"),
        ("integer", {"v": {"path": "x"}}, "it takes a whole number, and gets data of type uri_folder"),
    ],
)
def test_types_are_followed_through_the_inputs_of_the_pipeline(declared, inputs, what):
    problem = given("${{parent.inputs.v}}", {"type": declared}, inputs=inputs)
    assert problem[1] == f"jobs.a.inputs.x: {what}"


def test_types_are_followed_through_outputs():
    made = component({"x": {"type": "integer"}})
    problem = problem_of({"a": node(), "b": made(x="${{parent.jobs.a.outputs.o}}")})
    assert problem[1] == "jobs.b.inputs.x: it takes a whole number, and gets data of type uri_folder"


@pytest.mark.parametrize(
    ("written", "wanted", "is_taken"),
    [
        ("string", "string", True),
        ("integer", "number", True),
        ("number", "string", True),
        ("string", "uri_file", True),
        ("string", "integer", False),
        ("boolean", "number", False),
    ],
)
def test_an_output_that_is_a_value_is_taken_for_a_value(written, wanted, is_taken):
    made = CommandComponent(name="w", command="true", outputs={"o": {"type": written}})
    jobs = {"a": made(), "b": component({"x": {"type": wanted}})(x="${{parent.jobs.a.outputs.o}}")}
    if is_taken:
        assert graph(jobs).step("b").doubts == ()
    else:
        assert f"and gets data of type {written}" in problem_of(jobs)[1]


def test_a_binding_within_a_text_is_of_any_type():
    made = component({"x": {"type": "string"}})
    assert graph({"a": made(x="lr-${{parent.inputs.lr}}")}, inputs={"lr": 0.1})


def test_a_missing_input_is_named():
    path, what, hint = problem_of({"a": component({"x": {"type": "integer"}})()})
    assert (path, what, hint) == (
        "jobs.a.inputs.x",
        "jobs.a needs the input 'x' of its component",
        "integer",
    )


@pytest.mark.parametrize(
    "declared", [{"type": "integer", "optional": True}, {"type": "integer", "default": 1}]
)
def test_an_input_with_a_default_or_an_optional_one_may_miss(declared):
    assert graph({"a": component({"x": declared})()})


def test_an_input_that_the_component_lacks_is_not_used_and_named_with_what_is_alike():
    made = component({"rate": {"type": "number"}})
    step = graph({"a": {"component": made, "inputs": {"rate": 1, "rat": 2}}}).step("a")
    assert step.job.inputs == {"rate": 1}
    what = "inputs.rat: not used; its component has no such input (did you mean 'rate'?)"
    assert step.doubts == (what,)


@pytest.mark.parametrize(
    ("declared", "value", "what"),
    [
        ("uri_file", Input(type="uri_folder", path="x"), "it takes uri_file, and gets uri_folder"),
        ("uri_folder", Input(type="uri_file", path="x"), "it takes uri_folder, and gets uri_file"),
        ("uri_file", "${{parent.inputs.v}}", "it takes uri_file, and gets uri_folder"),
        ("uri_file", "${{parent.jobs.b.outputs.o}}", "it takes uri_file, and gets uri_folder"),
    ],
)
def test_a_file_for_a_folder_and_back_is_a_doubt(declared, value, what):
    jobs = {"a": component({"x": {"type": declared}})(x=value), "b": node()}
    assert graph(jobs, inputs={"v": {"path": "x"}}).step("a").doubts == (f"inputs.x: {what}",)


@pytest.mark.parametrize(
    ("value", "enum"), [(224.0, ["224"]), ("224", [224.0]), (True, ["true"]), ("Adam", ["adam"])]
)
def test_another_way_to_write_one_of_an_enum_is_a_doubt(value, enum):
    doubts = graph({"a": component({"x": {"type": "string", "enum": enum}})(x=value)}).step("a").doubts
    assert doubts == (f"inputs.x: {value!r} is passed as it is written; {enum[0]!r} is meant",)


def test_a_compute_may_be_a_text_of_the_pipelines():
    bound = "${{parent.inputs.c}}"
    assert graph({"a": node(compute=bound)}, inputs={"c": "azureml:gpus"}).step("a").job.compute == bound
    path, what, hint = problem_of({"a": node(compute=bound)}, inputs={"d": "azureml:gpus"})
    assert (path, hint) == ("jobs.a.compute", "known: d")
    assert what == "jobs.a.compute: ${{parent.inputs.c}} is not an input of the pipeline"
    problem = problem_of({"a": node(compute=bound)}, inputs={"c": {"path": "x"}})
    assert "takes the name of a compute, and gets data of type uri_folder" in problem[1]


def test_every_problem_is_told_at_once():
    made = component({"x": {"type": "integer"}, "y": {"type": "integer"}})
    found = problems_of({"a": made(x="a"), "b": made(x=1, y="${{parent.inputs.q}}")})
    assert [path for path, _, _ in found] == ["jobs.a.inputs.x", "jobs.a.inputs.y", "jobs.b.inputs.y"]


# components that are elsewhere


def test_a_component_that_is_not_there_is_a_problem_of_its_step():
    path, what, _ = problem_of({"a": {"component": "azureml:nope:1"}, "b": node()})
    assert (path, what) == ("jobs.a.component", "jobs.a.component: there is no component azureml:nope:1")


def test_a_mistake_in_the_file_of_a_component_is_told_with_its_line(tmp_path):
    (tmp_path / "c.yml").write_text("name: c\ncommand: true && false\ncomand: x\ninputs: 3\n")
    jobs = {"a": {"component": "c.yml"}}
    with pytest.raises(PlanError) as caught:
        graph(jobs, base_path=str(tmp_path))
    (problem,) = caught.value.problems
    assert (problem.file.endswith("c.yml"), problem.line) == (True, 4)


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [\n"])
def test_a_file_that_is_no_component_is_a_problem_of_its_step(tmp_path, text):
    (tmp_path / "c.yml").write_text(text)
    with pytest.raises(PlanError) as caught:
        graph({"a": {"component": "c.yml"}}, base_path=str(tmp_path))
    assert "c.yml" in str(caught.value.problems[0])


# pipelines in pipelines


def inner(inputs=None, outputs=None, **jobs):
    return PipelineComponent(
        name="inner", inputs=inputs, outputs=outputs, jobs=jobs or {"one": component({})()}
    )


def test_the_graph_of_an_inner_pipeline_is_there():
    found = graph({"p": inner(a=node(), b=node("a"))()})
    assert names(found.steps[0].inner) == ["a", "b"]


def test_a_problem_of_an_inner_pipeline_is_told_with_the_way_to_it():
    path, what, _ = problem_of({"p": inner(a=node("b"), b=node("a"))()})
    assert path == "jobs.p.jobs.a.inputs.b"
    assert what == "jobs.p.jobs: the steps wait for each other: a needs b needs a"


def test_types_are_followed_into_an_inner_pipeline():
    made = component({"x": {"type": "integer"}})
    whole = inner({"v": {"type": "string"}}, one=made(x="${{parent.inputs.v}}"))
    assert graph({"p": whole(v="${{parent.inputs.w}}")}, inputs={"w": "4"})
    path, what, _ = problem_of({"p": whole(v="${{parent.inputs.w}}")}, inputs={"w": "abc"})
    assert path == "jobs.p.jobs.one.inputs.x"
    assert what == "jobs.p.jobs.one.inputs.x: it takes a whole number, and gets 'abc'"


def test_an_input_that_was_not_given_is_left_out_below_too():
    made = component({"x": {"type": "integer", "default": 3}, "y": {"type": "string", "optional": True}})
    whole = inner(
        {"v": {"type": "integer", "optional": True}},
        one=made(x="${{parent.inputs.v}}", y="${{parent.inputs.v}}"),
    )
    found = graph({"p": whole()})
    assert dict(found.steps[0].inner.steps[0].job.inputs) == {"x": 3}


def test_an_input_that_is_needed_below_is_missed_there():
    made = component({"x": {"type": "integer"}})
    whole = inner({"v": {"type": "integer", "optional": True}}, one=made(x="${{parent.inputs.v}}"))
    assert problem_of({"p": whole()})[1] == "jobs.p: jobs.one needs the input 'x' of its component"


def test_the_inputs_of_a_pipeline_that_is_a_component_are_checked():
    whole = inner({"v": {"type": "integer"}})
    with pytest.raises(PlanError, match="the pipeline job needs the input 'v'"):
        graph(None, component=whole)
    with pytest.raises(PlanError, match=r"inputs\.v: it takes a whole number, and gets 'x'"):
        graph(None, component=whole, inputs={"v": "x"})
    assert names(graph(None, component=whole, inputs={"v": 1})) == ["one"]


def test_a_pipeline_cannot_be_its_own_step(tmp_path):
    (tmp_path / "p.yml").write_text("type: pipeline\njobs:\n  a: {type: pipeline, component: ./p.yml}\n")
    with pytest.raises(PlanError, match="refers back to itself"):
        graph({"a": {"component": "p.yml"}}, base_path=str(tmp_path))


def test_pipelines_lie_in_each_other_up_to_a_depth():
    made = inner()
    for _ in range(12):
        made = inner(p=made())
    with pytest.raises(PlanError, match="more than 10 deep"):
        graph({"p": made()})


@pytest.mark.parametrize("count", [0, 1001])
def test_a_pipeline_has_a_step_and_not_too_many(count):
    assert problem_of({f"s{number}": node() for number in range(count)})[0] == "jobs"


# names


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a b", "1a", "a\n", "a" * 300])
def test_names_that_become_those_of_files_are_checked(name):
    assert any("may hold letters" in what for _, what, _ in problems_of({name: node()}))
    assert any("may hold letters" in what for _, what, _ in problems_of({"a": node()}, outputs={name: None}))


@pytest.mark.parametrize("name", ["../../x", "a/b", "", "a.b"])
def test_names_of_what_steps_write_are_those_of_folders_too(name):
    (problem,) = problems_of({"a": node(outputs={name: None})})
    assert problem[0] == f"jobs.a.outputs.{name}"
    assert "may hold letters" in problem[1]
