"""Experiments of DeepSpeed's autotuner, as their folders have them."""

import os

import pytest

from drumline.tracking import autotuner_experiments

MEASURED = '{"throughput": 812.5, "latency": 12.25, "FLOPS_per_gpu": 3, "rank": 0}'


@pytest.fixture
def experiment(tmp_path):
    def make(name, measured=MEASURED, described="{}"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for file, text in (("metrics.json", measured), ("exp.json", described)):
            if text is not None:
                (folder / file).write_text(text)
        return folder

    return make


def read(folder):
    return {name: point.value for name, point in autotuner_experiments.read_experiments(str(folder)).items()}


def test_each_experiment_has_its_measurements(experiment, tmp_path):
    experiment("autotuning_results/z0_gas1_tmbspg8")
    experiment("autotuning_results/z1_gas1_tmbspg8", '{"throughput": 900}')
    assert read(tmp_path) == {
        ("z0_gas1_tmbspg8", "throughput"): 812.5,
        ("z0_gas1_tmbspg8", "latency"): 12.25,
        ("z0_gas1_tmbspg8", "FLOPS_per_gpu"): 3.0,
        ("z1_gas1_tmbspg8", "throughput"): 900.0,
    }


def test_experiments_are_found_beside_many_outputs(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(autotuner_experiments, "_MOST_ENTRIES", 20)
    for number in range(30):
        (tmp_path / f"checkpoint-{number}").touch()
    experiment("autotuning_results/z0")
    assert read(tmp_path)["z0", "throughput"] == 812.5


@pytest.mark.parametrize(
    ("described", "step"),
    [('{"exp_id": 7}', 7), ("{}", 0), ('{"exp_id": -1}', 0), ('{"exp_id": true}', 0), ("[]", 0), ("{", 0)],
)
def test_its_step_is_the_number_of_the_experiment(experiment, tmp_path, described, step):
    experiment("z0", described=described)
    assert autotuner_experiments.read_experiments(str(tmp_path))["z0", "latency"].step == step


def test_a_value_has_the_time_at_which_it_was_written(experiment, tmp_path):
    os.utime(experiment("z0") / "metrics.json", (5, 5))
    assert autotuner_experiments.read_experiments(str(tmp_path))["z0", "latency"].timestamp_ms == 5000


@pytest.mark.parametrize(
    "measured",
    [
        "",
        "[1]",
        "{",
        '{"throughput": "12"}',
        '{"throughput": true}',
        f'{{"throughput": 1{"0" * 400}}}',
        "[" * 9999,
    ],
)
def test_what_cannot_be_read_is_left_out(experiment, tmp_path, measured):
    experiment("z0", measured)
    assert read(tmp_path) == {}


def test_a_file_of_that_name_alone_is_no_experiment(experiment, tmp_path):
    experiment("model", described=None)
    experiment("profile_model_info", measured=None)
    assert read(tmp_path) == {}


def test_links_and_pipes_are_not_followed(experiment, tmp_path):
    os.symlink(experiment("elsewhere/z0"), tmp_path / "z0")
    os.mkfifo(experiment("z1", measured=None) / "metrics.json")
    os.symlink(tmp_path / "elsewhere/z0/metrics.json", experiment("z2", measured=None) / "metrics.json")
    assert {name for name, _ in read(tmp_path)} == {"z0"}
    assert read(tmp_path / "nothing") == {}
