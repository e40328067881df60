"""Jobs that hang: what is said of them, by itself and on request, and what becomes of them."""

import functools
import json
import os
import re
import signal

import pytest
from cli_jobs import background, status_of, wait_for_status, write_script
from waiting import wait_until

from drumline.control.facts import description

MISSING_COLLECTIVE = """
    import time
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")

    def load_batch():
        time.sleep(1000)

    def step(number):
        if number == 3 and dist.get_rank() == 2:
            load_batch()
        dist.all_reduce(torch.ones(4))

    for number in range(10):
        step(number)
"""

SILENT = """
    import os, signal, sys, time

    def go_on(*_):
        print("on it goes", flush=True)

    signal.signal(signal.SIGUSR2, go_on)

    def wait(seconds):
        time.sleep(seconds)

    wait(1000)
"""


WORKS_SILENTLY = """
    import hashlib, os, subprocess, threading, time

    BUSY = "while :; do :; done"
    END = time.monotonic() + 15

    def compute():
        while time.monotonic() < END:
            hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 1_000_000)

    if os.environ["RANK"] == "0":
        subprocess.run(["timeout", "7", "sh", "-c", BUSY])
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    else:
        time.sleep(END - time.monotonic())
"""


SLOW_STEPS = """
    import time, torch, torch.distributed as dist

    dist.init_process_group("gloo")
    for _ in range(5):
        time.sleep(2)
        dist.all_reduce(torch.ones(4))
"""

OUTLIVES = """
    import threading, torch, torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 2:
        threading.Thread(target=threading.Event().wait).start()
        raise ValueError("bad batch")
    dist.all_reduce(torch.ones(4))
"""

KEPT_BY_A_CHILD = """
    import multiprocessing, time, torch, torch.distributed as dist

    def load():
        time.sleep(1000)

    dist.init_process_group("gloo")
    if dist.get_rank() == 2:
        multiprocessing.get_context("fork").Process(target=load).start()
        raise ValueError("bad batch")
    dist.all_reduce(torch.ones(4))
"""

OUTLIVES_ALONE = """
    import os, threading

    if os.environ["RANK"] == "2":
        threading.Thread(target=threading.Event().wait).start()
        raise ValueError("bad batch")
"""

RAISES_AND_WAITS = """
    import torch, torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        if dist.get_rank() == 2:
            raise ValueError("bad batch")
        dist.all_reduce(torch.ones(4))
        dist.all_reduce(torch.ones(4))
    finally:
        dist.barrier()
"""

BUSY = """
    import torch, torch.distributed as dist

    def spin():
        while True:
            pass

    dist.init_process_group("gloo")
    if dist.get_rank() == 3:
        spin()
    dist.all_reduce(torch.ones(4))
"""


@pytest.fixture
def script(tmp_path):
    return functools.partial(write_script, tmp_path)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_missing_collective_is_explained_and_the_job_ended_where_that_is_wished(cli, script, recorded):
    drumline = {"hang_after": 10, "hang_action": "end", "grace": 1}
    variables = {"TORCH_FR_BUFFER_SIZE": "100"} if recorded else {}
    path = script(MISSING_COLLECTIVE, drumline=drumline, environment_variables=variables)
    done = cli("job", "create", "-f", path, "--stream")
    assert done.rc == 1
    numbers = (
        ("seq 4, ", ", its last collective was all_reduce, seq 3")
        if recorded
        else ("", ", one collective behind")
    )
    where = (
        "no rank has printed anything or gone on for 10 s: "
        f"ranks 0-1 and 3 wait in all_reduce ({numbers[0]}train.py:14, in step); "
        f"rank 2 is in load_batch (train.py:9){numbers[1]}"
    )
    assert description.show_job("job")["reason"] == f"it hung: {where}"
    assert f": it hung: {where}\n" in done.out


def test_a_silent_job_that_waits_for_a_child_and_a_thread_that_compute_is_not_ended(cli, script):
    path = script(WORKS_SILENTLY, drumline={"hang_after": 5, "hang_action": "end", "grace": 1})
    done = cli("job", "create", "-f", path, "--stream")
    assert (done.rc, " hangs: " in done.err) == (0, False)


def test_a_job_that_hangs_is_left_alone_unless_told_otherwise(cli, script, tmp_path):
    path = script(SILENT, drumline={"hang_after": 2, "grace": 1})
    with background("job", "create", "-f", path, "--stream", cwd=tmp_path) as create:
        report = r"job job hangs: no rank .* for 2 s: ranks 0-3 are in wait \(train\.py:10\)\n"
        wait_until(lambda: re.search(report, create.err) is not None, 30.0, "the report")
        shown = description.show_job("job")
        assert (shown["status"], shown["hang"] is not None) == ("Running", True)
        os.kill(shown["processes"]["ranks"][1]["pid"], signal.SIGUSR2)
        wait_until(lambda: "job job goes on\n" in create.err, 30.0, "the news")
        assert "[1|node-0] on it goes\n" in create.out
        cli("job", "cancel", "-n", "job")
        create.end()


def test_stacks_on_request(cli, script):
    assert cli("job", "create", "-f", script(SILENT, drumline={"hang_after": 0, "grace": 1})).rc == 0
    wait_for_status("job", "Running")
    wait_until(
        lambda: "ranks 0-3 are in wait (train.py:10)" in cli("job", "stacks", "job").out, 30.0, "all to wait"
    )
    shown = cli("job", "stacks", "job").out
    assert shown == (
        "ranks 0-3 are in wait (train.py:10)\n\nranks 0-3\n  wait (train.py:10)\n  <module> (train.py:12)\n"
    )
    answer = json.loads(cli("job", "stacks", "-n", "job", "-o", "json").out)
    assert sorted(answer["ranks"]) == ["0", "1", "2", "3"]
    assert answer["ranks"]["0"][0]["frames"][0] == ["train.py", 10, "wait"]
    cli("job", "cancel", "-n", "job")
    wait_for_status("job", "Canceled")
    refused = cli("job", "stacks", "job")
    assert (refused.rc, refused.err) == (2, "error: job job is Canceled: it has no ranks that run\n")


def test_a_job_whose_ranks_make_slow_steps_goes_on(cli, script):
    path = script(SLOW_STEPS, drumline={"hang_after": 4, "hang_action": "end", "grace": 1})
    done = cli("job", "create", "-f", path, "--stream")
    assert (done.rc, " hangs: " in done.err) == (0, False)


@pytest.mark.parametrize(
    ("text", "lines", "kept"),
    [(OUTLIVES, (8, 7), "a thread"), (KEPT_BY_A_CHILD, (11, 10), "a child process, in load (train.py:5)")],
    ids=["thread", "process"],
)
def test_a_rank_that_outlives_its_exception_ends_the_job_long_before_any_hang_does(
    cli, script, tmp_path, text, lines, kept
):
    path = script(text, drumline={"grace": 1})
    with background("job", "create", "-f", path, "--stream", cwd=tmp_path) as create:
        wait_until(lambda: "job job hangs: " in create.err, 60.0, "the report")
        told = description.show_job("job")["hang"]
        assert f"ranks 0-1 and 3 wait in all_reduce (train.py:{lines[0]}, " in told
        raised = f"rank 2 raised ValueError: bad batch (train.py:{lines[1]}) but did not end"
        assert f"{raised}, kept by {kept}" in told
        assert f"{raised}, kept by {kept}" in cli("job", "stacks", "job").out
        wait_until(lambda: status_of("job") == "Failed", 60.0, "the end of the job")
    assert re.fullmatch(
        rf"rank 2 on node 1 failed first, \S+ s in: ValueError: bad batch \(train\.py:{lines[1]}, in <module>\); "
        # Of those that wait, one may see the connection go before it is stopped.
        r"(rank \d was then cut off \(.*\); )?ranks \d.* were then stopped",
        description.show_job("job")["reason"],
    )


def test_a_rank_that_outlives_its_exception_and_the_others_is_what_the_job_fails_of(cli, script):
    path = script(OUTLIVES_ALONE, drumline={"hang_after": 4, "hang_action": "end", "grace": 1})
    done = cli("job", "create", "-f", path, "--stream")
    shown = description.show_job("job")
    assert re.fullmatch(
        r"rank 2 on node 1 failed first, \S+ s in: ValueError: bad batch \(train\.py:6, in <module>\)",
        shown["reason"],
    )
    assert (done.rc, shown["verdict"]["rank"]) == (1, 2)


def test_a_rank_that_waits_while_it_handles_an_exception_is_told_with_it(cli, script):
    path = script(RAISES_AND_WAITS, drumline={"hang_after": 4, "hang_action": "end", "grace": 1})
    done = cli("job", "create", "-f", path, "--stream")
    assert done.rc == 1
    raised = "handling ValueError: bad batch (train.py:7)"
    assert re.search(rf"; rank 2 waits in barrier \(train\.py:11, .*\), {re.escape(raised)}", done.out)


def test_a_rank_that_alone_computes_is_reported_as_busy_and_not_ended(cli, script, tmp_path):
    path = script(BUSY, drumline={"hang_after": 4, "hang_action": "end", "grace": 1})
    with background("job", "create", "-f", path, "--stream", cwd=tmp_path) as create:
        report = (
            r"job job hangs: rank 3 alone computes, .*; rank 3 is busy in spin \(train\.py:[56]\), one coll"
        )
        wait_until(lambda: re.search(report, create.err) is not None, 60.0, "the report")
        assert description.show_job("job")["status"] == "Running"
        cli("job", "cancel", "-n", "job")
        create.end()
