"""Failures that are made on purpose: each is in the job's log, and beside a verdict that is about what happened."""

import functools
import json
import os
import re
import shlex
import stat
import subprocess
import sys

import pytest
from cli_jobs import LOG, wait_for_status, write_script
from waiting import wait_until

from drumline import MLClient
from drumline.contract.errors import UsageError
from drumline.contract.outcome import fold
from drumline.control.facts import description
from drumline.control.jobs.lookup import folder_of

TRAINS = """
    import os, pathlib, time

    attempt, rank = os.environ["DRUMLINE_ATTEMPT"], os.environ["RANK"]
    pathlib.Path("outputs", f"ready-{attempt}-{rank}").touch()
    while attempt == "0" and not pathlib.Path("outputs", "go").exists():
        time.sleep(0.01)
"""

WAITS = """
    import os, pathlib, signal

    pathlib.Path("outputs", f"ready-0-{os.environ['RANK']}").touch()
    signal.pause()
"""


@pytest.fixture
def script(tmp_path):
    return functools.partial(write_script, tmp_path)


@pytest.fixture
def begin(cli, script, drumline_home):
    """Start a job of four ranks on two nodes, and wait until all of them run."""

    def start(code=TRAINS, **changes):
        created = cli("job", "create", "-f", script(code, **changes))
        assert created.rc == 0, created.err
        outputs = drumline_home / "jobs" / "job" / "outputs"
        wait_until(lambda: len(list(outputs.glob("ready-0-*"))) == 4, 30, "the ranks")
        return outputs

    return start


def drills_of(name):
    return list(fold(folder_of(name).read_events()).drills.values())


def states_of_ranks():
    """The letters of the kernel for the processes of the ranks, by rank."""
    ranks = description.show_job("job")["processes"]["ranks"]
    return {one["rank"]: re.sub(r".*\) (\w).*", r"\1", read_stat(one["pid"])) for one in ranks}


def read_stat(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().strip().replace("\n", " ")


def test_a_rank_that_is_killed_is_named_by_the_verdict_with_the_drill_beside_it(cli, begin):
    begin()
    done = cli("drill", "job", "kill-rank", "--rank", "1")
    assert done.rc == 0, done.err
    assert "job job: the drill 'kill-rank' on rank 1 of node 0, for " in done.err
    wait_for_status("job", "Failed")
    shown = description.show_job("job")
    assert "rank 1 on node 0 failed first" in shown["reason"]
    assert "SIGKILL" in shown["reason"]
    assert "drill" not in shown["reason"]
    (drill,) = shown["drills"]
    assert (drill["kind"], drill["node"], drill["rank"], drill["attempt"]) == ("kill-rank", 0, 1, 0)
    assert drill["by"]
    page = cli("job", "show", "job", "-o", "table").out
    assert "  during the drill 'kill-rank' on rank 1 of node 0, for " in page
    assert "  during the drill 'kill-rank' on rank 1" in cli("job", "stream", "job").out
    assert re.search(r"^drill +\d", cli("job", "show", "job", "--timeline", "-o", "table").out, re.MULTILINE)
    assert os.listdir(folder_of("job").drills) == []


def test_an_agent_that_is_killed_and_a_preemption_are_survived_in_new_attempts(cli, begin):
    outputs = begin(TRAINS.replace('attempt == "0"', 'attempt in "01"'), drumline={"max_restarts": 2})
    assert cli("drill", "job", "kill-agent", "--node", "1").rc == 0
    wait_until(lambda: len(list(outputs.glob("ready-1-*"))) == 4, 30, "the second attempt")
    assert cli("drill", "job", "preempt", "--node", "0").rc == 0
    wait_for_status("job", "Completed")
    first, second = description.show_job("job")["attempts"]
    assert first["reason"] == "the agent of node 1 was killed by SIGKILL"
    assert re.fullmatch(r"node 0 was preempted by a drill of \S+", second["reason"])
    assert [(one.kind, one.node, one.attempt) for one in drills_of("job")] == [
        ("kill-agent", 1, 0),
        ("preempt", 0, 1),
    ]
    streamed = cli("job", "stream", "job")
    assert "was killed by SIGKILL; during the drill 'kill-agent' on node 1" in streamed.err
    page = cli("job", "show", "job", "-o", "table").out
    assert page.index("attempt 0: ") < page.index("during the drill 'kill-agent'") < page.index("attempt 1: ")
    told = json.loads(cli("job", "show", "job", "--timeline", "--attempt", "1", "-o", "json").out)
    assert [one["attempt"] for one in told["drills"]] == [0, 1]


REFUSED = {
    "there is no node": (["kill-agent", "--node", "2"], "the job has no node 2", "2 nodes and 4 ranks"),
    "there is no rank": (["kill-rank", "--rank", "9"], "the job has no rank 9", ""),
    "a rank of another node": (["kill-rank", "--rank", "3", "--node", "0"], "rank 3 is not on node 0", ""),
    "not of a rank": (["kill-agent", "--rank", "1"], "it is about a node, not about rank 1", ""),
    "no node is given": (["kill-agent"], "it needs a node", ""),
    "it does not last": (["kill-agent", "--node", "0", "--for", "1s"], "it does not last", "leave out --for"),
    "the clock is shared": (["clock", "--node", "0"], "share the clock of this machine", ""),
    "the network is shared": (["partition", "--node", "0"], "share the network of this machine", ""),
    "the power is shared": (["power-off", "--node", "0"], "share the network of this machine", ""),
    "the disk is shared": (["fill-disk", "--node", "0"], "its TMPDIR is on the disk of /", ""),
    "both begins": (["kill-rank", "--rank", "1", "--after", "1s", "--at-step", "2"], "not allowed with", ""),
    "no such kind": (["kill-ranks", "--rank", "1"], "invalid choice", "did you mean 'kill-rank'?"),
    "no such job": (["kill-rank", "--rank", "1"], "", ""),
}


def test_what_a_job_cannot_have_is_refused_with_the_reason_and_a_wedge_has_an_end(cli, begin):
    """One job for all refusals: none of them touches it."""
    outputs = begin()
    for words, said, hint in list(REFUSED.values())[:-1]:
        done = cli("drill", "job", *words)
        assert (done.rc, done.out) == (2, ""), (words, done)
        assert said in done.err, words
        assert hint in done.err, words
    assert cli("drill", "nojob", "kill-rank", "--rank", "1").rc == 3
    assert [one.kind for one in drills_of("job")] == ["fill-disk"]
    assert set(states_of_ranks().values()) <= {"R", "S", "D"}

    assert cli("drill", "job", "wedge", "--node", "1").rc == 0
    wait_until(lambda: [states_of_ranks()[rank] for rank in (2, 3)] == ["T", "T"], 20, "node 1 to stop")
    assert "T" not in [states_of_ranks()[rank] for rank in (0, 1)]
    request = folder_of("job").drills
    assert stat.S_IMODE(os.stat(request).st_mode) == 0o700
    assert cli("drill", "job", "end").rc == 0
    wait_until(lambda: "T" not in states_of_ranks().values(), 20, "node 1 to go on")
    assert cli("drill", "job", "wedge", "--rank", "0", "--for", "0.3s").rc == 0
    wait_until(lambda: all(one.ended for one in drills_of("job")), 20, "the end of the drill")
    wait_until(lambda: "T" not in states_of_ranks().values(), 20, "rank 0 to go on")
    jobs = MLClient().jobs
    made = jobs.drill("job", "wedge", rank=1, length_s=0.2)
    assert (made["kind"], made["node"], made["rank"], bool(made["began_at"])) == ("wedge", 0, 1, True)
    wait_until(lambda: all(one.ended for one in drills_of("job")), 20, "the end of the drill of Python")
    assert jobs.drill("job", "wedge", rank=1, after_s=3600) is None
    assert jobs.drill("job", "end") is None
    with pytest.raises(UsageError, match=r"kind must be one of preempt, .*; got 'wedged'"):
        jobs.drill("job", "wedged")
    with pytest.raises(UsageError, match="has no setting 'rate'"):
        jobs.drill("job", "wedge", rank=1, rate="1mbit")
    wait_until(lambda: "T" not in states_of_ranks().values(), 20, "rank 1 to go on")
    (outputs / "go").touch()
    shown = wait_for_status("job", "Completed")
    _, by_hand, by_time, *_ = shown["drills"]
    assert re.fullmatch(r"ended by \S+", by_hand["reason"])
    assert (by_time["reason"], by_time["rank"], by_time["node"]) == ("its time was over", 0, 0)
    assert shown["reason"] == "all 4 ranks ended with exit code 0"
    done = cli("drill", "job", "kill-rank", "--rank", "1")
    assert (done.rc, done.err) == (2, "error: job job is Completed: it has no ranks that run\n")


def test_the_verdict_on_a_wedged_job_is_its_hang(cli, begin):
    begin(WAITS, drumline={"hang_after": 5, "hang_action": "end", "grace": 1})
    assert cli("drill", "job", "wedge", "--rank", "3").rc == 0
    wait_until(lambda: description.show_job("job")["status"] == "Failed", 60, "the end of the job that hangs")
    shown = description.show_job("job")
    assert "rank 3" in shown["reason"]
    assert "stopped by a signal" in shown["reason"]
    (drill,) = shown["drills"]
    assert drill["reason"] == "its attempt ended"


def test_a_drill_begins_at_the_step_that_it_was_asked_for(cli, begin):
    code = LOG + (
        "import pathlib, time\n"
        "rank = os.environ['RANK']\n"
        "pathlib.Path('outputs', f'ready-0-{rank}').touch()\n"
        "def step(number):\n"
        "    with open(f'{run}/metrics/loss', 'a') as file: file.write(f'17 1.0 {number}\\n')\n"
        "if rank == '0':\n"
        "    os.makedirs(f'{run}/metrics', exist_ok=True)\n"
        "    step(6)\n"
        "    while not pathlib.Path('outputs', 'go').exists(): time.sleep(0.01)\n"
        "    step(7)\n"
        "time.sleep(1000)\n"
    )
    outputs = begin(code)
    assert cli("drill", "job", "kill-rank", "--rank", "2", "--at-step", "7").rc == 0
    assert cli("drill", "job", "wedge", "--node", "0", "--after", "0.1s", "--for", "0.1s").rc == 0
    wait_until(
        lambda: [one.kind for one in drills_of("job")] == ["wedge"], 20, "the drill that comes by time"
    )
    wait_until(lambda: all(one.ended for one in drills_of("job")), 20, "its end")
    (outputs / "go").touch()
    shown = wait_for_status("job", "Failed")
    assert "rank 2 on node 1 failed first" in shown["reason"]
    assert shown["drills"][1]["kind"] == "kill-rank"


FILLS = """
import os, time
path = os.path.join(os.environ["TMPDIR"], "data")
os.makedirs("outputs", exist_ok=True)
open(f"outputs/ready-{os.environ['RANK']}", "w").close()
while not os.path.exists("outputs/go"):
    time.sleep(0.01)
try:
    with open(path, "wb") as file:
        file.write(b"x" * 1000000)
except OSError as error:
    print("full:", error.strerror, flush=True)
    open("outputs/full", "w").close()
    while not os.path.exists("outputs/free"):
        time.sleep(0.01)
with open(path, "wb") as file:
    file.write(b"x" * 1000000)
"""


def test_a_disk_of_its_own_is_full_until_the_drill_ends(cli, tmp_path):
    """In a mount namespace where TMPDIR is a small disk that nobody else uses."""
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*apart, f"mount -t tmpfs none {tmp}"], capture_output=True).returncode:
        pytest.skip("this machine has no mount namespaces for its users")
    (tmp_path / "train.py").write_text(FILLS)
    python = shlex.quote(sys.executable)
    run = f"{python} -m drumline run --name job --nodes 2 --detach -- {python} train.py"
    command = f"mount -t tmpfs -o size=8m none {tmp} && TMPDIR={tmp} exec {run}"
    done = subprocess.run([*apart, command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outputs = tmp_path / "outputs"
    wait_until(lambda: len(list(outputs.glob("ready-*"))) == 2, 30, "the ranks")
    done = cli("drill", "job", "fill-disk", "--node", "1")
    assert done.rc == 0, done.err
    (outputs / "go").touch()
    wait_until((outputs / "full").exists, 30, "a rank that finds the disk full")
    assert cli("drill", "job", "end").rc == 0
    wait_until(lambda: all(one.ended for one in drills_of("job")), 20, "the end of the drill")
    (outputs / "free").touch()
    wait_for_status("job", "Completed")
    assert "full: No space left on device" in cli("job", "stream", "job").out


def test_a_stopped_agent_is_named_until_it_goes_on_and_costs_a_cancel_nothing_but_time(cli, begin):
    begin(WAITS, drumline={"hang_after": 60, "grace": 1})
    assert cli("drill", "job", "wedge-agent", "--node", "1").rc == 0

    def reason():
        return description.show_job("job")["reason"] or ""

    silent = "the agent of node 1 has not answered for "
    wait_until(lambda: reason().startswith(silent), 60, "word of the silent agent")
    assert "the agent of node 1 does not answer: it was stopped" in cli("job", "stacks", "job").out
    assert cli("drill", "job", "end").rc == 0
    wait_until(lambda: not reason(), 60, "the agent to answer")
    assert cli("drill", "job", "wedge-agent", "--node", "1").rc == 0
    wait_until(lambda: len([one for one in drills_of("job") if not one.ended]) == 1, 20, "the second drill")
    assert cli("job", "cancel", "job").rc == 0
    shown = wait_for_status("job", "Canceled")
    assert [one["kind"] for one in shown["drills"]] == ["wedge-agent"] * 2
