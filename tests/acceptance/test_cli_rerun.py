"""An earlier job once more: ``drumline job rerun``, and what ``job show`` prints as a job file."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_jobs import one_rank, wait_for_status, write_job
from pipelines import counts, runs, step, wait_for_end, write_pipeline
from waiting import wait_until

from drumline import MLClient, load_job
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import RunFolder
from drumline.control.jobs import naming
from drumline.control.submission.rerun import prepare_rerun
from drumline.control.submission.submit import submit

PRINT = "import os, sys\nprint('{word}', *sys.argv[1:], os.environ.get('SEED'), flush=True)\n"


def log_of(name):
    wait_for_status(name, "Completed")
    logs = Path(RunFolder.for_job(name).path, "user_logs")
    return "".join(log.read_text() for log in sorted(logs.iterdir()))


def again(name, changes=(), **wish):
    """Submit the job once more, and return the name of the new one."""
    prepared = prepare_rerun(name, changes, **wish)
    return submit(prepared.job, prepared.run).name


def test_a_job_runs_again_from_what_was_stored(cli, tmp_path):
    code = tmp_path / "src"
    code.mkdir()
    (code / "train.py").write_text(PRINT.format(word="then"))
    fields = one_rank(code="src", inputs={"lr": 0.1}, environment_variables={"SEED": "7"})
    job = write_job(tmp_path, "python train.py ${{inputs.lr}}", **fields)
    assert cli("job", "create", "-f", job, "-n", "first", "--stream").rc == 0
    (code / "train.py").write_text(PRINT.format(word="now"))
    job.unlink()

    streamed = cli("job", "rerun", "fi", "--set", "inputs.lr=0.2", "--name", "second", "--stream")
    assert streamed.rc == 0, streamed.err
    assert "then 0.2 7" in streamed.out
    shown = json.loads(cli("job", "show", "-").out)
    assert (shown["name"], shown["display_name"]) == ("second", "second")
    assert '"0.2"' not in cli("job", "diff", "first", "second", "--output", "json").out
    assert shown["properties"] == {"drumline.rerun_of": "first"}

    done = cli("job", "rerun", "-n", "first", "--code", "now", "--query", "name", "-o", "tsv")
    assert log_of(done.out.strip()) == "now 0.1 7\n"
    assert cli("job", "rerun", "first", "--compute", "nowhere").rc == 3
    assert cli("job", "rerun").rc == 2

    client = MLClient()
    made = client.jobs.rerun(
        "second", params_override=[{"environment_variables.SEED": "8"}], new_name="third"
    )
    assert (made.name, made.environment_variables) == ("third", {"SEED": "8"})
    assert log_of("third") == "then 0.2 8\n"


def test_what_is_shown_or_stored_is_a_job_file(cli, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PRINT.format(word="then"))
    fields = one_rank(code="src", inputs={"lr": 0.1}, outputs={"o": {"type": "uri_folder"}}, tags={"a": "b"})
    submit(load_job(write_job(tmp_path, "python train.py ${{inputs.lr}}", name="first", **fields)))
    wait_for_status("first", "Completed")
    shown = tmp_path / "shown.yml"
    shown.write_text(cli("job", "show", "first", "-o", "yaml").out)
    made = cli("job", "create", "-f", shown, "--set", "inputs.lr=0.3", "--query", "name", "-o", "tsv")
    assert made.rc == 0, made.err
    assert log_of(made.out.strip()) == "then 0.3 None\n"
    spec = json.loads(cli("job", "show", "@last").out)
    assert (spec["display_name"], spec["tags"]) == (spec["name"], {"a": "b"})
    assert list(spec["outputs"]) == ["default", "o"]

    again_stored = submit(load_job(RunFolder.for_job("first").job)).name
    assert log_of(again_stored) == "then 0.1 None\n"
    shown.write_text(shown.read_text() + "inputz: {}\n")
    refused = cli("job", "create", "-f", shown)
    assert (refused.rc, "unknown key 'inputz'" in refused.err) == (2, True)
    assert cli("run", "--name", "here", "--", "sh", "-c", "pwd").rc == 0
    shown.write_text(cli("job", "show", "here", "-o", "yaml").out)
    assert log_of(submit(load_job(shown)).name) == f"{tmp_path}\n"


def test_code_that_is_gone_is_said(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(PRINT.format(word="then"))
    job = write_job(tmp_path, "python train.py", **one_rank(code="src"))
    submit(load_job(job, params_override=[{"name": "first"}]))
    wait_for_status("first", "Completed")
    shutil.rmtree(f"{RunFolder.for_job('first').root}/snapshots")
    with pytest.raises(NotFoundError, match="the code of job first is not stored: it was removed"):
        prepare_rerun("first", code="then")
    prepared = prepare_rerun("first")
    assert prepared.notes == ("the code of job first is not stored (it was removed); it runs as it is now",)
    assert prepared.job._snapshots == {}


def test_a_job_of_the_current_folder_runs_again_with_the_code_of_then(cli, tmp_path):
    folder = tmp_path / "work"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "large").write_bytes(b"x" * (2 << 20))
    script = (
        "import os, sys\nprint('{}', *sys.argv[1:], os.path.getsize('data/large'), os.getcwd(), flush=True)\n"
    )
    (folder / "train.py").write_text(script.format("then"))
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    done = cli("run", "--name", "first", "--", "python", "train.py", "a b", cwd=folder)
    assert done.rc == 0, done.err
    first = RunFolder.for_job("first")
    record = wait_until(lambda: first.read_json(first.stored_code))
    assert (record["folder"], record["file_count"]) == (str(folder), 1)
    assert os.stat(first.stored_code).st_mode & 0o777 == 0o600
    assert record["left_out"] == [".git: not code", "data/large: larger than 1 MiB"]

    (folder / "train.py").write_text(script.format("now"))
    name = again("first")
    assert log_of(name) == f"then a b {2 << 20} {RunFolder.for_job(name).code}\n"
    assert log_of(again(name)) == log_of(name).replace(
        name, json.loads(cli("job", "show", "@last").out)["name"]
    )
    assert log_of(again(name, code="now")) == f"now a b {2 << 20} {folder}\n"
    done = cli("job", "rerun", "first", "--code", "now", "--name", "current", "--stream")
    assert (done.rc, "as it was then" in done.err) == (0, False), done.err
    current = RunFolder.for_job("current")
    record = wait_until(lambda: current.read_json(current.stored_code))
    assert record["snapshot"], "so that it can be compared, and run again"
    done = cli("job", "rerun", "current", "--stream", cwd=tmp_path)
    assert f"note: it runs the code as it was then; --code now takes that of {folder}\n" in done.err
    changed = again("first", [{"command": "python train.py c | tr c d"}])
    assert log_of(changed).startswith("then d ")
    folder.rename(tmp_path / "moved")
    with pytest.raises(UsageError, match="where job first ran, is no longer there"):
        prepare_rerun("first", code="now")


def test_a_folder_that_is_too_large_is_not_stored(cli, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    for number in range(65):
        with open(folder / f"{number}", "wb") as file:
            file.truncate(1 << 20)
    assert cli("run", "--name", "first", "--", "true", cwd=folder).rc == 0
    first = RunFolder.for_job("first")
    record = wait_until(lambda: first.read_json(first.stored_code))
    assert record["not_stored"] == f"the code in {folder} has more than 64 MiB"
    (note,) = prepare_rerun("first").notes
    assert note.startswith(f"the code of job first is not stored (the code in {folder} has more than")


def test_a_failed_pipeline_continues_where_it_failed(tmp_path):
    count, flag = tmp_path / "count", tmp_path / "flag"
    inner = {
        "type": "pipeline",
        "jobs": {"deep": step(counts(tmp_path / "deep")), "fails": step(f"test -e {flag}")},
    }
    steps = {
        "prep": step(counts(count)),
        "train": step(
            f"test -e {flag}; cat ${{{{inputs.prep}}}}/*; echo run >> {tmp_path}/train; test -e {flag}",
            "prep",
        ),
        "inside": inner,
    }
    # Without reuse by content: what has completed is known by the pipeline itself.
    settings = {"force_rerun": True, "continue_on_step_failure": True}
    submit(load_job(write_pipeline(tmp_path, steps, settings=settings)))
    assert wait_for_end("p")["status"] == "Failed"
    assert (runs(count), runs(tmp_path / "deep")) == (1, 1)
    flag.touch()
    second = again("p", new_name="p2")
    assert wait_for_end(second)["status"] == "Completed"
    assert (runs(count), runs(tmp_path / "deep")) == (1, 1), "these had completed"
    third = again("p", [{"jobs.prep.environment_variables.X": "1"}], new_name="p3")
    assert wait_for_end(third)["status"] == "Completed"
    assert (runs(count), runs(tmp_path / "deep")) == (2, 2)
    alone = again(naming.find_name("p2/train"))
    assert "parent_job_name" not in wait_for_status(alone, "Completed")
