"""Sweeps of distributed trials: which are tried, which is the best, which end early, and what survives what."""

import json
import os
import signal
import textwrap
from typing import Any

import pytest
from cli_jobs import status_of, wait_for_status
from waiting import wait_until

from drumline import MLClient, command
from drumline.contract.folder import RunFolder
from drumline.control.facts import description
from drumline.entities import Output
from drumline.sweep import Choice, MedianStoppingPolicy

TRAIN = """
    import glob, os, signal, sys, time
    from urllib.parse import unquote

    def log(value, name="loss"):
        '''As MLflow's file store has it.'''
        root = unquote(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://"))
        (folder,) = glob.glob(f"{glob.escape(root)}/*/{os.environ['MLFLOW_RUN_ID']}/metrics")
        with open(f"{folder}/{name}", "a") as file:
            file.write(f"{int(time.time() * 1000)} {value} 0\\n")

    what = sys.argv[1]
    assert os.environ["AZUREML_SWEEP_what"] == what
    assert os.environ["WORLD_SIZE"] == "2"
    if what == "fails":
        sys.exit("what is this?")
    if os.environ["RANK"] == "0":
        if what == "silent":
            log(1.0, "accuracy")
        elif what == "waits":
            print("ready", flush=True)
            signal.pause()
        elif what == "gated":
            print("ready", flush=True)
            while not os.path.exists(os.environ["GATE"]):
                time.sleep(0.01)
            log(0.1)
        elif what == "lags":
            while True:
                log(9.0)
                time.sleep(0.02)
        else:
            for value in (float(what) + 1, float(what), float(what) + 2):
                log(value)
            with open(os.environ["AZURE_ML_OUTPUT_model"] + "/weights", "w") as file:
                file.write(what)
            with open("outputs/log", "w") as file:
                file.write(what)
"""


@pytest.fixture
def write(tmp_path):
    """The file of a sweep "s" over ``what``, in the order of a grid, two trials at once."""

    def to_file(*what, **fields):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / "train.py").write_text(textwrap.dedent(TRAIN))
        job = {
            "type": "sweep",
            "name": "s",
            "trial": {
                "command": "python train.py ${{search_space.what}}",
                "code": "src",
                "distribution": {"type": "pytorch", "process_count_per_instance": 1},
                "resources": {"instance_count": 2},
                "drumline": {"grace": 0.5},
            },
            "search_space": {"what": {"type": "choice", "values": list(what)}},
            "sampling_algorithm": "grid",
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "limits": {"max_total_trials": 9, "max_concurrent_trials": 2},
            "outputs": {"model": {}},
            **fields,
        }
        (tmp_path / "sweep.yml").write_text(json.dumps(job))
        return tmp_path / "sweep.yml"

    return to_file


def table(*columns, name="s"):
    return [tuple(row[column] for column in columns) for row in description.show_job(name)["trials"]]


def test_the_best_of_all_trials_gives_the_sweep_its_outputs(cli, write, tmp_path):
    done = cli("job", "create", "-f", write("0.5", "fails", "0.2", "silent"), "--stream")
    assert done.rc == 0, done.out + done.err
    assert "4 trials: 3 completed, 1 failed; best loss 0.2, of s_2" in done.out + done.err
    assert "step trial_2 completed: best loss 0.2\n" in done.out
    assert table("trial", "status", "rank", "metric", "params") == [
        ("s_0", "Completed", 2, 0.5, {"what": "0.5"}),
        ("s_1", "Failed", None, None, {"what": "fails"}),
        ("s_2", "Completed", 1, 0.2, {"what": "0.2"}),
        ("s_3", "Completed", None, None, {"what": "silent"}),
    ]
    reasons = [reason for (reason,) in table("reason")]
    assert "what is this?" in reasons[1]
    assert reasons[3] == "it did not log 'loss', only 'accuracy'"
    shown = description.show_job("s")
    assert shown["best_trial"] == {"trial": "s_2", "metric": 0.2, "params": {"what": "0.2"}}
    assert description.show_job("s_2")["parent_job_name"] == "s"

    sorted_ = cli("job", "show", "-n", "s", "--query", "sort_by(trials[?rank], &rank)[].trial", "-o", "tsv")
    assert sorted_.out.split() == ["s_2", "s_0"]
    assert cli("job", "download", "-n", "s", "--all", "-p", tmp_path / "got").rc == 0
    assert (tmp_path / "got/named-outputs/model/weights").read_text() == "0.2"
    assert (tmp_path / "got/artifacts/outputs/log").read_text() == "0.2"
    model = {"type": "uri_folder", "path": "azureml://jobs/s/outputs/model"}
    after = {"command": "cat ${{inputs.model}}/weights", "inputs": {"model": model}}
    (tmp_path / "after.yml").write_text(json.dumps(after))
    assert "0.2" in cli("job", "create", "-f", tmp_path / "after.yml", "--stream").out


def test_a_trial_that_lags_behind_is_stopped(cli, write):
    policy = {"type": "bandit", "slack_factor": 0.5, "evaluation_interval": 3}
    # One at a time: a small machine might otherwise have the second trial hold the cores that the first waits for.
    limits = {"max_total_trials": 2, "max_concurrent_trials": 1}
    path = write("0.5", "lags", early_termination=policy, limits=limits)
    done = cli("job", "create", "-f", path, "--stream")
    assert done.rc == 0, done.out + done.err
    ((_, good), (stopped, _)) = table("stopped_early", "rank")
    assert (stopped, good) == (True, 1)
    ((_, _), (status, reason)) = table("status", "reason")
    assert status == "Canceled"
    assert reason.startswith(
        "stopped by the bandit policy: its best was 9, worse than 0.5 of s_0 by more than slack"
    )
    assert (
        description.show_job("s")["reason"] == "2 trials: 1 completed, 1 stopped early; best loss 0.5, of s_0"
    )


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (("fails", "fails"), "every trial failed; s_0: rank "),
        (("fails", "silent"), "no trial has a value of 'loss'; s_1: it did not log 'loss', only 'accuracy'"),
    ],
)
def test_a_sweep_without_any_result_fails_and_says_why(cli, write, what, reason):
    done = cli("job", "create", "-f", write(*what), "--stream")
    assert done.rc == 1
    shown = description.show_job("s")
    assert (shown["status"], shown["exit_code"], shown["best_trial"]) == ("Failed", 1, None)
    assert shown["reason"].startswith(reason)


def test_a_canceled_sweep_cancels_its_trials_and_starts_no_more(cli, write):
    assert cli("job", "create", "-f", write("waits", "waits", "0.5")).rc == 0
    # On a small machine one waits for the cores of the other.
    wait_until(lambda: {status_of("s_0"), status_of("s_1")} in ({"Running"}, {"Running", "Queued"}), 20.0)
    assert cli("job", "cancel", "-n", "s").rc == 0
    assert wait_for_status("s", "Canceled")["exit_code"] == 130
    assert table("trial", "status") == [("s_0", "Canceled"), ("s_1", "Canceled")]


def test_time_ends_a_sweep_and_the_best_so_far_is_its_result(cli, write):
    limits = {"max_total_trials": 3, "max_concurrent_trials": 1, "timeout": 4}
    done = cli("job", "create", "-f", write("0.5", "waits", limits=limits), "--stream")
    assert done.rc == 1
    shown = description.show_job("s")
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 124)
    assert shown["reason"].startswith("it ran into its time limit of 4 s; 2 trials: ")
    assert shown["best_trial"]["trial"] == "s_0"
    assert table("reason")[1] == ("the sweep ran into its time limit of 4 s",)
    assert os.path.exists(os.path.join(shown["run_folder"], "named-outputs", "model", "weights"))


def test_a_sweep_goes_on_when_its_driver_and_its_guard_are_killed(cli, write, tmp_path):
    path = write("0.5", "gated", "0.4", outputs={"model": {}})
    job = json.loads(path.read_text())
    job["trial"]["environment_variables"] = {"GATE": str(tmp_path / "gate")}
    path.write_text(json.dumps(job))
    assert cli("job", "create", "-f", path).rc == 0
    wait_until(lambda: status_of("s_1") == "Running", 20.0)
    folder = RunFolder.for_job("s")
    driver = folder.read_json(folder.supervisor)["pid"]
    for pid in (int(_field(driver, "PPid")), driver):
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "gate").touch()
    assert wait_for_status("s", "Completed")["reason"] == "3 trials: 3 completed; best loss 0.1, of s_1"
    assert table("trial", "params") == [
        ("s_0", {"what": "0.5"}),
        ("s_1", {"what": "gated"}),
        ("s_2", {"what": "0.4"}),
    ]


def test_a_driver_that_is_killed_at_the_end_leaves_the_outputs_to_the_next_one(cli, write):
    assert cli("job", "create", "-f", write("0.5", outputs={"model": {}})).rc == 0
    wait_for_status("s", "Completed")
    folder = RunFolder.for_job("s")
    os.unlink(folder.outputs)
    with open(folder.events) as file:
        lines = file.readlines()
    with open(folder.events, "w") as file:
        file.writelines(lines[:-1])
    assert wait_for_status("s", "Completed")["best_trial"]["trial"] == "s_0"
    with open(os.path.join(folder.outputs, "log")) as file:
        assert file.read() == "0.5"


def _field(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/status") as file:
        return next(line.split()[1] for line in file if line.startswith(name + ":"))


def test_what_cannot_run_is_refused_with_its_line_and_leaves_nothing(cli, tmp_path, drumline_home):
    path = tmp_path / "sweep.yml"
    path.write_text(
        textwrap.dedent(
            """\
            type: sweep
            trial:
              command: echo ${{search_space.lrr}}
              resources: {instance_count: 2}
            search_space:
              lr: {type: uniform, min_value: 1, max_value: 0}
            objective: {goal: minimize, primary_metric: loss}
            limits:
              max_total_trials: 0
            """
        )
    )
    refused = cli("job", "create", "-f", path)
    assert refused.rc == 2
    assert f"{path}:9:21: limits.max_total_trials: 0 is not between 1 and 1000" in refused.err
    assert f"{path}:6:3: search_space.lr: min_value 1 is above max_value 0" in refused.err
    path.write_text(
        path.read_text().replace("max_value: 0", "max_value: 2").replace("trials: 0", "trials: 1")
    )
    refused = cli("job", "create", "-f", path)
    assert refused.rc == 2
    assert "trial.command: '${{search_space.lrr}}' refers to 'search_space.lrr'" in refused.err
    assert not (drumline_home / "jobs").exists()


def test_the_documented_way_from_python(write, tmp_path):
    write()
    client = MLClient(None, "subscription", "group", "")
    job = command(
        command="python train.py ${{inputs.what}}",
        code=str(tmp_path / "src"),
        inputs={"what": "1"},
        outputs={"model": Output(type="uri_folder")},
        distribution={"type": "PyTorch", "process_count_per_instance": 1},
        instance_count=2,
    )
    sweep = job(what=Choice(["0.5", "0.25"])).sweep(
        primary_metric="loss", goal="Maximize", sampling_algorithm="grid"
    )
    sweep.set_limits(max_total_trials=20, max_concurrent_trials=10, timeout=7200)
    sweep.early_termination = MedianStoppingPolicy(delay_evaluation=5, evaluation_interval=2)
    returned = client.jobs.create_or_update(sweep)
    client.jobs.stream(returned.name)
    got: Any = client.jobs.get(returned.name)
    # The best that a trial logged: 2 above what it was told.
    assert (got.status, got.best_trial["metric"], len(got.trials)) == ("Completed", 2.5, 2)
    client.jobs.download(returned.name, output_name="model", download_path=tmp_path / "got")
    assert (tmp_path / "got/named-outputs/model/weights").read_text() == "0.5"
