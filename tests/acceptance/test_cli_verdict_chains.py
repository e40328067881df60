"""Failures below another: an exception that a barrier hides, and a rank of a launcher inside the job."""

import re

import pytest
from cli_jobs import one_rank, write_script
from needs import need_torch

from drumline.control.facts import description

CHAINED = """
    import datetime, os
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))
    rank = dist.get_rank()

    def step(number):
        if number == 2 and rank == 3:
            raise ValueError("bad batch")
        dist.all_reduce(torch.ones(4), group=group)

    try:
        for number in range(6):
            step(number)
    finally:
        dist.barrier(group)
"""
INNER = """
    import os, signal
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for number in range(6):
        if number == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(4))
"""


@pytest.fixture
def verdict(cli, tmp_path):
    need_torch()

    def run(script, command, **fields):
        path = write_script(tmp_path, script, command, **fields)
        done = cli("job", "create", "-f", path, "--stream")
        assert done.rc == 1, done.out + done.err
        shown = description.show_job("job")
        return shown["reason"], shown["verdict"]

    return run


def test_a_barrier_in_finally_hides_no_exception(verdict):
    said, fields = verdict(CHAINED, "python train.py")
    assert re.match(
        r"rank 3 on node 1 failed first, [\d.]+ s in: ValueError: bad batch \(train\.py:\d+, in step\)", said
    ), said
    assert fields["cut_off"] or fields["stopped"]


def test_a_rank_of_torchrun_inside_a_job_that_is_killed(verdict):
    command = "python -m torch.distributed.run --standalone --nproc-per-node 3 train.py"
    said, _ = verdict(INNER, command, **one_rank(resources={"instance_count": 1}))
    assert re.match(
        r"rank 0 on node 0 failed [\d.]+ s in: rank 1 of its launcher was killed by signal 9 \(SIGKILL: ",
        said,
    ), said
