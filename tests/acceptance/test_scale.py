"""A job at several sizes: what is measured, what is written, and what is refused."""

import json

import pytest
from cli_jobs import job_names, write_script

pytest.importorskip("torch")

TRAIN = """
    import os
    import time

    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, IterableDataset


    class Data(IterableDataset):
        def __iter__(self):
            while True:
                # The second rank reads slowly.
                time.sleep(0.1 * int(os.environ["RANK"]))
                yield torch.randn(64)


    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in DataLoader(Data(), batch_size=None):
        # As an accelerator leaves the processor idle.
        time.sleep(0.02)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
"""
BYTES = 4 * (64 * 64 + 64 + 64 * 10 + 10)


@pytest.mark.timeout(280)
def test_a_job_is_measured_at_each_size_and_stopped(cli, tmp_path, drumline_home):
    distribution = {"type": "pytorch", "process_count_per_instance": 1}
    path = write_script(tmp_path, TRAIN, distribution=distribution, display_name="<b>small</b>")
    (tmp_path / "made").mkdir()
    words = ["--nodes", "2,1", "--steps", "30", "--to", "8", "--folder", tmp_path / "made", "-o", "json"]
    done = cli("scale", "-f", path, *words)
    assert done.rc in (0, 1), (done.out, done.err)
    values = json.loads(done.out)
    # A busy machine is refused, as it should be; what was measured is there all the same.
    assert (done.rc == 0) == (values["refused"] == [])
    one, two = values["measured"]
    assert [(row["nodes"], row["ranks"], row["steps"]) for row in (one, two)] == [(1, 1, 30), (2, 2, 30)]
    assert sorted(row["job"] for row in (one, two)) == job_names(drumline_home)
    for row in (one, two):
        assert row["step_s"] >= 0.02
        assert row["low_s"] <= row["step_s"] <= row["high_s"]
        assert "ddp" in row["source"]
    assert (two["bytes"], two["buckets"]) == (BYTES, 1)
    assert two["cpu_share"] > 0
    (late,) = values["stragglers"]
    assert (late["kind"], late["rank"], late["node"]) == ("input", 1, 1)
    assert late["late_s"] == pytest.approx(0.1, rel=0.5)
    assert two["reduce_s"] > 0
    if values["refused"] == []:
        assert [row["nodes"] for row in values["predicted"]] == [4, 8]
    shown = json.loads(cli("job", "show", two["job"], "-o", "json").out)
    assert shown["status"] == "Canceled"
    assert "drumline scale" in json.dumps(shown)
    assert json.loads((tmp_path / "made" / "scale.json").read_text()) == values
    page = (tmp_path / "made" / "scale.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;small" in page
    assert "1 of 2: 1 node: 30 steps measured" in done.err


def test_a_job_without_steps_is_refused_and_not_waited_for(cli, tmp_path):
    path = write_script(tmp_path, "print('no steps')")
    done = cli("scale", "-f", path, "--nodes", "1", "--folder", tmp_path, "-o", "table")
    assert done.rc == 1, done.err
    assert "not measured" in done.out
    assert "not trusted: 1 node: no steps were seen in job " in done.out
    path = path.with_name("failing.yml")
    path.write_text(json.dumps({"command": "exit 3", "resources": {"instance_count": 1}}))
    done = cli("scale", "-f", path, "--nodes", "1", "--folder", tmp_path, "-o", "table")
    assert done.rc == 1
    assert "failed: " in done.out


def test_what_cannot_be_measured_is_refused_before_anything_runs(cli, tmp_path, drumline_home):
    path = write_script(tmp_path, "pass", distribution={"type": "ray"})

    def refuse(*words):
        done = cli("scale", "-f", path, *words)
        assert done.rc == 2, (done.out, done.err)
        return done.err.splitlines()[0].removeprefix("error: ")

    assert refuse("--nodes", "1,x") == "--nodes: '1,x' is not a list of numbers"
    assert refuse("--nodes", "0,1").startswith("--nodes: numbers of nodes from 1 on")
    assert refuse("--nodes", "2,2").startswith("--nodes: numbers of nodes from 1 on")
    assert refuse("--steps", "29").startswith("--steps must be 30 or more")
    assert refuse("--to", "2").startswith("--to must be 4 or more")
    assert refuse("--folder", tmp_path / "nowhere").startswith("--folder: no files can be written to ")
    assert refuse("--procs", "0") == "--procs must be 1 or more"
    assert refuse("--procs", "2").startswith("--procs needs a job with the distribution pytorch or mpi")
    assert cli("scale", "-f", "-").rc == 2
    assert job_names(drumline_home) == []
