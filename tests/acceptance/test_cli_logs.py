"""``drumline job logs``, of jobs that run and of jobs that have ended."""

import calendar
import re
import time

import pytest
from cli_jobs import background, write_script
from pipelines import step, write_pipeline
from waiting import wait_until

TALKS = """
    import os, pathlib, sys, time

    rank, attempt = os.environ["RANK"], os.environ["DRUMLINE_ATTEMPT"]
    for number in range(3):
        print(f"{rank}: line {number} of attempt {attempt}", flush=True)
    pathlib.Path(f"said-{rank}").touch()
    while len(list(pathlib.Path().glob("said-*"))) < 4:
        time.sleep(0.01)
    sys.exit(attempt == "0")
"""


@pytest.fixture
def ended(cli, tmp_path):
    path = write_script(tmp_path, TALKS, drumline={"max_restarts": 1, "grace": 1})
    done = cli("job", "create", "-f", path, "--stream")
    assert done.rc == 0, done.err
    return "job"


def test_the_logs_of_a_job_that_has_ended(cli, ended):
    everything = cli("job", "logs", ended).out.splitlines()
    assert len(everything) == 24
    assert [line.endswith("attempt 0") for line in everything] == [True] * 12 + [False] * 12
    assert "[2|node-1] 2: line 0 of attempt 1" in everything
    chosen = cli("job", "logs", ended, "--tail", "1", "--rank", "3,1", "--no-prefix").out
    assert sorted(chosen.splitlines()) == ["1: line 2 of attempt 1", "3: line 2 of attempt 1"]
    tail = cli("job", "logs", ended, "--tail", "5", "--node", "1", "--rank", "2", "--no-prefix").out
    assert tail.splitlines()[0] == "2: line 1 of attempt 0"
    of_first = cli("job", "logs", ended, "--attempt", "0", "--grep", "^0: .* [12] ").out.splitlines()
    assert of_first == [f"[0|node-0] 0: line {number} of attempt 0" for number in (1, 2)]
    stamped = cli("job", "logs", ended, "--timestamps", "--since", "1h", "--tail", "1").out.splitlines()
    assert len(stamped) == 4
    assert all(
        re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \[\d\|node-\d\] \d: line 2", line) for line in stamped
    )
    assert cli("job", "logs", ended, "--since", "2099-01-01").out == ""
    # One that has ended is printed, also when asked to follow.
    assert cli("job", "logs", ended, "-f").out.splitlines() == everything
    check_mistakes(cli, ended)


MISTAKES = [
    (["--tail", "x"], "--tail: 'x' is not a number of lines"),
    (["--since", "soon"], "--since: 'soon' is not a time"),
    (["--grep", "("], "is not a regular expression"),
    (["--rank", "9"], "--rank: there is no rank '9'"),
    (["--node", "2"], "--node: there is no node 2"),
    (["--node", "a"], "--node: 'a' is not a node"),
    (["--attempt", "2"], "--attempt: there is no attempt 2"),
    (["--attempt", "0", "-f"], "--attempt and --follow exclude each other"),
]


def check_mistakes(cli, ended):
    for options, says in MISTAKES:
        done = cli("job", "logs", ended, *options)
        assert (done.rc, done.out) == (2, "")
        assert says in done.err
        assert "hint: " in done.err


def test_a_job_that_runs_is_followed_from_its_last_lines_on(cli, tmp_path):
    text = """
        import os, pathlib, signal, time

        rank = os.environ["RANK"]
        print(f"{rank}: old\\n{rank}: begun", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        print(f"{rank}: new", flush=True)
        signal.pause()
    """
    assert cli("job", "create", "-f", write_script(tmp_path, text, drumline={"grace": 1})).rc == 0
    wait_until(lambda: cli("job", "logs", "job", "--grep", "begun").out.count("begun") == 4, 20.0)
    with background("job", "logs", "job", "-f", "--tail", "1", "--timestamps", cwd=tmp_path) as shown:
        shown.wait_for_output("begun", 4)
        (tmp_path / "drumline home" / "jobs" / "job" / "code" / "go").touch()
        shown.wait_for_output("new", 4)
        # Not on a terminal, it prints what is there unless it is told to follow.
        assert "new" in cli("job", "logs", "job", "--grep", "new").out
        cli("job", "cancel", "job")
        assert shown.end() == 0
        assert "old" not in shown.out
        assert "job job canceled" in shown.err
        assert abs(time.time() - _seconds(shown.out.splitlines()[-1])) < 60


def _seconds(line):
    return calendar.timegm(time.strptime(line[:20], "%Y-%m-%dT%H:%M:%SZ"))


def test_the_logs_of_a_pipeline_are_those_of_its_steps(cli, tmp_path):
    path = write_pipeline(tmp_path, {"a": step("echo one; echo two"), "b": step("echo one; echo two")})
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    shown = cli("job", "logs", "p", "--tail", "1").out.splitlines()
    assert sorted(shown) == ["[a] two", "[b] two"]
    assert "[b] [0|node-0] two" in cli("job", "stream", "-n", "p", "--prefix").out.splitlines()
    refused = cli("job", "logs", "p", "--rank", "0")
    assert refused.rc == 2
    assert "this job has no ranks" in refused.err
