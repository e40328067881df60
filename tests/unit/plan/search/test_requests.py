"""What a sweep may not ask for, and the jobs of its trials."""

from __future__ import annotations

import math
import sys

import pytest

from drumline.contract.errors import PlanError
from drumline.contract.extras import install_line
from drumline.entities import Input, Output
from drumline.plan.search.sweep_request import request_of, trial_job
from drumline.spec.jobs.command import command
from drumline.spec.jobs.sweep import resolve_trial
from drumline.spec.jobs.validate import validate
from drumline.sweep import (
    BanditPolicy,
    Choice,
    LogUniform,
    MedianStoppingPolicy,
    Normal,
    QUniform,
    Randint,
    RandomSamplingAlgorithm,
    SweepJob,
    SweepJobLimits,
    TruncationSelectionPolicy,
    Uniform,
)


def sweep(**kwargs) -> SweepJob:
    base = {
        "name": "s",
        "trial": {"command": "python t.py ${{search_space.lr}}", "environment": "azureml:e:1"},
        "search_space": {"lr": Uniform(0, 1)},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 4},
    }
    return SweepJob(**{**base, **kwargs})


def problems(**kwargs) -> list[str]:
    with pytest.raises(PlanError) as raised:
        request_of(sweep(**kwargs))
    return [problem.path for problem in raised.value.problems]


def test_the_names_within_a_value_are_text():
    assert problems(search_space={"lr": Choice([{1: 2}])}) == ["search_space.lr"]


def test_what_is_not_said_has_azures_defaults():
    asked = request_of(sweep())
    assert (asked.max_total_trials, asked.max_concurrent_trials, asked.timeout_s, asked.policy) == (
        4,
        4,
        None,
        None,
    )
    assert (asked.search.algorithm, asked.search.rule, asked.search.seed) == ("random", "random", "s")
    assert asked.search.base == math.e


def test_what_is_said():
    algorithm = RandomSamplingAlgorithm(seed=9, logbase=10)
    limits = {"max_total_trials": 9, "max_concurrent_trials": 50, "timeout": 60, "trial_timeout": 5}
    asked = request_of(sweep(sampling_algorithm=algorithm, limits=limits))
    assert (asked.search.seed, asked.search.base, asked.max_concurrent_trials) == ("9", 10, 9)
    assert (asked.timeout_s, asked.trial_timeout_s) == (60, 5)


@pytest.mark.parametrize(
    ("space", "what"),
    [
        (Uniform(1, 0), "above max_value"),
        (Uniform(1), "max_value is missing"),
        (Uniform("a", "b"), "not numbers"),
        (QUniform(1, 2, 0), "q 0 is not above 0"),
        (Normal(0, -1), "sigma -1 is not above 0"),
        (Randint(0), "upper 0 is below 1"),
        (LogUniform(1, 10_000), "too large"),
        (Choice([]), "nothing to choose from"),
        (Choice(["a", "${{inputs.x}}"]), "a value cannot hold a placeholder"),
        (Choice([{"kind": "$[[x"}]), "a value cannot hold a placeholder"),
        (Choice(["a\0"]), "a value cannot hold a zero byte"),
        (Choice([None]), "text, a number, a boolean or a mapping, and None is not"),
        (Choice([10**5000]), "a value that is too large"),
        (Randint(10**400), "a bound that is too large"),
        (QUniform(0, 1, math.inf), "a bound that is not finite"),
        (Choice(), "values is missing"),
    ],
)
def test_spaces_that_hold_nothing_are_refused(space, what):
    with pytest.raises(PlanError, match=what) as raised:
        request_of(sweep(search_space={"lr": space}))
    assert raised.value.problems[0].path == "search_space.lr"
    nested = Choice([1, {"lr": space}])
    with pytest.raises(PlanError, match=r"search_space.x.1.lr: "):
        request_of(sweep(search_space={"x": nested}))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"limits": {"max_total_trials": 0}}, "limits.max_total_trials"),
        ({"limits": {"max_total_trials": 1001}}, "limits.max_total_trials"),
        ({"limits": {"max_total_trials": 2, "max_concurrent_trials": -1}}, "limits.max_concurrent_trials"),
        ({"limits": {"max_total_trials": 2, "timeout": 0}}, "limits.timeout"),
        ({"limits": SweepJobLimits()}, "limits"),
        ({"search_space": {}}, "search_space"),
        ({"objective": None}, "objective"),
        ({"objective": {"goal": "max", "primary_metric": "a"}}, "objective.goal"),
        ({"sampling_algorithm": RandomSamplingAlgorithm(logbase=1)}, "sampling_algorithm.logbase"),
        ({"sampling_algorithm": RandomSamplingAlgorithm(logbase="two")}, "sampling_algorithm.logbase"),
        ({"sampling_algorithm": "grid"}, "search_space.lr.type"),
        ({"early_termination": BanditPolicy()}, "early_termination"),
        ({"early_termination": BanditPolicy(slack_amount=1, slack_factor=1)}, "early_termination"),
        (
            {"early_termination": MedianStoppingPolicy(evaluation_interval=-1)},
            "early_termination.evaluation_interval",
        ),
        (
            {"early_termination": TruncationSelectionPolicy(truncation_percentage=100)},
            "early_termination.truncation_percentage",
        ),
    ],
)
def test_numbers_that_cannot_be_are_refused(change, path):
    assert problems(**change) == [path]


@pytest.mark.parametrize("algorithm", ["bayesian", RandomSamplingAlgorithm(rule="sobol")])
def test_an_algorithm_without_its_package_says_what_to_install(algorithm, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(PlanError, match="not installed") as raised:
        request_of(sweep(sampling_algorithm=algorithm))
    assert raised.value.hint == install_line("sweep")


def test_every_mistake_is_told_at_once():
    wrong = {
        "limits": {"max_total_trials": 0, "timeout": -1},
        "objective": None,
        "search_space": {"a": Randint(0)},
    }
    assert len(problems(**wrong)) == 4


def trial(one: SweepJob, params, number=0):
    return trial_job(one, resolve_trial(one, lambda text: pytest.fail(text)), params, number)


def test_the_job_of_a_trial_is_a_command_job_that_is_valid(tmp_path):
    (tmp_path / "src").mkdir()
    base = command(
        command="python t.py --lr ${{inputs.lr}} --data ${{inputs.data}} --out ${{outputs.model}}",
        code="src",
        environment="e:1",
        inputs={"lr": 1, "data": Input(path="x"), "epochs": 3},
        outputs={"model": Output(name="digits", version="2")},
        distribution={"type": "pytorch", "process_count_per_instance": 2},
        instance_count=2,
        environment_variables={"A": "1"},
        compute="azureml:cpu",
        base_path=str(tmp_path),
        drumline={"grace": 3},
    )
    one = base(lr=LogUniform(-5, -1)).sweep(
        primary_metric="loss", goal="minimize", max_total_trials=3, trial_timeout=60, priority="high"
    )
    one.name, one.experiment_name, one.tags = "s", "tuning", {"team": "a"}
    made = trial(one, {"lr": 0.25}, 7)
    assert validate(made).passed
    assert (made.name, made.parent_job_name, made.experiment_name) == ("s_7", "s", "tuning")
    assert made.command == "python t.py --lr 0.25 --data ${{inputs.data}} --out ${{outputs.model}}"
    assert (made.code, made.base_path) == ("src", str(tmp_path))
    assert set(made.inputs) == {"data", "epochs"}
    assert (made.outputs.model.name, one.outputs.model.name) == (None, "digits")
    assert (made.limits.timeout, made.resources.instance_count) == (60, 2)
    assert made.distribution.process_count_per_instance == 2
    assert (made.compute, made.queue_settings.priority, made.drumline) == (
        "azureml:cpu",
        "high",
        {"grace": 3},
    )
    assert made.tags == {"team": "a", "hyperparameters": '{"lr": 0.25}'}
    assert made.environment_variables == {
        "AZUREML_SWEEP_lr": "0.25",
        "AZUREML_PARAMETER_lr": "0.25",
        "AZUREML_SWEEP_epochs": "3",
        "AZUREML_PARAMETER_epochs": "3",
        "A": "1",
    }


def test_what_the_trial_says_goes_before_what_the_sweep_says():
    own = {"command": "x", "resources": {"instance_count": 2}, "queue_settings": {"job_tier": "spot"}}
    whole = {"resources": {"instance_count": 9}, "queue_settings": {"job_tier": "premium"}}
    made = trial(sweep(trial=own, **whole), {})
    assert (made.resources.instance_count, made.queue_settings.job_tier) == (2, "spot")
    made = trial(sweep(trial={"command": "x"}, **whole), {})
    assert (made.resources.instance_count, made.queue_settings.job_tier) == (9, "premium")


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        ("a ${{search_space.lr}}", {"lr": 1e-05}, "a 1e-05"),
        ("a {search_space.lr} ${search_space.lr}", {"lr": True}, "a True True"),
        ("a ${{ search_space.m.lr }} '${{search_space.m}}'", {"m": {"lr": 2}}, "a 2 '{\"lr\":2}'"),
        ("a $[[--d ${{search_space.m.d}}]]$[[ --lr ${{search_space.m.lr}} ${{inputs.x}}]]", {"m": {"lr": 2}},
         "a $[[ --lr 2 ${{inputs.x}}]]"),
        ("a $[[${{inputs.q}}]] $HOME ${HOME}", {}, "a $[[${{inputs.q}}]] $HOME ${HOME}"),
    ],
)  # fmt: skip
def test_hyperparameters_are_filled_in_and_nothing_else_is(text, params, expected):
    assert trial(sweep(trial={"command": text}), params).command == expected


@pytest.mark.parametrize("value", ["${{inputs.x}}", "{outputs.o}", "$[[x]]"])
def test_a_value_that_would_be_filled_in_once_more_is_refused(value):
    with pytest.raises(PlanError, match="cannot hold a placeholder"):
        trial(sweep(), {"lr": value})


def test_a_hyperparameter_that_is_not_there_is_refused():
    with pytest.raises(PlanError, match=r"search_space.lrr"):
        trial(sweep(trial={"command": "${{search_space.lrr}}"}), {"lr": 1})
