"""The pages of docs that can be followed on a real Slurm cluster, block by block."""

import getpass
import shlex
import sys

import guides
import pytest
from cli_jobs import job_names
from needs import need_torch
from slurm_jobs import WAITS
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def drumline_home(drumline_home, tmp_path, monkeypatch):
    """Where a user has it, for whom the test's folder is home."""
    home = tmp_path / ".local" / "share" / "drumline"
    monkeypatch.setenv("DRUMLINE_HOME", str(home))
    return home


@pytest.fixture
def gpu_partition(slurm_cluster):
    """A partition of the name that a page has; created before ``slurm``, so its jobs are gone when it is removed."""
    slurm_cluster.scontrol("create", "PartitionName=gpu", "Nodes=ALL")
    yield
    slurm_cluster.scontrol("delete", "PartitionName=gpu")


@pytest.mark.parametrize("page", guides.ON_SLURM)
def test_every_block_of_the_page_runs(gpu_partition, slurm, drumline_home, tmp_path, page):
    need_torch()
    (tmp_path / "examples").symlink_to(guides.ROOT / "examples")

    def prepare(text: str) -> None:
        if "job show -n to-cancel" in text:
            slurm.wait_for("Running", name="to-cancel")
        if "job show -n waits" in text:
            slurm.fill()
            slurm.create(WAITS, "waits")
            wait_until(lambda: waits_with_estimate(slurm.show("waits")), 30.0, "Slurm's estimate")
        if "compute update" in text:
            slurm.clear()

    here = {
        "/home/ada/drumline-venv/bin/python3": shlex.quote(sys.executable),
        "/home/ada": str(tmp_path),
        "by ada": f"by {getpass.getuser()}",
        "22.05.8": slurm.cluster.run("sinfo", "--version").split()[1],
        "18.1 s": "... s",
        "0.9733": "0.9...",
        "slurm_job_id: '2'": "slurm_job_id: '...'",
        "slurm_job_id: '8'": "slurm_job_id: '...'",
        "10.80.1.": "...",
        "2027-11-21T22:44:36": "20...",
    }
    guides.follow(page, tmp_path, prepare, here)
    for name in job_names(drumline_home):
        wanted = "Canceled" if name in ("to-cancel", "waits") else "Completed"
        assert slurm.wait_for_end(name, 60.0)["status"] == wanted, name


def waits_with_estimate(shown):
    return shown["slurm"]["slurm_reason"] == "Resources" and shown["slurm"]["start_estimate"]
