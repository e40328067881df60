"""A job at several sizes: what is measured, what is written, and what is refused."""

import json
import os
import signal
import subprocess
import sys

import pytest
from cli_jobs import background, job_names, logs_of, one_rank, wait_for_status, write_job, write_script
from needs import need_torch

from drumline.contract.folder import workspace as in_workspace
from drumline.control.measure.scale_values import read_report

need_torch()

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
        assert "optimizer" in row["source"]
    assert (two["bytes"], two["buckets"]) == (BYTES, 1)
    assert two["cpu_share"] > 0
    (late,) = values["stragglers"]
    assert (late["kind"], late["rank"], late["node"]) == ("input", 1, 1)
    assert late["late_s"] == pytest.approx(0.1, rel=0.5)
    assert two["reduce_s"] > 0
    unpredicted = [why for why in values["refused"] if why.startswith("nothing is predicted: ")]
    assert [row["nodes"] for row in values["predicted"]] == ([] if unpredicted else [4, 8])
    # Nothing but a busy machine is a reason not to trust a size, and only where it was busy.
    is_busy = two["cpu_share"] >= 0.9
    refused = [why.split(" were ")[0] for why in values["refused"] if why not in unpredicted]
    assert refused == ["2 nodes: the processors of this machine"] * is_busy
    # One size says nothing of others; two may not fit the model.
    assert len(unpredicted) in ((1,) if is_busy else (0, 1))
    shown = json.loads(cli("job", "show", two["job"], "-o", "json").out)
    assert shown["status"] == "Canceled"
    assert "drumline scale" in json.dumps(shown)
    assert json.loads((tmp_path / "made" / "scale.json").read_text()) == values
    for row in (one, two):
        kept = read_report(row["job"])
        assert [each["job"] for each in kept["measured"]] == [one["job"], two["job"]]
        assert (kept["title"], kept["sentences"]) == ("<b>small</b>", values["sentences"])
    assert "1 of 2: 1 node: 30 steps measured" in done.err


HANGS = """
    import threading

    import torch
    import torch.distributed as dist


    def load_batch():
        threading.Event().wait()


    dist.init_process_group("gloo")
    weights = torch.zeros(8, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1)
    for step in range(15):
        weights.grad = torch.ones(8)
        optimizer.step()
    if dist.get_rank() == 1:
        load_batch()
    dist.all_reduce(weights.grad)
"""


@pytest.mark.timeout(280)
def test_a_job_that_hangs_is_ended_and_its_place_is_told(cli, tmp_path):
    # Scaling neither waits for ever nor has the job start again, whatever the job file says.
    drumline = {"hang_after": 10, "hang_action": "restart", "max_restarts": 3, "grace": 1}
    distribution = {"type": "pytorch", "process_count_per_instance": 2}
    path = write_script(tmp_path, HANGS, distribution=distribution, drumline=drumline)
    words = ["--nodes", "1", "--steps", "30", "--folder", tmp_path, "-o", "json"]
    done = cli("scale", "-f", path, *words)
    assert done.rc == 1, (done.out, done.err)
    values = json.loads(done.out)
    (hang,) = values["stragglers"]
    assert (hang["kind"], hang["nodes"]) == ("hang", 1)
    where = (
        "rank 0 waits in all_reduce (train.py:20, in <module>); "
        "rank 1 is in wait (train.py:9, in load_batch), one collective behind"
    )
    assert hang["text"] == f"no rank has printed anything or gone on for 10 s: {where}"
    assert f"hang at 1 node: {hang['text']}" in values["sentences"]
    assert "1 node: the job hung" in values["refused"]
    shown = json.loads(cli("job", "show", values["measured"][0]["job"], "-o", "json").out)
    assert (shown["status"], shown["reason"]) == ("Canceled", "canceled by drumline scale: it hangs")


def test_what_is_given_beside_the_job_file_reaches_every_size(tmp_path, drumline_home):
    script = "import os, sys\nprint(len(os.environ['TOKEN']), os.environ['FROM_FILE'], sys.executable)"
    path = write_script(tmp_path, script, **one_rank())
    python = tmp_path / "other" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "token").write_text("open sesame\n")
    (tmp_path / ".env").write_text("FROM_FILE=yes\n")
    given = ["--secret", "TOKEN=@token", "--env-file", ".env", "--python", "other"]
    words = ["scale", "-f", "-", "--nodes", "1,2", *given, "-o", "json"]
    with path.open("rb") as job:
        done = subprocess.run(
            [sys.executable, "-m", "drumline", *words],
            stdin=job,
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 1, done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert [row["nodes"] for row in measured] == [1, 2]
    for row in measured:
        logs = logs_of(drumline_home / "jobs" / row["job"])
        assert logs == [f"11 yes {python}\n"] * row["ranks"]


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


def test_what_cannot_be_measured_is_refused_before_anything_runs(cli, tmp_path, drumline_home, monkeypatch):
    path = write_script(tmp_path, "pass", distribution={"type": "ray"})
    (tmp_path / "taken" / "scale.json").mkdir(parents=True)

    def refuse(*words):
        done = cli("scale", "-f", path, *words)
        assert done.rc == 2, (done.out, done.err)
        return done.err.splitlines()[0].removeprefix("error: ")

    assert refuse("--nodes", "1,x") == "--nodes: '1,x' is not a list of numbers"
    assert refuse("--nodes", "0,1").startswith("--nodes: numbers of nodes from 1 on")
    assert refuse("--nodes", "2,2").startswith("--nodes: numbers of nodes from 1 on")
    assert refuse("--steps", "1901").startswith("--steps must be 1900 or less")
    assert refuse("--steps", "29").startswith("--steps must be 30 or more")
    assert refuse("--to", "2").startswith("--to must be 4 or more")
    assert refuse("--folder", tmp_path / "nowhere").startswith("--folder: no files can be written to ")
    assert refuse("--folder", tmp_path / "taken").endswith("scale.json' is a folder")
    (tmp_path / "scale.json").write_text('{"mine": 1}')
    assert refuse().endswith("scale.json is there, and was not made by drumline scale")
    (tmp_path / "scale.json").unlink()
    assert refuse("--to", "9" * 400) == "--to must be 1000000 or less"
    assert refuse("--query", "[").startswith("--query: '[' is not a JMESPath expression: ")
    for name in ("DRUMLINE_STEPS", "DRUMLINE_HOOK"):
        assert refuse("--set", f"environment_variables.{name}=0").startswith(f"{name} is 0, so no steps are")
    monkeypatch.setenv("DRUMLINE_STEPS", "0")
    assert refuse().startswith("DRUMLINE_STEPS is 0")
    monkeypatch.delenv("DRUMLINE_STEPS")
    assert refuse("--procs", "0") == "--procs must be 1 or more"
    assert refuse("--procs", "2").startswith("--procs needs a job with the distribution pytorch or mpi")
    assert job_names(drumline_home) == []


@pytest.mark.parametrize("workspace", ["", "team"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_job_outlives_a_command_that_is_ended(number, workspace, tmp_path, drumline_home):
    path = write_job(tmp_path, "sleep 1000", resources={"instance_count": 1})
    words = ["scale", "-f", path, "--nodes", "1", "--folder", tmp_path, "-w", workspace]
    with background(*words, cwd=tmp_path) as command, in_workspace(workspace):
        command.wait_for_error(": job ")
        (job,) = job_names(drumline_home / "workspaces" / workspace if workspace else drumline_home)
        wait_for_status(job, "Running")
        command.process.send_signal(number)
        assert command.end() == (130 if number == signal.SIGINT else -number)
        ended = wait_for_status(job, "Canceled")
    by_guard = ended["reason"] == "canceled by drumline scale (its command was ended)"
    assert by_guard == (number == signal.SIGKILL), ended["reason"]
    assert not list(tmp_path.glob("scale.*"))


@pytest.mark.timeout(280)
def test_an_interrupt_leaves_a_report_of_the_sizes_before(tmp_path):
    distribution = {"type": "pytorch", "process_count_per_instance": 1}
    path = write_script(tmp_path, TRAIN, distribution=distribution)
    with background("scale", "-f", path, "--nodes", "1,2", "--steps", "30", cwd=tmp_path) as command:
        command.wait_for_error("2 of 2: 2 nodes: job ")
        command.process.send_signal(signal.SIGINT)
        assert command.end() == 130
    values = json.loads((tmp_path / "scale.json").read_text())
    assert [(one["nodes"], one["steps"]) for one in values["measured"]] == [(1, 30)]


def test_figures_replace_a_link_and_are_shown_where_they_cannot_be_written(cli, tmp_path):
    path = write_job(tmp_path, "exit 3", resources={"instance_count": 1})
    made = tmp_path / "made"
    made.mkdir()
    (tmp_path / "other").write_text("of another")
    (made / "scale.json").symlink_to("../other")
    assert cli("scale", "-f", path, "--nodes", "1", "--folder", made).rc == 1
    assert json.loads((made / "scale.json").read_text())["measured"]
    assert (tmp_path / "other").read_text() == "of another"
    assert sorted(os.listdir(made)) == ["scale.json"]
    # The folder is removed by the job itself.
    path.write_text(json.dumps({"command": f"rm -r {made}", "resources": {"instance_count": 1}}))
    done = cli("scale", "-f", path, "--nodes", "1", "--folder", made, "-o", "table")
    assert done.rc == 1
    assert "not measured" in done.out
    assert done.err.splitlines()[-1] == f"error: No such file or directory: {made / 'scale.json'}"
