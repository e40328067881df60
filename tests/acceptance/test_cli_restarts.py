"""Jobs whose ranks are started again: attempts with logs of their own, the same numbers, and an end to it."""

import functools
import json
import os
import shutil
import signal

import pytest
from cli_jobs import wait_for_status, write_job, write_script
from waiting import wait_until

from drumline.control.facts import description

FLAKY = """
    import os, pathlib, time

    attempt = int(os.environ["DRUMLINE_ATTEMPT"])
    assert attempt == int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    rank = os.environ["RANK"]
    print(f"attempt {attempt} of rank {rank} at {os.environ['MASTER_PORT']}", flush=True)
    pathlib.Path("outputs", f"checkpoint-{attempt}-{rank}").touch()
    while len(list(pathlib.Path("outputs").glob(f"checkpoint-{attempt}-*"))) < 4:
        time.sleep(0.01)
    if attempt < 2 and rank == "1":
        raise RuntimeError(f"attempt {attempt} is flaky")
    if attempt < 2:
        import signal
        signal.pause()
"""

BROKEN = """
    import os, signal

    if os.environ["RANK"] == "1":
        raise ValueError("bad batch")
    signal.pause()
"""


@pytest.fixture
def script(tmp_path):
    return functools.partial(write_script, tmp_path)


def test_all_ranks_are_started_again_until_they_complete(cli, script, drumline_home):
    done = cli("job", "create", "-f", script(FLAKY, drumline={"max_restarts": 3}), "--stream")
    assert done.rc == 0, done.out + done.err
    for attempt in range(3):
        for rank in range(4):
            assert f"[{rank}|node-{rank // 2}] attempt {attempt} of rank {rank} at " in done.out
    for attempt in (0, 1):
        assert (
            f"job job is started again; attempt {attempt} failed: rank 1 on node 0 failed first, " in done.err
        )
    shown = description.show_job("job")
    assert (shown["status"], shown["attempt"], len(shown["attempts"])) == ("Completed", 2, 2)
    assert [one["exit_code"] for one in shown["attempts"]] == [1, 1]
    logs = drumline_home / "jobs" / "job" / "user_logs"
    assert (logs / "std_log_process_00.txt").read_text().startswith("attempt 2 of rank 0")
    for attempt in (0, 1):
        assert (
            (logs / f"attempt-{attempt}" / "std_log_process_03.txt")
            .read_text()
            .startswith(f"attempt {attempt}")
        )
    assert len(list((drumline_home / "jobs" / "job" / "outputs").iterdir())) == 12


def test_a_failure_that_repeats_itself_ends_it_with_its_own_code(cli, script):
    done = cli("job", "create", "-f", script(BROKEN, drumline={"max_restarts": 9}), "--stream")
    assert done.rc == 1
    shown = description.show_job("job")
    assert (shown["exit_code"], shown["attempt"]) == (93, 1)
    assert "ValueError: bad batch (train.py:5, in <module>)" in shown["reason"]
    assert shown["reason"].endswith("(attempt 1; not restarted: the last two failed alike)")
    page = cli("job", "show", "job", "-o", "table").out
    assert "   attempt 1 of 0-9\n" in page
    assert "\n  attempt 0: rank " in page
    assert cli("job", "logs", "job", "--attempt", "0", "--grep", "bad batch").out
    assert cli("job", "logs", "job", "--attempt", "2").rc == 2


def test_without_progress_three_attempts_are_enough(cli, tmp_path):
    done = cli("run", "--max-restarts", "9", "--", "sh", "-c", "exit 7")
    assert done.rc == 93
    assert (
        "exit code 7 (attempt 2; not restarted: the last 3 left neither a new checkpoint nor a metric)"
        in done.err
    )


def test_only_the_failures_that_are_named(cli, tmp_path):
    path = write_job(tmp_path, "exit 7", name="job", drumline={"max_restarts": 5, "restart_on": [75, "node"]})
    assert cli("job", "create", "-f", path, "--stream").rc == 1
    assert (
        description.show_job("job")["exit_code"],
        description.show_job("job")["attempt"],
    ) == (7, 0)


def test_the_time_limit_is_the_jobs_and_not_the_attempts(cli, tmp_path):
    command = "touch outputs/$DRUMLINE_ATTEMPT; sleep 1.5; exit 7"
    drumline = {"max_restarts": 50, "grace": 1}
    path = write_job(tmp_path, command, name="job", drumline=drumline, limits={"timeout": 6}, code=".")
    assert cli("job", "create", "-f", path, "--stream").rc == 1
    shown = description.show_job("job")
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 124)
    assert 1 <= shown["attempt"] <= 4


def test_a_job_that_hangs_is_started_again_where_that_is_wished(cli, script):
    text = """
        import os, time

        def wait():
            time.sleep(1000)

        if os.environ["DRUMLINE_ATTEMPT"] == "0":
            wait()
    """
    drumline = {"max_restarts": 1, "hang_after": 2, "hang_action": "restart", "grace": 1}
    done = cli("job", "create", "-f", script(text, drumline=drumline), "--stream")
    assert done.rc == 0, done.out + done.err
    assert (
        "attempt 0 failed: it hung: no rank has printed anything or gone on for 2 s: ranks 0-3 are in wait"
        in done.err
    )


@pytest.mark.parametrize(
    ("drumline", "place", "words"),
    [
        ({"max_restarts": -1}, "drumline.max_restarts", "-1 is not between 0 and 1000"),
        (
            {"max_restarts": 1, "restart_on": ["never"]},
            "drumline.restart_on",
            "'never' is neither an exit code",
        ),
        ({"restart_on": ["node"]}, "drumline.max_restarts", "nothing is started again without it"),
        ({"hang_action": "restart"}, "drumline.max_restarts", "nothing is started again without it"),
    ],
)
def test_what_cannot_be_is_refused(cli, tmp_path, drumline, place, words):
    done = cli("job", "create", "-f", write_job(tmp_path, "true", drumline=drumline))
    assert done.rc == 2
    assert f": {place}: {words}" in done.err, json.dumps(drumline)


def test_a_lost_node_is_made_up_for_and_a_lost_supervisor_leaves_nothing(cli, script):
    text = """
        import signal, subprocess

        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print("ready", flush=True)
        signal.pause()
    """
    path = script(text, drumline={"max_restarts": 1, "restart_on": ["node"], "grace": 1})
    assert cli("job", "create", "-f", path).rc == 0
    processes = wait_for_status("job", "Running")["processes"]
    os.kill(processes["agents"][1], signal.SIGKILL)

    def second():
        shown = description.show_job("job")
        return (shown["attempt"], shown["status"]) == (1, "Running")

    wait_until(second, 30.0, "the second attempt")
    shown = description.show_job("job")
    assert shown["attempts"][0]["reason"] == "the agent of node 1 was killed by SIGKILL"
    assert not {rank["pid"] for rank in shown["processes"]["ranks"]} & {
        rank["pid"] for rank in processes["ranks"]
    }
    os.kill(shown["processes"]["supervisor"], signal.SIGKILL)
    wait_for_status("job", "Failed")
    # That nothing is left is what every test's end asks for.


def test_mpirun_is_started_again_with_its_ranks(cli, script):
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun, which scripts/test installs as root")
    text = """
        import os

        rank, attempt = os.environ["OMPI_COMM_WORLD_RANK"], os.environ["DRUMLINE_ATTEMPT"]
        assert rank != "2" or attempt != "0", "the first time"
    """
    mpi = {"type": "mpi", "process_count_per_instance": 2}
    done = cli(
        "job", "create", "-f", script(text, drumline={"max_restarts": 1}, distribution=mpi), "--stream"
    )
    assert done.rc == 0, done.out + done.err
    assert description.show_job("job")["attempts"][0]["exit_code"] == 1
