"""An environment that is built by the batch step, for the nodes of a cluster."""

import json

import pytest
import wheels
from cli_jobs import logs_of, write_job
from slurm_jobs import COMPUTE

pytestmark = pytest.mark.timeout(300)


def test_all_nodes_run_in_what_the_first_one_has_built(slurm, cli, tmp_path):
    wheels.conda_file(tmp_path / "conda.yml", wheels.index(tmp_path / "wheels"), "sums")
    path = write_job(
        tmp_path,
        "python -c 'import sums, sys; print(sys.prefix)'",
        compute=f"azureml:{COMPUTE}",
        environment={"image": "ubuntu", "conda_file": "conda.yml"},
        resources={"instance_count": 2},
    )
    home = slurm.home / "jobs"
    for name, reused in (("first", False), ("second", True)):
        done = cli("job", "create", "-f", path, "--set", f"name={name}", "--stream")
        assert done.rc == 0, done.out[-4000:] + done.err
        prefix = json.loads((home / name / "plan.json").read_text())["build"]["prefix"]
        assert [log for log in logs_of(home / name) if log != f"{prefix}\n"] == []
        lines = (home / name / "events.jsonl").read_text().splitlines()
        (ready,) = [one for one in map(json.loads, lines) if one["type"] == "EnvironmentReady"]
        assert ready["reused"] is reused
