"""A sweep whose trials are jobs of Slurm."""

import json
import textwrap

from cli_jobs import two_by_two
from slurm_jobs import COMPUTE

TRAIN = """
    import os, sys, time
    from drumline.v1 import Run

    log = Run.get_context().log
    while os.environ["RANK"] == "0":
        log("loss", float(sys.argv[1]))
        if sys.argv[1] != "9":
            break
        time.sleep(0.05)
"""


def test_the_policy_stops_a_trial_on_the_cluster(slurm, tmp_path, cli):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(textwrap.dedent(TRAIN))
    sweep = {
        "type": "sweep",
        "name": "s",
        "compute": f"azureml:{COMPUTE}",
        "trial": {
            "command": "python train.py ${{search_space.what}}",
            "code": "src",
            "drumline": {"grace": 0.5},
            **two_by_two(),
        },
        "search_space": {"what": {"type": "choice", "values": [0.5, 9]}},
        "sampling_algorithm": "grid",
        "early_termination": {"type": "bandit", "slack_factor": 1},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 2},
    }
    path = tmp_path / "sweep.yml"
    path.write_text(json.dumps(sweep))
    done = cli("job", "create", "-f", path, "--stream")
    assert done.rc == 0, done.out + done.err
    shown = slurm.show("s")
    assert shown["reason"] == "2 trials: 1 completed, 1 stopped early; best loss 0.5, of s_0"
    assert [trial["stopped_early"] for trial in shown["trials"]] == [False, True]
    for name in ("s_0", "s_1"):
        assert len({node["host"] for node in slurm.show(name)["nodes"]}) == 2
