"""Sweeps built in Python, as azure-ai-ml's users build them, and read from YAML."""

from __future__ import annotations

from typing import Any

import pytest

import drumline.sweep
from drumline.contract.errors import SpecError
from drumline.entities import CommandJobLimits, Input, Output, QueueSettings, Sweep
from drumline.spec.jobs.command import CommandComponent, command
from drumline.spec.jobs.job import to_dict
from drumline.spec.jobs.sweep import ParameterizedCommand, resolve_trial
from drumline.spec.jobs.validate import validate
from drumline.spec.load import load_job
from drumline.sweep import (
    BanditPolicy,
    BayesianSamplingAlgorithm,
    Choice,
    GridSamplingAlgorithm,
    LogNormal,
    LogUniform,
    MedianStoppingPolicy,
    Normal,
    Objective,
    QLogNormal,
    QLogUniform,
    QNormal,
    QUniform,
    Randint,
    RandomSamplingAlgorithm,
    SweepJob,
    SweepJobLimits,
    TruncationSelectionPolicy,
    Uniform,
)

AZURES_NAMES = {
    "BanditPolicy", "BayesianSamplingAlgorithm", "Choice", "GridSamplingAlgorithm", "LogNormal", "LogUniform",
    "MedianStoppingPolicy", "Normal", "Objective", "QLogNormal", "QLogUniform", "QNormal", "QUniform", "Randint",
    "RandomSamplingAlgorithm", "SamplingAlgorithm", "SweepJob", "SweepJobLimits", "TruncationSelectionPolicy",
    "Uniform",
}  # fmt: skip


def job(**kwargs):
    base = {
        "command": "python train.py --lr ${{inputs.lr}} --n ${{inputs.n}} --data ${{inputs.data}}",
        "environment": "azureml:e:1",
        "inputs": {"lr": 0.9, "n": 1, "data": Input(type="uri_file", path="iris.csv")},
        "compute": "azureml:cpu",
        "distribution": {"type": "PyTorch", "process_count_per_instance": 2},
        "instance_count": 2,
        "environment_variables": {"A": "1"},
    }
    return command(**{**base, **kwargs})


def sweep(**kwargs) -> SweepJob:
    made = job()(lr=Uniform(0.01, 0.9), n=Choice([1, 2])).sweep(
        primary_metric="loss", goal="Minimize", **kwargs
    )
    made.set_limits(max_total_trials=20)
    return made


def test_the_names_are_those_of_azure_ai_ml():
    assert set(drumline.sweep.__all__) == {*AZURES_NAMES, "EarlyTerminationPolicy"}
    assert Sweep is SweepJob


def test_the_documented_way_to_a_sweep():
    """Source: how-to-tune-hyperparameters, "Configure your hyperparameter tuning experiment"."""
    base = job()
    for_sweep = base(lr=Uniform(min_value=0.01, max_value=0.9), n=Choice(values=[1, 2]))
    made = for_sweep.sweep(
        compute="gpu", sampling_algorithm="random", primary_metric="test-multi_logloss", goal="Minimize"
    )
    made.display_name = "lightgbm"
    made.set_limits(max_total_trials=20, max_concurrent_trials=10, timeout=7200)
    made.early_termination = MedianStoppingPolicy(delay_evaluation=5, evaluation_interval=2)
    assert validate(made).passed
    assert to_dict(made) == {
        "type": "sweep",
        "display_name": "lightgbm",
        "trial": {
            "command": "python train.py --lr ${{search_space.lr}} --n ${{search_space.n}} --data ${{inputs.data}}",
            "environment": "azureml:e:1",
            "environment_variables": {"A": "1"},
            "resources": {"instance_count": 2},
            "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        },
        "search_space": {
            "lr": {"type": "uniform", "min_value": 0.01, "max_value": 0.9},
            "n": {"type": "choice", "values": [1, 2]},
        },
        "objective": {"goal": "minimize", "primary_metric": "test-multi_logloss"},
        "sampling_algorithm": "random",
        "early_termination": {"type": "median_stopping", "evaluation_interval": 2, "delay_evaluation": 5},
        "limits": {"max_total_trials": 20, "max_concurrent_trials": 10, "timeout": 7200},
        "compute": "gpu",
        "inputs": {"data": {"type": "uri_file", "path": "iris.csv"}},
    }
    assert base.inputs.lr == 0.9
    assert "${{inputs.lr}}" in for_sweep.command


def test_what_is_given_to_sweep_goes_before_what_the_job_says():
    base = job(timeout=60, outputs={"model": Output()})
    made = base.sweep(
        primary_metric="acc",
        goal="MAXIMIZE",
        search_space={"lr": {"type": "uniform", "min_value": 0, "max_value": 1}},
        trial_timeout=30,
        max_total_trials=3,
        job_tier="Spot",
        early_termination_policy="Median_Stopping",
    )
    assert made.objective == Objective("maximize", "acc")
    assert made.search_space.lr == Uniform(0, 1)
    assert set(made.inputs) == {"n", "data"}
    assert made.limits == SweepJobLimits(max_total_trials=3, trial_timeout=30)
    assert made.queue_settings == QueueSettings(job_tier="spot")
    assert made.early_termination == MedianStoppingPolicy()
    assert list(made.outputs) == ["model"]
    assert made.compute == "azureml:cpu"
    assert base.sweep(primary_metric="a", goal="minimize").limits.trial_timeout == 60


def test_a_sweep_takes_what_it_lacks_from_the_job_that_is_its_trial():
    trial = job(limits=CommandJobLimits(timeout=9))(lr=LogUniform(-6, -1))
    made = SweepJob(trial=trial, objective={"goal": "minimize", "primary_metric": "loss"}, search_space={})
    assert (made.compute, set(made.inputs), made.limits.trial_timeout) == ("azureml:cpu", {"n", "data"}, 9)
    assert made.search_space == {"lr": LogUniform(-6, -1)}
    assert made.trial is trial
    assert "${{search_space.lr}}" in to_dict(made)["trial"]["command"]
    explicit = SweepJob(trial=trial, compute="x", inputs={"n": 2})
    assert (explicit.compute, dict(explicit.inputs)) == ("x", {"n": 2})


@pytest.mark.parametrize(
    ("made", "fields"),
    [
        (Choice([1, "a", 0.5, True]), {"values": [1, "a", 0.5, True]}),
        (Choice(values=range(1, 5), type="choice"), {"values": [1, 2, 3, 4]}),  # type: ignore[call-arg]
        (Uniform(1, 2), {"min_value": 1, "max_value": 2}),
        (LogUniform(-2, -1), {"min_value": -2, "max_value": -1}),
        (QUniform(1, 10, 2), {"min_value": 1, "max_value": 10, "q": 2}),
        (QLogUniform(min_value=0, max_value=3, q=1), {"min_value": 0, "max_value": 3, "q": 1}),
        (Normal(10, 3), {"mu": 10, "sigma": 3}),
        (LogNormal(mu=0, sigma=1), {"mu": 0, "sigma": 1}),
        (QNormal(10, 3, 2), {"mu": 10, "sigma": 3, "q": 2}),
        (QLogNormal(0, 1, 1), {"mu": 0, "sigma": 1, "q": 1}),
        (Randint("5"), {"upper": 5}),
    ],
)
def test_parameter_expressions_take_positions_and_come_back_from_plain_data(made, fields):
    one = sweep()
    one.search_space = {"lr": made}
    plain = to_dict(one)["search_space"]["lr"]
    assert plain == {"type": made.type, **fields}
    one.search_space = {"lr": plain}
    assert one.search_space.lr == made
    assert type(one.search_space.lr) is type(made)
    assert validate(one).passed


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    made = Choice(numpy.arange(2)), Choice([numpy.float32(0.5)]), Uniform(numpy.float64(0), numpy.int64(1))
    assert made == (Choice([0, 1]), Choice([0.5]), Uniform(0.0, 1))
    assert [type(value) for value in made[0].values] == [int, int]


def test_choices_may_be_nested():
    nested = Choice(
        [{"model": "a", "lr": Uniform(0, 1)}, {"model": "b", "depth": {"type": "randint", "upper": 3}}]
    )
    assert nested.values[1]["depth"] == Randint(3)
    one = sweep(search_space={"lr": nested})
    assert validate(one).passed
    assert to_dict(one)["search_space"]["lr"]["values"][0] == {
        "model": "a",
        "lr": {"type": "uniform", "min_value": 0, "max_value": 1},
    }


@pytest.mark.parametrize(
    ("attribute", "given", "expected"),
    [
        ("sampling_algorithm", "Grid", "grid"),
        ("sampling_algorithm", {"type": "bayesian"}, BayesianSamplingAlgorithm()),
        ("sampling_algorithm", {"type": "grid"}, GridSamplingAlgorithm()),
        (
            "sampling_algorithm",
            {"type": "random", "seed": "9", "rule": "Sobol"},
            RandomSamplingAlgorithm(seed=9, rule="sobol"),
        ),
        ("early_termination", {"type": "bandit", "slack_factor": 0.1}, BanditPolicy(slack_factor=0.1)),
        ("early_termination", {"type": "MedianStopping"}, MedianStoppingPolicy()),
        (
            "early_termination",
            {"type": "truncation_selection", "truncation_percentage": 20, "evaluation_interval": None},
            TruncationSelectionPolicy(truncation_percentage=20),
        ),
        ("early_termination", None, None),
        ("objective", {"goal": "Maximize", "primary_metric": "f1"}, Objective("maximize", "f1")),
        ("limits", {"max_total_trials": "4"}, SweepJobLimits(max_total_trials=4)),
    ],
)
def test_setting_an_attribute_to_a_dictionary_makes_the_object(attribute, given, expected):
    one = sweep()
    setattr(one, attribute, given)
    assert getattr(one, attribute) == expected
    assert validate(one).passed


@pytest.mark.parametrize(
    ("attribute", "given", "what"),
    [
        ("sampling_algorithm", "best", "unknown algorithm 'best'"),
        ("early_termination", {"type": "stop"}, "unknown policy 'stop'"),
        (
            "early_termination",
            {"type": "median_stopping", "slack": 1},
            "unknown keyword 'slack' in early_termination",
        ),
        ("objective", "loss", "give Objective"),
        ("limits", 20, "give SweepJobLimits"),
        ("search_space", {"lr": 0.1}, "search_space.lr"),
        ("search_space", {"lr": {"type": "unifrom"}}, "'unifrom' is not a type"),
        ("trial", 5, "trial cannot be of type 'int'"),
        ("trial", {"cmd": "x"}, "trial has no 'cmd'"),
    ],
)
def test_what_it_cannot_be_is_refused_at_once(attribute, given, what):
    with pytest.raises(SpecError, match=what):
        setattr(sweep(), attribute, given)


def test_limits_and_objective_are_set_one_by_one():
    one = sweep()
    one.set_limits(timeout=5)
    one.set_objective(goal="maximize")
    assert one.limits == SweepJobLimits(max_total_trials=20, timeout=5)
    assert one.objective == Objective("maximize", "loss")


def test_a_sweep_without_a_limit_is_refused_and_told_so():
    made = job()(lr=Uniform(0, 1)).sweep(primary_metric="loss", goal="minimize")
    assert list(validate(made).error_messages) == ["limits"]


@pytest.mark.parametrize(
    "policy",
    [
        BanditPolicy(slack_amount=0.2, evaluation_interval=1, delay_evaluation=5),
        TruncationSelectionPolicy(truncation_percentage=20, exclude_finished_jobs=True),
        MedianStoppingPolicy(),
        None,
    ],
)
def test_a_sweep_loads_back_from_its_text(policy, tmp_path):
    (tmp_path / "iris.csv").touch()
    one = sweep(sampling_algorithm=RandomSamplingAlgorithm(seed=1, rule="sobol", logbase="e"))
    one.early_termination = policy
    one.resources = {"instance_type": "gpu"}
    (tmp_path / "sweep.yml").write_text(str(one))
    again = load_job(tmp_path / "sweep.yml")
    assert again == one
    assert str(again) == str(one)
    one.dump(tmp_path / "again.yml")
    read: Any = load_job(tmp_path / "again.yml")
    assert read.search_space == one.search_space


def test_paths_of_a_trial_resolve_against_its_file(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "conda.yml").write_text("dependencies: []")
    path = tmp_path / "sweep.yml"
    path.write_text(
        "type: sweep\ntrial:\n  command: echo ${{search_space.lr}}\n  code: src\n"
        "  environment: {image: a, conda_file: conda.yml}\n"
        "search_space: {lr: {type: choice, values: [1]}}\n"
        "objective: {goal: minimize, primary_metric: loss}\nlimits: {max_total_trials: 1}\n"
    )
    trial = to_dict(load_job(path), absolute=True)["trial"]
    assert (trial["code"], trial["environment"]["conda_file"]) == (
        str(tmp_path / "src"),
        str(tmp_path / "conda.yml"),
    )
    assert to_dict(load_job(path))["trial"]["code"] == "src"


def test_a_component_as_trial(tmp_path):
    component = CommandComponent(
        name="train",
        command="python t.py ${{inputs.lr}} ${{inputs.n}} > ${{outputs.model}}",
        environment="azureml:e:1",
        inputs={"lr": {"type": "number"}, "n": {"type": "integer", "default": 3}},
        outputs={"model": {"type": "uri_folder"}},
        distribution={"type": "mpi", "process_count_per_instance": 2},
        base_path=str(tmp_path),
    )
    made = component(lr=LogUniform(-6, -1)).sweep(primary_metric="loss", goal="minimize", max_total_trials=2)
    assert validate(made).passed
    assert made.trial.command == "python t.py ${{search_space.lr}} ${{inputs.n}} > ${{outputs.model}}"
    assert (dict(made.inputs), list(made.outputs)) == ({"n": 3}, ["model"])
    assert made.trial.distribution.process_count_per_instance == 2
    whole = SweepJob(trial=component, search_space={"lr": Uniform(0, 1)})
    assert "${{search_space.lr}}" in resolve_trial(whole, lambda text: pytest.fail(text)).command


def test_a_trial_by_reference_is_read_when_it_is_needed(tmp_path):
    (tmp_path / "c.yml").write_text(
        "name: c\ntype: command\ncommand: echo ${{inputs.lr}}\nenvironment: azureml:e:1\n"
        "inputs: {lr: {type: number}}\n"
    )
    one = SweepJob(trial="file:c.yml", search_space={"lr": Uniform(0, 1)}, base_path=str(tmp_path))
    assert to_dict(one)["trial"] == "file:c.yml"
    assert to_dict(one, absolute=True)["trial"] == f"file:{tmp_path}/c.yml"
    assert resolve_trial(one, lambda text: pytest.fail(text)).command == "echo ${{search_space.lr}}"
    named = SweepJob(trial="azureml:c:1", search_space={"lr": Uniform(0, 1)})
    found = resolve_trial(named, lambda text: CommandComponent(name=text, command="true"))
    assert isinstance(found, ParameterizedCommand)
    with pytest.raises(SpecError, match="no trial"):
        resolve_trial(SweepJob(), lambda text: None)
