"""DeepSpeed's autotuner in a job of two nodes, whose experiments train on both of them."""

import itertools
import json
import re

import pytest
from frameworks.conftest import skip_without

from drumline.contract.folder import RunFolder
from drumline.control.facts import description, metrics

EXPERIMENTS = {f"z{stage}_{sizes}" for stage in (0, 1) for sizes in ("gas4_tmbspg8", "gas1_tmbspg32")}


@pytest.mark.timeout(1800)
def test_the_best_configuration_trains(examples, run_in):
    """Experiments are commands of two launchers and four ranks each: minutes on two cores."""
    skip_without("deepspeed", "deepspeed", "transformers", "tabulate")
    words = ("job", "create", "-f", "job.yml", "--name", "calm_drum", "--stream")
    done = run_in("deepspeed", examples / "deepspeed-autotuning", "-m", "drumline", *words, timeout_s=1500)
    assert done.rc == 0, done.out[-4000:] + done.err
    folder = RunFolder.for_job("calm_drum")
    results = f"{folder.outputs}/autotuning_results"

    measured = {
        (one.run, one.name): [point.value for point in one] for one in metrics.read_metrics(folder).series
    }
    for name in EXPERIMENTS:
        (throughput,) = measured[name, "throughput"]
        assert throughput > 0
        with open(f"{results}/{name}/stdout.log") as file:
            hosts = {line.partition(":")[0] for line in file if "spawned with command" in line}
        assert hosts == {"127.0.0.1", "127.0.0.2"}

    told = {one["experiment"]: one for one in description.show_job("calm_drum")["experiments"]}
    assert set(told) == EXPERIMENTS | {"profile_model_info"}
    assert {(one["status"], one["reason"]) for one in told.values()} == {("Completed", "")}
    assert sorted(one["number"] for one in told.values()) == list(range(len(told)))
    ends = sorted((one["began_at"], one["ended_at"]) for one in told.values())
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))

    with open(f"{results}/ds_config_optimal.json") as file:
        best = json.load(file)
    name = max(EXPERIMENTS, key=lambda name: measured[name, "throughput"][0])
    assert name.endswith(f"tmbspg{best['train_micro_batch_size_per_gpu']}")
    assert name.startswith(f"z{best['zero_optimization']['stage']}_")

    # It trains to the end, and not the six steps of an experiment.
    accuracy = re.search(r"test accuracy (0\.\d+) \(4 ranks\)", done.out)
    assert accuracy, done.out[-4000:]
    assert float(accuracy[1]) > 0.8
