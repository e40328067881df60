"""A home on a disk that fills up: how a job ended is still told."""

import os
import subprocess

import pytest

PROGRAM = 'head -c 4M /dev/zero > "$DRUMLINE_RUN_FOLDER/outputs/big"; exit '


@pytest.fixture
def small_home(tmp_path, monkeypatch):
    """2 MB, which only root may mount."""
    home = tmp_path / "small"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(home)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    monkeypatch.setenv("DRUMLINE_HOME", str(home))
    yield home
    subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.parametrize(("code", "status"), [(0, "Completed"), (3, "Failed")])
def test_a_full_disk_does_not_decide_how_a_job_ended(cli, small_home, code, status):
    done = cli("run", "--name", "filler", "--", "bash", "-c", PROGRAM + str(code))
    assert done.rc == code
    assert cli("job", "show", "-n", "filler", "--query", "status", "-o", "tsv").out.strip() == status
