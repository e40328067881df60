"""What a job logs, in the store of the home or at a team's server, and how ``drumline job`` shows it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_jobs import LOG, on_terminal, one_rank, wait_for_status, write_job, write_script
from mlflow_server import FakeServer
from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.control.facts import metrics

VALUES = [4.0, 2.0, 1.0, 0.5]


def test_what_was_logged_is_shown_in_every_form(cli, tmp_path):
    text = f"{LOG}\nlog('loss', *{VALUES})\nlog('val/acc', 0.25, float('nan'), float('inf'))\n"
    write_script(tmp_path, text, **one_rank(resources={"instance_count": 1}))
    assert cli("job", "create", "-f", "job.yml", "--stream").rc == 0

    shown = json.loads(cli("job", "show", "job").out)
    assert shown["metrics"] == {"loss": 0.5, "val/acc": "Infinity"}
    assert shown["services"]["Tracking"]["endpoint"].endswith("/mlruns")

    lines = cli("job", "metrics", "job").out.splitlines()
    assert lines[0].split() == ["METRIC", "LAST", "STEP", "MIN", "MAX", "COUNT", "SOURCE"]
    assert lines[1].split() == ["loss", "0.5", "3", "0.5", "4.0", "4", "mlflow"]
    assert lines[2].split() == ["val/acc", "Infinity", "2", "0.25", "0.25", "3", "mlflow"]
    assert cli("job", "metrics", "job", "-o", "tsv", "-m", "l*").out == "loss\t0.5\t3\t0.5\t4.0\t4\tmlflow\n"

    (found,) = json.loads(cli("job", "metrics", "job", "-m", "loss", "-o", "json", "--step-range", "1:2").out)
    assert [(point["step"], point["value"]) for point in found["points"]] == [(1, 2.0), (2, 1.0)]
    queried = cli("job", "metrics", "job", "--query", "[1].points[].value", "-o", "json").out
    assert json.loads(queried) == [0.25, "NaN", "Infinity"]

    code, table = on_terminal("job", "metrics", "job", cwd=tmp_path)
    assert code == 0
    lines = [line.split() for line in table.splitlines()]
    assert ["METRIC", "COURSE", "LAST", "STEP", "MIN", "MAX", "COUNT", "SOURCE"] in lines
    assert ["loss", "█▄▂▁", "0.5", "3", "0.5", "4.0", "4", "mlflow"] in lines
    assert "3, 2 nan or inf" in table
    assert "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri" in table
    code, plain = on_terminal("job", "metrics", "job", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert code == 0
    assert "#-._" in plain
    assert plain.isascii()
    code, followed = on_terminal("job", "metrics", "job", "--follow", cwd=tmp_path)
    assert code == 0
    assert "█▄▂▁" in followed
    code, followed = on_terminal("job", "metrics", "job", "--follow", "-m", "x*", cwd=tmp_path)
    assert (code, "job job has logged no metrics yet" in followed) == (0, True)

    nothing = cli("job", "metrics", "job", "-m", "x*")
    assert (nothing.rc, nothing.err) == (0, "job job has logged no such metrics\n")
    for words in (["--step-range", "5"], ["--step-range", "a:b"], ["-f", "-o", "json"]):
        assert cli("job", "metrics", "job", *words).rc == 2


def test_values_are_seen_and_followed_while_the_job_runs(cli, tmp_path):
    wait = "import time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
    text = f"{LOG}\nlog('loss', 3.0)\n{wait}log('loss', 2.0, 1.0)\n"
    go = tmp_path / "go"
    write_script(tmp_path, text, f"python train.py '{go}'", **one_rank(resources={"instance_count": 1}))
    cli("job", "create", "-f", "job.yml")
    folder = RunFolder.for_job("job")
    wait_until(lambda: metrics.read_latest(folder)[0] == {"loss": 3.0})
    shown = json.loads(cli("job", "show", "job").out)
    assert (shown["metrics"], shown["exit_code"]) == ({"loss": 3.0}, None)
    command = [sys.executable, "-m", "drumline", "job", "metrics", "job", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout.readline() == "loss\t0\t3.0\n"
        go.touch()
        assert following.stdout.read() == "loss\t0\t2.0\nloss\t1\t1.0\n"
        assert following.wait() == 0


def test_names_and_files_of_an_evil_job_do_no_harm(cli, tmp_path):
    text = LOG + (
        "log('loss', 1.0)\nlog('a\\x1b[31mb', 1.0)\nfolder = run + '/metrics'\n"
        "os.mkfifo(folder + '/pipe')\nos.symlink('/etc/passwd', folder + '/link')\n"
        "os.symlink('..', folder + '/up')\nopen(folder + '/rubbish', 'wb').write(os.urandom(5000))\n"
        "for number in range(70): log(f'many/{number:02}', number)\n"
    )
    write_script(tmp_path, text, **one_rank(resources={"instance_count": 1}))
    assert cli("job", "create", "-f", "job.yml", "--stream").rc == 0
    shown = json.loads(cli("job", "show", "job").out)
    assert (len(shown["metrics"]), shown["metrics_left_out"], shown["metrics"]["loss"]) == (50, 22, 1.0)
    found = metrics.read_metrics(RunFolder.for_job("job"))
    assert {one.name for one in found.series if not one.name.startswith("many/")} == {"loss", "rubbish"}
    assert cli("job", "metrics", "job").rc == 0


def test_a_pipeline_has_the_metrics_of_its_steps(cli, tmp_path):
    (tmp_path / "train.py").write_text(f"{LOG}\nlog('loss', 2.0, 1.0)\n")
    step = {"type": "command", "command": "python train.py", "code": "."}
    pipeline = {"type": "pipeline", "name": "whole", "jobs": {"one": step}}
    (tmp_path / "pipeline.yml").write_text(json.dumps(pipeline))
    cli("job", "create", "-f", "pipeline.yml", "--stream")
    line = cli("job", "metrics", "whole").out.splitlines()[1]
    assert line.split() == ["loss", "one", "1.0", "1", "1.0", "2.0", "2", "mlflow"]


# a team's server

SAY = 'echo "$MLFLOW_TRACKING_URI $MLFLOW_RUN_ID $MLFLOW_RUN_CONTEXT"'


def says(name):
    uri, run_id, context = Path(RunFolder.for_job(name).user_logs, "std_log.txt").read_text().split(" ", 2)
    return uri, run_id, json.loads(context)


def test_a_run_at_the_server_is_made_before_the_ranks_start_and_ended_with_the_job(cli, tmp_path):
    with FakeServer(wants="Bearer CANARY-t0ken") as there:
        env = {"MLFLOW_TRACKING_URI": there.uri, "MLFLOW_TRACKING_TOKEN": "CANARY-t0ken"}
        write_job(tmp_path, f"{SAY}; exit 3", name="job", experiment_name="digits")
        assert cli("job", "create", "-f", "job.yml", "--stream", env=env).rc == 1
        (run_id,) = there.runs
        assert says("job") == (there.uri, run_id, {"mlflow.parentRunId": run_id, "drumline.job": "job"})
        assert (there.runs[run_id]["run_name"], there.runs[run_id]["status"]) == ("job", "FAILED")
        assert {"key": "drumline.job", "value": "job"} in there.runs[run_id]["tags"]
        there.log(run_id, "loss", 2.0, 1.0, 0.5)
        below = there.answer(
            "POST",
            "runs/create",
            {"run_name": "ape", "tags": [{"key": "mlflow.parentRunId", "value": run_id}]},
        )[1]
        there.log(below["run"]["info"]["run_id"], "acc", 0.5)
        shown = json.loads(cli("job", "show", "job", env=env).out)
        assert shown["metrics"] == {"acc": 0.5, "loss": 0.5}
        assert shown["services"]["Tracking"]["endpoint"] == f"{there.uri}/#/experiments/1/runs/{run_id}"
        rows = [line.split()[:2] for line in cli("job", "metrics", "job", env=env).out.splitlines()]
        assert rows == [["METRIC", "RUN"], ["acc", "ape"], ["loss", "-"]]
    kept = [path for path in Path(RunFolder.for_job("job").path).rglob("*") if path.is_file()]
    assert not [path for path in kept if b"CANARY" in path.read_bytes()]
    gone = cli("job", "metrics", "job", env=env)
    assert gone.rc == 0
    assert "does not answer as an MLflow server" in gone.err


@pytest.mark.parametrize("fault", ["refuse", "garbage"])
def test_without_its_server_a_job_logs_here_and_says_so(cli, tmp_path, drumline_home, fault):
    with FakeServer(fault) as there:
        assert cli("configure", "-d", f"tracking_uri={there.uri}").rc == 0
        write_job(tmp_path, SAY, name="job")
        done = cli("job", "create", "-f", "job.yml", "--stream")
        assert done.rc == 0
        assert (
            f"goes on without Tracking: metrics go to file://{str(drumline_home).replace(' ', '%20')}"
            in done.err
        )
        assert says("job")[:2] == (f"file://{drumline_home}/mlruns".replace(" ", "%20"), "job")
        tracking = json.loads(cli("job", "show", "job").out)["services"]["Tracking"]
        assert tracking["endpoint"].startswith("file://")
        assert there.uri in tracking["warning"]


def test_the_jobs_own_server_and_run_win(cli, tmp_path):
    with FakeServer() as there:
        there.log("mine", "loss", 7.0)
        own = {"MLFLOW_TRACKING_URI": there.uri, "MLFLOW_RUN_ID": "mine"}
        write_job(tmp_path, SAY, name="job", environment_variables=own)
        assert cli("job", "create", "-f", "job.yml", "--stream").rc == 0
        assert says("job")[:2] == (there.uri, "mine")
        assert there.runs == {}
        assert json.loads(cli("job", "show", "job").out)["metrics"] == {"loss": 7.0}


def test_where_mlflow_keeps_runs_of_its_own_no_id_is_given(cli, tmp_path):
    own = {"MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"}
    write_job(tmp_path, 'echo "<$MLFLOW_RUN_ID>"', name="job", environment_variables=own)
    assert cli("job", "create", "-f", "job.yml", "--stream").rc == 0
    assert Path(RunFolder.for_job("job").user_logs, "std_log.txt").read_text() == "<>\n"
    assert json.loads(cli("job", "show", "job").out)["metrics"] == {}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("ftp://x", "no address of an MLflow server"),
        ("https://ann:pw@x", "has a user in it"),
        ("https://", "no address"),
    ],
)
def test_what_is_no_server_is_refused(cli, value, words):
    done = cli("configure", "-d", f"tracking_uri={value}")
    assert done.rc == 2
    assert words in done.err


def test_an_address_with_a_password_is_not_kept_with_a_job(cli, tmp_path):
    write_job(tmp_path, "true", name="job")
    done = cli("job", "create", "-f", "job.yml", env={"MLFLOW_TRACKING_URI": "http://ann:pw@127.0.0.1:1"})
    assert done.rc == 2
    assert "has a user in it" in done.err


def test_a_sweep_reads_its_objective_from_the_server(cli, tmp_path):
    with FakeServer() as there:
        code = (
            "import json, os, sys, urllib.request\n"
            "asked = {'run_id': os.environ['MLFLOW_RUN_ID'], 'value': float(sys.argv[1])}\n"
            "uri = os.environ['MLFLOW_TRACKING_URI'] + '/api/2.0/mlflow/runs/log-metric'\n"
            "headers = {'Content-Type': 'application/json'}\n"
            "urllib.request.urlopen(urllib.request.Request(uri, json.dumps(asked).encode(), headers)).read()\n"
        )

        def log(content):
            there.log(content["run_id"], "loss", content["value"])
            return 200, {}

        there._runs_log_metric = log
        (tmp_path / "train.py").write_text(code)
        sweep = {
            "type": "sweep",
            "name": "tuned",
            "sampling_algorithm": "grid",
            "search_space": {"x": {"type": "choice", "values": [3, 1]}},
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "limits": {"max_total_trials": 2, "max_concurrent_trials": 2},
            "trial": {"command": "python train.py ${{search_space.x}}", "code": "."},
        }
        (tmp_path / "sweep.yml").write_text(json.dumps(sweep))
        env = {"MLFLOW_TRACKING_URI": there.uri}
        assert cli("job", "create", "-f", "sweep.yml", "--stream", env=env).rc == 0
        best = json.loads(cli("job", "show", "tuned").out)["best_trial"]
        assert (best["metric"], best["params"]) == (1.0, {"x": 1})
    wait_for_status("tuned", "Completed")
