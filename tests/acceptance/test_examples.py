"""The examples, as a person runs them."""

import csv
import re
import shutil
import sys
from pathlib import Path

import pytest
from waiting import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
torch = pytest.importorskip("torch", reason="the examples need PyTorch, which scripts/test installs")


@pytest.fixture
def digits(tmp_path):
    """A copy, since a job must not write to where it came from."""
    return shutil.copytree(EXAMPLES / "digits-ddp", tmp_path / "digits ddp")


def accuracy_in(text):
    return float(re.search(r"test accuracy (0\.\d+) \(4 ranks\)", text)[1])


def test_the_job_file_trains_to_over_ninety_five_percent(cli, digits, drumline_home):
    done = cli("job", "create", "--file", digits / "job.yml", "--stream", timeout_s=110)
    assert (done.rc, done.err) == (0, "")
    assert accuracy_in(done.out) > 0.95
    name = re.search(r"RunId: (\S+)", done.out)[1]
    outputs = drumline_home / "jobs" / name / "outputs"
    curve = list(csv.DictReader((outputs / "curve.csv").read_text().splitlines()))
    assert float(curve[-1]["test_accuracy"]) > 0.95
    model = torch.load(outputs / "model.pt", weights_only=True)
    assert all(torch.isfinite(tensor).all() for tensor in model.values())
    assert not (digits / "src" / "outputs").exists()


def test_the_same_in_python(digits, drumline_home, tmp_path):
    import subprocess

    done = subprocess.run(
        [sys.executable, digits / "submit.py"],
        cwd=digits,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert accuracy_in(done.stdout) > 0.95


def test_a_rank_that_is_killed_ends_the_training(cli, digits, drumline_home):
    """The ranks that are left wait in a collective that never ends by itself."""
    import json
    import os
    import signal

    created = cli(
        "job",
        "create",
        "--file",
        digits / "job.yml",
        "--set",
        "inputs.epochs=100000",
        "--query",
        "name",
        "-o",
        "tsv",
    )
    name = created.out.strip()
    log = drumline_home / "jobs" / name / "user_logs" / "std_log_process_00.txt"
    wait_until(lambda: log.exists() and "epoch" in log.read_text(), 60, "the first epoch")
    show = json.loads(cli("job", "show", "-n", name, "-o", "json").out)
    victim = next(rank for rank in show["processes"]["ranks"] if rank["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)
    done = cli("job", "stream", "-n", name)
    assert done.rc == 1
    assert "rank 1 on node 0 was ended by signal 9 (SIGKILL" in done.out
