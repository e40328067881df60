"""A command beside a rank, on a node of a real cluster."""

import subprocess
import sys

from cli_jobs import background, wait_for_status
from slurm_jobs import WAITS


def test_a_command_runs_where_a_rank_runs_and_ends_with_the_job(slurm, cli, tmp_path):
    slurm.begin(WAITS)
    words = [sys.executable, "-m", "drumline", "job", "exec", "job", "--rank", "3", "--"]
    script = 'echo "$RANK on $(hostname) in $(pwd)"; exit 5'
    done = subprocess.run(
        [*words, "sh", "-c", script], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    folder = slurm.home / "jobs" / "job"
    assert (done.returncode, done.stdout) == (5, f"3 on e2 in {folder / 'code'}\n"), done.stderr
    with background(
        "job", "exec", "job", "--rank", "0", "--", "sh", "-c", "echo begun; sleep 987", cwd=tmp_path
    ) as one:
        one.wait_for_output("begun")
        assert cli("job", "cancel", "job").rc == 0
        assert one.end() != 0
        assert "the job of rank 0 has ended, and with it this command" in one.err
    wait_for_status("job", "Canceled")
