"""What the tests against a real cluster share: a compute of it, and short questions to Slurm."""

from pathlib import Path

import pytest
from slurm_jobs import SlurmJobs


@pytest.fixture
def slurm(slurm_cluster, drumline_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli):
    """The shared cluster, with a compute ``cluster`` for it attached; all its nodes are idle afterwards."""
    jobs = SlurmJobs(slurm_cluster, cli, drumline_home, tmp_path)
    monkeypatch.setenv("SLURM_CONF", str(slurm_cluster.conf))
    jobs.attach("--partition", "main", "--spot-partition", "spot")
    yield jobs
    jobs.clear()
