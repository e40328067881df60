"""``--set inputs.x=...`` of an input that the job neither declares nor uses."""

import io

import pytest

from drumline import load_job

COMMAND = """
command: python train.py --lr ${{inputs.lr}} --seed ${{inputs.seed}} $AZURE_ML_INPUT_more
inputs: {lr: 0.1, seed: 1}
"""
PIPELINE = """
type: pipeline
inputs: {rate: 0.5}
jobs:
  train:
    command: python train.py ${{inputs.lr}}
    inputs: {lr: "${{parent.inputs.rate}}"}
  score:
    component: azureml:score:1
"""
SWEEP = """
type: sweep
inputs: {epochs: 3}
search_space: {lr: {type: uniform, min_value: 0.1, max_value: 1.0}}
objective: {goal: minimize, primary_metric: loss}
limits: {max_total_trials: 1}
trial:
  command: python train.py ${{search_space.lr}} ${{inputs.epochs}}
"""


NO_INPUTS = "it has no inputs: to change an argument, set the command (--set command='...')"


def warnings_of(text, change):
    return load_job(io.StringIO(text), params_override=[change])._warnings


@pytest.mark.parametrize(
    ("text", "path", "hint"),
    [
        (COMMAND, "inputs.lrr", "did you mean 'lr'?"),
        (COMMAND, "inputs.epochs", "inputs of the job: lr, seed"),
        (COMMAND, "inputs.see", "did you mean 'seed'?"),
        ("command: 'true'", "inputs.lr", NO_INPUTS),
        (PIPELINE, "inputs.rat", "did you mean 'rate'?"),
        (PIPELINE, "jobs.train.inputs.lrr", "did you mean 'lr'?"),
        (SWEEP, "inputs.epoch", "did you mean 'epochs'?"),
    ],
)
def test_an_input_that_nothing_uses_gets_a_warning(text, path, hint):
    (warning,) = warnings_of(text, {path: "7"})
    assert warning == f"{path} is set, but the job neither declares nor uses this input; {hint}"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (COMMAND, "inputs.lr"),
        (COMMAND, "inputs.more"),
        (COMMAND, "display_name"),
        ("command: echo ${{inputs.lr}}", "inputs.lr"),
        (PIPELINE, "inputs.rate"),
        (PIPELINE, "jobs.train.inputs.lr"),
        (PIPELINE, "jobs.score.inputs.x"),
        (SWEEP, "inputs.epochs"),
    ],
)
def test_an_input_that_is_declared_or_used_gets_none(text, path):
    assert warnings_of(text, {path: "7"}) == []


def test_a_path_below_an_input_counts_as_the_input():
    assert (
        warnings_of("command: ls ${{inputs.d}}\ninputs: {d: {path: /tmp}}", {"inputs.d.path": "/var"}) == []
    )
    (warning,) = warnings_of(
        "command: ls ${{inputs.d}}\ninputs: {d: {path: /tmp}}", {"inputs.dd.path": "/var"}
    )
    assert warning.startswith("inputs.dd is set")
