"""A job once undisturbed, and once for each drill: what it survives, what that cost, and what it left."""

import json
import shutil
from pathlib import Path

import pytest
from cli_jobs import job_names, write_script
from isolated_nodes import skip_without

EXAMPLE = Path(__file__).parents[2] / "examples" / "rehearsal"

STEPS = """
    import os, time
    from pathlib import Path
    from urllib.parse import unquote

    root = Path(unquote(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://")))
    metrics = next(root.glob(f"*/{os.environ['MLFLOW_RUN_ID']}/metrics"))
    for step in range(1, 21):
        with metrics.joinpath("loss").open("a") as file:
            file.write(f"17 {1 / step} {step}\\n")
        time.sleep(0.05)
"""


@pytest.mark.timeout(600)
def test_the_example_survives_its_drills_and_ends_with_the_same_loss(cli, tmp_path, drumline_home):
    folder = shutil.copytree(EXAMPLE, tmp_path / "the example")
    done = cli(
        "rehearse", "-f", "job.yml", "--drills", "drills.yml", "--steps", "60", "-o", "json", cwd=folder
    )
    assert done.rc == 0, (done.out, done.err)
    report = json.loads(done.out)
    rows = {row["drill"]: row for row in report["drills"]}
    assert [row["drill"] for row in report["drills"]] == ["preempt", "kill-rank", "kill-agent", "wedge"]
    for row in rows.values():
        assert (row["result"], row["same_metric"], row["left_behind"]) == ("survived", True, []), row
        assert row["metric"] == "loss"
    assert report["undisturbed"]["final"] == rows["wedge"]["final"]
    assert report["undisturbed"]["last_step"] == 60
    # What was trained since the last checkpoint is trained again, but after a notice.
    assert rows["preempt"]["repeated"] == 0
    assert rows["wedge"]["repeated"] == 0
    assert 0 <= rows["kill-rank"]["repeated"] <= 10
    assert rows["wedge"]["lost_s"] > 1.5
    assert rows["kill-rank"]["what"] == "'kill-rank' on rank 1 of node 1"
    assert "was killed by SIGKILL" in rows["kill-agent"]["sentences"][0]
    assert sorted([report["undisturbed"]["job"], *(row["job"] for row in rows.values())]) == job_names(
        drumline_home
    )
    assert "5 of 5: wedge: job " in done.err
    for name in job_names(drumline_home):
        kept = json.loads((drumline_home / "jobs" / name / "rehearsal.json").read_text())
        assert kept.pop("title")
        assert kept == report, "the studio shows it"


@pytest.mark.timeout(600)
def test_the_example_survives_a_network_that_is_cut_and_slow(cli, tmp_path):
    skip_without(tmp_size="64m")
    folder = shutil.copytree(EXAMPLE, tmp_path / "the example")
    assert cli("compute", "create", "-f", "lab.yml", cwd=folder).rc == 0
    words = ["--drills", "lab-drills.yml", "--steps", "40", "--set", "compute=azureml:lab", "-o", "json"]
    done = cli("rehearse", "-f", "job.yml", *words, cwd=folder)
    assert done.rc == 0, (done.out, done.err)
    for row in json.loads(done.out)["drills"]:
        assert (row["result"], row["same_metric"], row["left_behind"]) == ("survived", True, []), row


def test_a_job_without_restarts_does_not_survive_and_says_how_it_failed(cli, tmp_path):
    path = write_script(tmp_path, STEPS, distribution=None, resources={"instance_count": 1})
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in spec.items() if value is not None}))
    (tmp_path / "drills.yml").write_text(
        "drills:\n"
        "- {kind: kill-rank, rank: 0, at_step: 5}\n"
        "- {kind: kill-agent, at_step: 500, name: too late}\n"
    )
    done = cli("rehearse", "-f", path, "--drills", "drills.yml", "-o", "table")
    assert done.rc == 1, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("undisturbed: job ")
    assert "loss 0.05" in lines[0]
    heads, killed, late = lines[2:5]
    assert heads.split("  ")[0] == "DRILL"
    assert [part.strip() for part in killed.split("  ") if part][:2] == ["kill-rank", "rank 0 of node 0"]
    assert " failed " in killed
    assert " not begun " in late
    assert any(line.startswith("kill-rank: rank 0 on node 0 failed") for line in lines)
    assert "too late: the job ended before the drill was to begin" in lines

    (tmp_path / "drills.yml").write_text("drills:\n- {kind: kill-rank, rank: 0, at_step: 5, expect: fail}\n")
    done = cli("rehearse", "-f", path, "--drills", "drills.yml", "-o", "table")
    assert done.rc == 0, done.err
    assert "failed, as expected" in done.out


GOES_ON = """
    import json, os, pathlib, signal, sys, time
    from urllib.parse import unquote

    root = pathlib.Path(unquote(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://")))
    metrics = next(root.glob(f"*/{os.environ['MLFLOW_RUN_ID']}/metrics"))
    saved = pathlib.Path("outputs", "step")
    step = int(saved.read_text()) if saved.exists() else 0
    while True:
        step += 1
        with metrics.joinpath("loss").open("a") as file:
            file.write(f"17 {1 / step} {step}\\n")
        if step % 5 == 0:
            saved.with_suffix(".new").write_text(str(step))
            saved.with_suffix(".new").replace(saved)
        time.sleep(0.05)
"""


@pytest.mark.timeout(600)
def test_a_job_without_an_end_is_shortened_by_time(cli, tmp_path):
    fields = {"resources": {"instance_count": 1}, "drumline": {"max_restarts": 1, "grace": 1}}
    path = write_script(tmp_path, GOES_ON, distribution=None, **fields)
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in spec.items() if value is not None}))
    (tmp_path / "drills.yml").write_text(
        "seed: 3\ndrills:\n- {kind: kill-rank, rank: 0}\n- {kind: wedge, node: 0, for: 1s, name: stopped}\n"
    )
    done = cli("rehearse", "-f", path, "--drills", "drills.yml", "--for", "3s", "-o", "json")
    assert done.rc == 0, (done.out, done.err)
    report = json.loads(done.out)
    calm = report["undisturbed"]
    assert (calm["is_shortened"], calm["status"], calm["sentences"]) == (True, "Canceled", [])
    killed, stopped = report["drills"]
    for row in (killed, stopped):
        assert (row["result"], row["same_metric"], row["left_behind"]) == ("survived", None, []), row
        assert row["lost_s"] >= 0
    assert killed["repeated"] <= 5
    assert "killed by" in killed["sentences"][0]
    assert stopped["sentences"] == []
    assert "1 of 3: undisturbed: job " in done.err
    assert " ran well for " in done.err
    done = cli("rehearse", "-f", path, "--for", "0s")
    assert (done.rc, done.err.splitlines()[0]) == (2, "error: --for must be more than 0")
    assert cli("rehearse", "-f", path, "--for", "1s", "--steps", "5").rc == 2


def test_a_job_that_fails_undisturbed_is_not_drilled(cli, tmp_path, drumline_home):
    path = write_script(tmp_path, "raise SystemExit(3)")
    done = cli("rehearse", "-f", path)
    assert done.rc == 1
    assert len(job_names(drumline_home)) == 1


def test_what_cannot_be_rehearsed_is_refused_before_anything_runs(cli, tmp_path, drumline_home):
    path = write_script(tmp_path, "pass")
    (tmp_path / "drills.yml").write_text("drills:\n- kind: kill-rnk\n- kind: partition\n  for: 2 seconds\n")
    done = cli("rehearse", "-f", path, "--drills", "drills.yml")
    assert done.rc == 2
    assert "drills.yml:2:9: drills.0.kind must be one of " in done.err
    assert "hint: did you mean 'kill-rank'?" in done.err
    assert "drills.yml:4:8: drills.1.for must be a length of time" in done.err

    done = cli("rehearse", "-f", path, "--steps", "5")
    assert (done.rc, done.err.splitlines()[0]) == (
        2,
        "error: --steps: the job has no input that limits its steps",
    )
    assert cli("rehearse", "-f", path, "--drills", "nothing.yml").rc == 2
    assert cli("rehearse", "-f", path, "--steps", "0").rc == 2
    assert cli("rehearse", "-f", "-").rc == 2
    assert job_names(drumline_home) == []
