"""Pipelines and sweeps are read and checked."""

from __future__ import annotations

import pytest

from drumline.contract.errors import SpecError
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.pipeline import PipelineJob
from drumline.spec.jobs.sweep import SweepJob
from drumline.spec.jobs.validate import validate
from drumline.spec.load import load_job

COMPONENT = """
name: c
type: command
inputs: {x: {type: integer}, y: {type: string, optional: true}, z: {type: number, default: 1}}
outputs: {o: {type: uri_folder}}
environment: azureml:e:1
command: echo ${{inputs.x}} $[[${{inputs.y}}]] ${{outputs.o}}
anything: goes
"""
PIPELINE = """
type: pipeline
compute: azureml:cpu
inputs: {n: 2, group.lr: 0.1}
outputs: {res: {mode: upload}}
jobs:
  a:
    command: echo ${{inputs.n}} > ${{outputs.o}}/x
    environment: azureml:e:1
    inputs: {n: "${{parent.inputs.n}}"}
    outputs: {o: "${{parent.outputs.res}}"}
  b:
    type: command
    component: ./comp.yml
    inputs: {x: 3, data: "${{parent.jobs.a.outputs.o}}"}
    whatever: 1
"""
SWEEP = """
type: sweep
trial:
  command: python train.py --lr ${{search_space.lr}} --x ${{inputs.x}}
  environment: azureml:e:1
  distribution: {type: pytorch, process_count_per_instance: 2}
inputs: {x: 1}
search_space: {lr: {type: uniform, min_value: 0.1, max_value: 1}}
objective: {goal: minimize, primary_metric: loss}
limits: {max_total_trials: 4}
sampling_algorithm: random
compute: azureml:cpu
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "comp.yml").write_text(COMPONENT)

    def to_file(text, old="", new=""):
        assert old in text
        path = tmp_path / "job.yml"
        path.write_text(text.replace(old, new))
        return path

    return to_file


def problems_of(path):
    try:
        return validate(load_job(path)).problems
    except SpecError as error:
        return list(error.problems)


def test_a_pipeline_is_read(write):
    job = load_job(write(PIPELINE))
    assert isinstance(job, PipelineJob)
    assert (list(job.jobs), job.inputs.n, validate(job).passed) == (["a", "b"], 2, True)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("${{parent.inputs.n}}", "${{parent.inputs.zz}}", 10),
        ("${{parent.inputs.n}}", "${{inputs.n}}", 10),
        ("jobs.a.outputs.o", "jobs.zz.outputs.o", 15),
        ("jobs.a.outputs.o", "jobs.a.outputs.zz", 15),
        ("x: 3, ", "", 15),
        ("echo ${{inputs.n}}", "echo ${{inputs.zz}}", 8),
        ("component: ./comp.yml", "component: ./nope.yml", 14),
        ("  b:\n", "  B:\n", 12),
        ("  b:\n    type: command", "  b:\n    type: tpu", 13),
        ("    environment: azureml:e:1", "    environmnt: azureml:e:1", 9),
        ("compute: azureml:cpu", "settings: {default_compute: cpu}", 3),
        ("compute: azureml:cpu", "settings: {default_datastore: x}", 3),
    ],
)
def test_a_mistake_in_a_pipeline_has_a_line(write, old, new, line):
    assert line in [problem.line for problem in problems_of(write(PIPELINE, old, new))]


def test_a_pipeline_without_a_compute_runs_on_this_machine(write):
    assert problems_of(write(PIPELINE, "compute: azureml:cpu", "")) == []


@pytest.mark.parametrize(
    "settings",
    ["{default_compute: azureml:cpu}", "{default_compute: serverless, anything: 1}"],
)
def test_settings_may_name_the_compute(write, settings):
    path = write(PIPELINE, "compute: azureml:cpu", f"settings: {settings}")
    assert problems_of(path) == []


def test_jobs_and_component_exclude_each_other(write):
    assert problems_of(write(PIPELINE, "type: pipeline", "type: pipeline\ncomponent: azureml:c:1"))


def test_a_component_is_checked_in_its_own_file(write, tmp_path):
    path = write(PIPELINE)
    (tmp_path / "comp.yml").write_text(COMPONENT.replace("echo ${{inputs.x}}", "echo ${{inputs.w}}"))
    (problem,) = problems_of(path)
    assert problem.file.endswith("comp.yml")


def test_a_sweep_is_read(write):
    job = load_job(write(SWEEP))
    assert isinstance(job, SweepJob)
    assert (job.limits.max_total_trials, validate(job).passed) == (4, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("goal: minimize", "goal: max"),
        ("limits: {max_total_trials: 4}", "limits: {timeout: 4}"),
        ("limits: {max_total_trials: 4}\n", ""),
        ("type: uniform", "type: unifrom"),
        (", max_value: 1", ""),
        ("sampling_algorithm: random", "sampling_algorithm: best"),
        ("sampling_algorithm: random", "early_termination: {type: truncation_selection}"),
        ("${{inputs.x}}", "${{inputs.zz}}"),
        ("${{inputs.x}}", "{inputs.zz}"),
        ("command: python", "cmd: python"),
        ("type: pytorch", "type: torch"),
    ],
)
def test_a_mistake_in_a_sweep_is_found(write, old, new):
    assert problems_of(write(SWEEP, old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sampling_algorithm: random", "sampling_algorithm: {type: random, seed: 1, rule: sobol}"),
        ("sampling_algorithm: random", "early_termination: {type: bandit, slack_factor: 0.1}"),
        (
            "{type: uniform, min_value: 0.1, max_value: 1}",
            "{type: choice, values: [1, a, 0.5, {k: 1}]}",
        ),
        ("goal: minimize", "goal: Maximize"),
    ],
)
def test_other_forms_of_a_sweep_are_read(write, old, new):
    assert problems_of(write(SWEEP, old, new)) == []


@pytest.mark.parametrize("text", [PIPELINE, SWEEP])
def test_pipelines_and_sweeps_load_back_from_their_text(write, tmp_path, text):
    job = load_job(write(text))
    (tmp_path / "again.yml").write_text(str(job))
    assert to_dict(load_job(tmp_path / "again.yml")) == to_dict(job)


def test_jobs_that_are_no_mapping_are_refused():
    with pytest.raises(SpecError, match="jobs must be a mapping, not a list"):
        PipelineJob(jobs=[1])


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("jobs.a.outputs.o}", "jobs.a.outputs.artefacts}", "did you mean 'artifacts'?"),
        ("jobs.a.outputs.o}", "jobs.a.outputs.defalt}", "did you mean 'default'?"),
        ("jobs.a.outputs.o}", "jobs.a.outputs.zzz}", "known: o, default, artifacts"),
        (
            "compute: azureml:cpu",
            'settings: {default_compute: "${{parent.inputs.n}}"}',
            "a setting cannot be bound; write `compute: ${{parent.inputs.n}}` on the steps",
        ),
        (
            "compute: azureml:cpu",
            'settings: {default_compute: "azureml:${{parent.inputs.n}}"}',
            "a setting cannot be bound; write `compute: ${{parent.inputs.n}}` on the steps",
        ),
    ],
)
def test_a_mistake_in_a_binding_has_a_hint(write, old, new, hint):
    assert hint in [problem.hint for problem in problems_of(write(PIPELINE, old, new))]
