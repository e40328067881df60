"""Searches of v1, with nothing but their import lines changed."""

import json
from typing import Any

import pytest

from drumline.compat.hyperdrive import to_sweep
from drumline.exceptions import ValidationException
from drumline.spec.jobs.job import to_dict
from drumline.v1 import (
    BanditPolicy,
    BayesianParameterSampling,
    Estimator,
    Experiment,
    GridParameterSampling,
    HyperDriveConfig,
    NoTerminationPolicy,
    PrimaryMetricGoal,
    RandomParameterSampling,
    ScriptRunConfig,
    Workspace,
    choice,
    loguniform,
    uniform,
)

TRAIN = """
import argparse
from drumline.v1 import Run
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int)
args = parser.parse_args()
Run.get_context().log("accuracy", args.lr * args.batch_size)
"""


def test_a_search_finds_its_best_trial(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    config = HyperDriveConfig(
        run_config=ScriptRunConfig(".", "train.py", ["--batch-size", 10]),
        hyperparameter_sampling=GridParameterSampling({"--lr": choice(0.5, 0.25)}),
        policy=NoTerminationPolicy(),
        primary_metric_name="accuracy",
        primary_metric_goal=PrimaryMetricGoal.MAXIMIZE,
        max_total_runs=2,
        max_concurrent_runs=2,
    )
    run: Any = Experiment(Workspace.get("lab"), "search").submit(config, tags={"a": "1"})
    run.wait_for_completion(show_output=True)
    best = run.get_best_run_by_primary_metric()
    assert best.get_metrics() == {"accuracy": 5.0}
    assert json.loads(run.get_hyperparameters()[best.id]) == {"lr": 0.5}
    first, second = run.get_children_sorted_by_primary_metric()
    assert (first["run_id"], first["best_primary_metric"], second["best_primary_metric"]) == (
        best.id,
        5.0,
        2.5,
    )
    assert run.get_children_sorted_by_primary_metric(top=1, reverse=True) == [second]
    assert sorted(one["accuracy"] for one in run.get_metrics().values()) == [2.5, 5.0]
    assert run.get_tags() == {"a": "1"}


def test_a_search_is_a_sweep():
    config = HyperDriveConfig(
        RandomParameterSampling({"learning_rate": loguniform(-6, -1), "--batch-size": choice(range(1, 3))}),
        "loss",
        PrimaryMetricGoal.MINIMIZE,
        20,
        4,
        60,
        BanditPolicy(slack_factor=0.1, evaluation_interval=2, delay_evaluation=5),
        estimator=Estimator("src", entry_script="train.py", script_params={"--a": 1}, compute_target="gpu"),
    )
    sweep = to_dict(to_sweep(config))
    assert sweep["trial"]["command"] == (
        "python train.py --a 1 --learning_rate ${{search_space.learning_rate}} "
        "--batch-size ${{search_space.batch_size}}"
    )
    assert sweep["search_space"] == {
        "learning_rate": {"type": "loguniform", "min_value": -6, "max_value": -1},
        "batch_size": {"type": "choice", "values": [1, 2]},
    }
    assert sweep["objective"] == {"goal": "minimize", "primary_metric": "loss"}
    assert sweep["limits"] == {"max_total_trials": 20, "max_concurrent_trials": 4, "timeout": 3600}
    assert sweep["early_termination"] == {
        "type": "bandit",
        "evaluation_interval": 2,
        "delay_evaluation": 5,
        "slack_amount": 0,
        "slack_factor": 0.1,
    }
    assert sweep["compute"] == "gpu"
    assert (sweep["type"], sweep["sampling_algorithm"]) == ("sweep", "random")


def test_what_is_no_search_is_refused():
    program = ScriptRunConfig(".", "train.py")
    with pytest.raises(ValidationException, match="needs a run_config"):
        HyperDriveConfig(BayesianParameterSampling({"--lr": uniform(0, 1)}), "m", "MAXIMIZE", 1)
    with pytest.raises(ValidationException, match="hyperparameter_sampling cannot be of type 'dict'"):
        HyperDriveConfig({"--lr": uniform(0, 1)}, "m", "MAXIMIZE", 1, run_config=program)
    with pytest.raises(ValidationException, match="must name a hyperparameter"):
        RandomParameterSampling({})


def test_an_expression_without_a_bound_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="max_value"):
        uniform(0.1)  # type: ignore[call-arg]
