"""What differs between two jobs, from their run folders."""

import json
import time

import pytest
from planning import plan

from drumline.cli.main import main
from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.contract.mlflow_variables import run_id_of
from drumline.control.comparing import compare_jobs, compare_trees
from drumline.control.jobs import naming
from drumline.staging.snapshot.take import take_snapshot
from drumline.tracking import metrics as files
from drumline.tracking import mlflow_files, runs


@pytest.fixture
def make(drumline_home, tmp_path):
    """Make a job that has completed, with its code, its variables and its plan."""

    def make_job(name, files, spec=None, plan=None):
        code = tmp_path / name
        for path, content in files.items():
            (code / path).parent.mkdir(parents=True, exist_ok=True)
            (code / path).write_bytes(content)
        variables = {"RANKS": "all", "FOLDER": RunFolder.for_job(name).path, "JOB": name}
        digest = take_snapshot(str(code), str(drumline_home)).digest
        folder = RunFolder.for_job(name)
        folder.create()
        folder.write(folder.job, json.dumps({"name": name, "display_name": name, **(spec or {})}))
        nodes = [{"cores": [0, 1], "gpu_count": 0, "ranks": [{}, {}]}]
        facts = {
            "snapshot": digest,
            "cwd": folder.code,
            "engine": "local",
            "nodes": nodes,
            "env": variables,
            **(plan or {}),
        }
        folder.write(folder.plan, json.dumps(facts))
        at = time.time() - 100
        folder.begin(e.JobSubmitted(at, "me", "local"))
        folder.append(e.RankStarted(at + 1, 0, 0, 4711))
        folder.append(e.JobEnded(at + 11, "Completed", 0, ""))
        return folder

    return make_job


def test_equal_jobs_differ_in_nothing(make):
    make("a", {"train.py": b"print(1)\n"}, {"command": "python train.py", "inputs": {"lr": 0.1}})
    make("b", {"train.py": b"print(1)\n"}, {"command": "python train.py", "inputs": {"lr": 0.1}})
    told = compare_jobs("a", "b")
    assert {key: told[key] for key in ("spec", "environment", "variables", "inputs", "machine", "plan")} == {
        key: [] for key in ("spec", "environment", "variables", "inputs", "machine", "plan")
    }
    assert told["code"] == ([], 0, [])
    assert [job["name"] for job in told["jobs"]] == ["a", "b"]
    assert {"time": "run_s", "a": 10.0, "b": 10.0} in told["times"]


def test_code_is_compared_file_by_file(make):
    make("a", {"train.py": b"lr = 0.1\nrun()\n", "data.bin": b"\0\1", "old.py": b"1\n", "same.py": b"same\n"})
    make(
        "b",
        {"train.py": b"lr = 0.2\nrun()\n", "data.bin": b"\0\2", "lib/new.py": b"2\n", "same.py": b"same\n"},
    )
    files = {file.path: file for file in compare_jobs("a", "b")["code"].files}
    assert sorted(files) == ["data.bin", "lib/new.py", "old.py", "train.py"]
    assert files["train.py"].diff.splitlines() == [
        "--- a/train.py", "+++ b/train.py", "@@ -1,2 +1,2 @@", "-lr = 0.1", "+lr = 0.2", " run()",
    ]  # fmt: skip
    assert files["data.bin"].diff is None
    assert files["data.bin"].a != files["data.bin"].b
    assert (files["old.py"].change, files["old.py"].b) == ("removed", None)
    assert files["lib/new.py"].diff.startswith("--- /dev/null\n+++ b/lib/new.py\n")


def test_fields_plan_and_machine_are_compared_by_what_is_not_the_runs_own(make):
    spec = {
        "command": "python train.py",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
    }
    make("a", {"x": b"1"}, spec, {"argv": ["python", "train.py"], "grace_s": 30.0})
    other = {**spec, "distribution": {"type": "pytorch", "process_count_per_instance": 4}}
    other["properties"] = {"drumline.rerun_of": "a"}
    b = make("b", {"x": b"1"}, other, {"argv": ["python", "train.py"], "grace_s": 5.0, "engine": "slurm"})
    told = compare_jobs("a", "b")
    assert told["spec"] == [{"field": "distribution.process_count_per_instance", "a": 2, "b": 4}]
    assert told["plan"] == [{"field": "grace_s", "a": 30.0, "b": 5.0}]
    assert told["machine"] == [{"field": "engine", "a": "local", "b": "slurm"}]
    assert b.path not in json.dumps(told)


def test_values_of_secrets_are_never_told(make):
    nested = {"jobs": {"train": {"environment_variables": {"HF_TOKEN": "hidden-one"}}}}
    make("a", {"x": b"1"}, {"environment_variables": {"WANDB_API_KEY": "hidden-one", "SEED": "1"}, **nested})
    nested = {"jobs": {"train": {"environment_variables": {"HF_TOKEN": "hidden-two"}}}}
    make("b", {"x": b"1"}, {"environment_variables": {"WANDB_API_KEY": "hidden-two", "SEED": "2"}, **nested})
    told = compare_jobs("a", "b")
    assert told["variables"] == [
        {"variable": "WANDB_API_KEY", "a": "(hidden)", "b": "(hidden)"},
        {"variable": "SEED", "a": "1", "b": "2"},
    ]
    assert [one["a"] for one in told["spec"]] == ["(hidden)"]
    assert "hidden-" not in json.dumps(told)


def test_inputs_are_compared_by_content(make, tmp_path):
    for name, text in (("one", "same"), ("two", "same"), ("three", "other")):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "file").write_text(text)

    def job_with(name, data):
        path = str(tmp_path / "data" / data)
        make(name, {"x": b"1"}, {"inputs": {"digits": {"type": "uri_folder", "path": path}, "lr": len(data)}})

    job_with("a", "one")
    job_with("b", "two")
    job_with("c", "three")
    assert compare_jobs("a", "b")["inputs"] == []
    told = {one["input"]: one for one in compare_jobs("a", "c")["inputs"]}
    assert told["digits"]["a"]["hash"] != told["digits"]["b"]["hash"]
    assert told["lr"] == {"input": "lr", "a": 3, "b": 5}


def test_packages_of_environments_are_compared(make):
    build = {"name": "azureml:env:1", "kind": "uv", "digest": "1"}
    a = make("a", {"x": b"1"}, plan={"build": build})
    b = make("b", {"x": b"1"}, plan={"build": {**build, "digest": "2"}})
    a.write(f"{a.path}/environment.lock", "numpy==1.26\ntorch==2.3\n")
    b.write(f"{b.path}/environment.lock", "numpy==2.0\ntorch==2.3\nrich==13\n")
    assert compare_jobs("a", "b")["environment"] == [
        {"package": "numpy", "a": "1.26", "b": "2.0"},
        {"package": "rich", "a": None, "b": "13"},
    ]


def test_code_that_is_not_stored_is_said(make):
    make("a", {"x": b"1"})
    b = make("b", {"x": b"1"}, plan={"snapshot": "", "cwd": "/somewhere"})
    b.write(
        b.stored_code,
        json.dumps({"not_stored": "it has more than 5,000 files", "git": {"commit": "4f2a91cdead"}}),
    )
    told = compare_jobs("a", "b")["code"]
    assert told.files == []
    assert told.notes == ["the code of job b is not stored: it has more than 5,000 files; git was at 4f2a91c"]


def test_ends_of_lines_are_differences(make):
    make("a", {"dos.py": b"1\r\n2\r\n", "end.py": b"1\n"})
    make("b", {"dos.py": b"1\n2\n", "end.py": b"1"})
    files = {file.path: file for file in compare_jobs("a", "b")["code"].files}
    assert sorted(files) == ["dos.py", "end.py"]
    assert "-1\r\n" in files["dos.py"].diff
    assert files["end.py"].diff.endswith("-1\n+1\n\\ No newline at end of file\n")


@pytest.fixture
def logged(make):
    """Two jobs that have logged metrics."""
    for name, values in (("a", {"loss": 0.5, "acc": 1.0}), ("b", {"loss": 0.25, "f1": float("nan")})):
        folder = make(name, {"x": b"1"})
        made = plan(nodes=1)
        uri = mlflow_files.uri_of(folder.root)
        tracking = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_RUN_ID": run_id_of(name)}
        made = made._replace(job=name, user_env={**made.user_env, **tracking})
        folder.write(folder.plan, made.to_json())
        runs.begin(folder, made, "ann", pytest.fail)
        for metric, value in values.items():
            files.log_value(files.run_dir_of(made), metric, 9.0, 1)
            files.log_value(files.run_dir_of(made), metric, value, 2)


def test_metrics_are_compared_by_their_last_values(logged):
    assert compare_jobs("a", "b")["metrics"] == [
        {"metric": "acc", "a": 1.0, "b": None, "difference": None},
        {"metric": "f1", "a": None, "b": "NaN", "difference": None},
        {"metric": "loss", "a": 0.5, "b": 0.25, "difference": -0.25},
    ]


def test_metrics_of_several_jobs_are_shown_together(logged, capsys, monkeypatch):
    words = ["job", "metrics", "a", "b"]
    assert main([*words, "-m", "loss", "-o", "json", "--step-range", "2:"]) == 0
    told = json.loads(capsys.readouterr().out)
    points = [(one["job"], one["metric"], [point["value"] for point in one["points"]]) for one in told]
    assert points == [("a", "loss", [0.5]), ("b", "loss", [0.25])]
    assert main(words) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:3] for row in rows] == [
        ["JOB", "METRIC", "LAST"],
        ["a", "acc", "1.0"],
        ["b", "f1", "NaN"],
        ["a", "loss", "0.5"],
        ["b", "loss", "0.25"],
    ]
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout.isatty", lambda: True)
        assert main(words) == 0
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["JOB", "METRIC", "COURSE", "LAST"]
    assert rows[3][:2] == ["a", "loss"]
    assert main([*words, "--follow"]) == 2


def test_what_became_a_program_is_said(tmp_path):
    for name, mode in (("a", 0o600), ("b", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.sh").write_text("exit\n")
        (tmp_path / name / "run.sh").chmod(mode)
    files, left_out = compare_trees({"step": str(tmp_path / "a")}, {"step": str(tmp_path / "b")})
    assert [(file.path, file.change) for file in files] == [("step/run.sh", "changed, now a program")]
    assert left_out == 0


def test_the_page_says_what_differs_and_what_is_the_same(make, capsys):
    command = "python train.py --data https://me:hidden-one@host/data?sig=hidden-two"
    make("calm", {"train.py": b"lr = 0.1\n", "data.bin": b"\0\1"}, {"command": command})
    variables = {"environment_variables": {"API_TOKEN": "hidden-three", "TEXT": "\x1b[31mred"}}
    other = {"command": f"{command} --more", **variables}
    make("wild", {"train.py": b"lr = 0.2\x1b[2J\n", "data.bin": b"\0\2"}, other, {"grace_s": 5.0})
    assert main(["job", "diff", "calm", "wi", "-o", "table"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("a  calm  Completed\nb  wild  Completed\n\nspec\n")
    for part in (
        "\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-lr = 0.1\n+lr = 0.2",
        "\n  API_TOKEN  - -> (hidden)\n",
        "\nplan\n  grace_s  - -> 5.0\n",
        "\n  run          10  10\n",
        "\n  submitted           11  11\n",
        "\nthe same: environment, inputs, machine\n",
    ):
        assert part in page, part
    assert "\n  data.bin: changed, " in page
    assert "hidden-" not in page
    assert "\x1b" not in page


def test_piped_it_is_json_and_a_dash_is_the_job_before(make, capsys):
    make("calm", {"x": b"1"})
    make("wild", {"x": b"1"})
    for words in (["calm", "wild"], ["calm", "-"], ["-", "calm"]):
        naming.remember("wild")
        assert main(["job", "diff", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        names = [word if word != "-" else "wild" for word in words]
        assert [job["name"] for job in told["jobs"]] == names
    assert main(["job", "diff", "calm", "gone"]) == 3
    assert "there is no job 'gone'" in capsys.readouterr().err
