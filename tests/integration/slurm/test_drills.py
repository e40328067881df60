"""Failures on purpose, of a job on a real cluster: those that make sense there, and the reasons of the others."""

import re

from waiting import wait_until

from drumline.contract.outcome import fold
from drumline.control.jobs.lookup import folder_of

WAITS_TWICE = """
    import os, time

    print("ready", flush=True)
    while os.environ["DRUMLINE_ATTEMPT"] in "012":
        time.sleep(0.05)
"""


def drills_of(name="job"):
    return list(fold(folder_of(name).read_events()).drills.values())


def test_what_fails_on_purpose_is_explained_as_on_any_cluster(slurm, cli):
    """One job for all of it: three attempts end by a drill each, and the fourth completes."""
    slurm.begin(WAITS_TWICE, drumline={"max_restarts": 3, "grace": 2})
    for kind, words, why in (
        ("partition", ["--node", "1"], "the network of its nodes is Slurm's, and other jobs use it"),
        ("power-off", ["--node", "1"], "the network of its nodes is Slurm's, and other jobs use it"),
        ("slow-cpu", ["--node", "1"], "its nodes are Slurm's, and other jobs use them"),
        ("memory", ["--node", "1", "--limit", "1GB"], "its nodes are Slurm's, and other jobs use them"),
        ("fill-disk", ["--node", "1"], "its nodes are Slurm's, and other jobs use them"),
        ("clock", ["--node", "1"], "the clocks of its nodes are not Drumline's to set"),
    ):
        done = cli("drill", "job", kind, *words)
        assert (done.rc, done.out) == (2, ""), (kind, done)
        assert done.err == f"error: there can be no drill {kind!r} of job job: {why}\n"
    assert drills_of() == []

    done = cli("drill", "job", "wedge", "--rank", "3", "--for", "0.3s")
    assert done.rc == 0, done.err
    wait_until(lambda: all(one.ended for one in drills_of()), 30, "the end of the wedge")
    for attempt, words in enumerate(
        (["kill-rank", "--rank", "1"], ["kill-agent", "--node", "1"], ["preempt", "--node", "0"])
    ):
        wait_until(lambda one=attempt: is_running(slurm, one), 60, f"attempt {attempt}")
        done = cli("drill", "job", *words)
        assert done.rc == 0, done.err
        if words[0] == "kill-agent":
            # Its node is replaced: the job is in line again.
            slurm.start_now()
    shown = slurm.wait_for_end(timeout_s=60.0)
    assert shown["status"] == "Completed"
    killed, lost, taken = shown["attempts"]
    assert re.match(r"rank 1 on node 0 \(e\d\) failed first, .*SIGKILL", killed["reason"]), killed
    assert re.match(r"the agent of node 1 \(e\d\) ", lost["reason"]), lost
    assert re.match(r"node 0 \(e\d\) was preempted by a drill of ", taken["reason"]), taken
    assert [(one["kind"], one["node"], one["attempt"]) for one in shown["drills"]] == [
        ("wedge", 1, 0),
        ("kill-rank", 0, 0),
        ("kill-agent", 1, 1),
        ("preempt", 0, 2),
    ]


def is_running(slurm, attempt):
    shown = slurm.show()
    return shown["status"] == "Running" and len(shown["attempts"]) == attempt
