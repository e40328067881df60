"""``drumline job show --timeline`` of real jobs."""

import json

import pytest
from cli_jobs import one_rank, write_job, write_script

GROUP = """
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    print("formed", flush=True)
"""
FLAKY = """
    import os

    print("begun", flush=True)
    raise SystemExit(3 if os.environ["DRUMLINE_ATTEMPT"] == "0" else 0)
"""


def timeline(cli, *arguments):
    """For programs; phases by their names."""
    done = cli("job", "show", "-n", "job", "--timeline", *arguments, "-o", "json")
    assert done.rc == 0, done.err
    told = json.loads(done.out)
    told["phases"] = {one["phase"]: one for one in told["phases"]}
    return told


def test_a_start_is_shown_up_to_the_process_group(cli, tmp_path):
    done = cli("job", "create", "-f", write_script(tmp_path, GROUP), "--stream")
    assert done.rc == 0, done.out + done.err
    told = timeline(cli)
    assert [rank["backend"] for rank in told["ranks"]] == ["gloo"] * 4
    for rank in told["ranks"]:
        assert 0 < rank["started_s"] < rank["group_formed_s"] < rank["first_output_s"], rank
    names = ["submitted", "preparing", "agents joined", "ranks started", "process group", "first output"]
    ends = [told["phases"][name]["to_s"] for name in names]
    assert ends == sorted(ends)
    assert all(one["missing"] == 0 for one in told["phases"].values())
    assert told["total_s"] == pytest.approx(ends[-2])

    text = cli("job", "show", "job", "--timeline").out
    assert text.startswith("job job, 4 ranks on 2 nodes\nseconds since its submission\n")
    assert "\n    gloo\n" in text
    assert text.splitlines()[-1].startswith("What took longest: ")


def test_a_later_attempt_starts_with_what_ended_the_first(cli, tmp_path):
    path = write_script(tmp_path, FLAKY, **one_rank(), resources={}, drumline={"max_restarts": 1})
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    told = timeline(cli)
    assert (told["attempt"], told["attempts"]) == (1, 2)
    assert told["cause"].startswith("rank 0 on node 0 failed ")
    assert 0 < told["phases"]["attempt ended"]["to_s"] < told["ranks"][0]["first_output_s"]
    first = timeline(cli, "--attempt", "0")
    assert (first["attempt"], first["cause"], first["since_submission_s"]) == (0, "", 0.0)
    assert 0 < first["ranks"][0]["first_output_s"] < told["since_submission_s"]


def test_what_cannot_be_shown_is_refused(cli, tmp_path):
    path = write_job(tmp_path, "echo hello", name="job", **one_rank())
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    refused = {
        ("--attempt", "0"): "--attempt needs --timeline",
        ("--timeline", "--attempt", "1"): "job job has no attempt 1",
        ("--timeline", "--attempt", "-1"): "job job has no attempt -1",
        ("--timeline", "--web"): "--timeline and --web exclude each other",
    }
    for arguments, words in refused.items():
        done = cli("job", "show", "job", *arguments)
        assert (done.rc, done.out) == (2, "")
        assert words in done.err
