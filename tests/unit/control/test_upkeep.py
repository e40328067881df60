"""What is removed, what stays, and what a kill in between leaves."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

import pytest

from drumline.cli.main import main
from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import RunFolder
from drumline.control.driver import reuse
from drumline.control.facts import description
from drumline.control.jobs import job_folders, lookup
from drumline.control.jobs.download import download
from drumline.control.submission import run_folder
from drumline.control.upkeep import disk, disk_usage, pruning, trash
from drumline.sdk.ml_client import MLClient
from drumline.staging.snapshot import code_files as snapshot
from drumline.tracking import mlflow_files

DAY = 86400.0
DIGEST = "ab" * 32
OTHER = "cd" * 32


@pytest.fixture
def home(drumline_home):
    drumline_home.mkdir()
    return drumline_home


@pytest.fixture
def make(home):
    """Makes the run folder of a job that ended so many days ago; None: it runs, and this process looks after it."""

    def run(name, days=40.0, status="Completed", *, steps=(), **spec):
        folder = RunFolder.for_job(name)
        folder.create()
        end = time.time() - (days or 0) * DAY
        folder.write(folder.job, json.dumps({"experiment_name": "digits", **spec}, indent=1))
        mlruns = f"file://{home}/mlruns"
        variables = {"MLFLOW_TRACKING_URI": mlruns, "MLFLOW_RUN_ID": name, "MLFLOW_EXPERIMENT_NAME": "digits"}
        plan = {"user_env": variables, "snapshot": spec.get("code", "")}
        folder.write(folder.graph if steps else folder.plan, json.dumps(plan))
        folder.begin(e.JobSubmitted(end - 60, "ada", "local", "pipeline" if steps else "command"))
        for step, job in dict(steps).items():
            folder.append(e.StepStarted(end - 50, step, job))
            folder.append(e.StepEnded(end - 1, step, "Completed"))
        for part in ("code", "inputs", "system_metrics"):
            os.makedirs(os.path.join(folder.path, part))
        Path(folder.outputs, "model.bin").write_bytes(os.urandom(20_000))
        Path(folder.code, "train.py").write_text("pass\n")
        os.symlink("../outputs", os.path.join(folder.code, "outputs"))
        if not steps:
            logged = Path(mlflow_files.run_folder(name, variables) or "")
            logged.mkdir(parents=True)
            (logged / "meta.yaml").write_text("{}")
        if days is None:
            folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
        else:
            folder.append(e.JobEnded(end, status, 0 if status == "Completed" else 1, ""))
        return folder

    return run


def names():
    return sorted(lookup.all_names())


def metrics(home):
    return sorted(path.name for path in home.glob("mlruns/*/*"))


def prune(*words):
    return main(["prune", "--older-than", "30d", *words])


# removal


def test_a_tree_is_removed_and_what_it_links_to_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Which also takes the tests after this one back to where they were.
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("data")
    tree = tmp_path / "tree"
    deep = tree
    for _ in range(300):  # More than a path can have, more than Python recurses at ease.
        deep.mkdir()
        os.chdir(deep)
        deep = Path("a" * 20)
    os.chdir(tmp_path)
    (tree / "link").symlink_to(kept)
    (tree / "locked").mkdir()
    (tree / "locked" / "inside").mkdir()
    (tree / "locked" / "inside" / "link").symlink_to(kept / "file")
    (tree / "locked").chmod(0o500)
    trash.remove_tree(str(tree))
    assert not tree.exists()
    assert (kept / "file").read_text() == "data"
    trash.remove_tree(str(tree))
    (tmp_path / "way").symlink_to(kept)
    with pytest.raises(NotADirectoryError):
        trash.remove_tree(str(tmp_path / "way"))
    assert (kept / "file").exists()


def test_folders_that_a_job_has_locked_are_removed():
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        os.chmod(top, 0o777)
        pid = os.fork()
        if pid == 0:
            if os.geteuid() == 0:
                os.setuid(65534)
            try:
                (Path(top) / "tree" / "locked" / "inside").mkdir(parents=True)
                (Path(top) / "tree" / "locked" / "inside" / "file").touch()
                (Path(top) / "tree" / "locked" / "inside").chmod(0o500)
                (Path(top) / "tree" / "locked").chmod(0)
                trash.remove_tree(f"{top}/tree")
            finally:
                os._exit(Path(top, "tree").exists())
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_job_is_deleted_with_its_steps_and_metrics(make, home, capsys):
    make("p", steps={"one": "p1"})
    make("p1", parent_job_name="p")
    make("other")
    assert main(["job", "delete", "p", "--yes"]) == 0
    assert "deleted job p and its step (" in capsys.readouterr().err
    assert names() == ["other"]
    assert metrics(home) == ["other"]
    assert job_folders.names() == ["other"]
    assert list((home / trash.TRASH).iterdir()) == []


@pytest.mark.parametrize(
    "words", [("job", "delete", "--name", "secretive", "--yes"), ("prune", "--older-than", "30d", "--yes")]
)
@pytest.mark.parametrize("is_read", [False, True])
def test_the_index_forgets_them_at_once(make, home, capsys, words, is_read):
    """Name, experiment and description stayed in the file, and in its log beside another reader."""
    for name in ("secretive", "other"):
        make(
            name,
            days=40 if name == "secretive" else 1,
            experiment_name=f"of {name}",
            description=f"tells {name}" * 99,
        )
    assert main(["job", "list", "--all", "--query", "[].description", "-o", "json"]) == 0
    files = [home / f"index.sqlite{ending}" for ending in ("", "-wal")]

    def found():
        return {
            word
            for word in ("secretive", "other")
            for path in files
            if path.exists() and word.encode() in path.read_bytes()
        }

    assert found() == {"secretive", "other"}
    with contextlib.closing(sqlite3.connect(files[0])) as reader:
        if is_read:
            reader.execute("SELECT count(*) FROM jobs").fetchone()
        assert main(list(words)) == 0
        assert found() == {"other"}


def test_a_job_goes_although_the_index_cannot_forget_it(make, home, monkeypatch):
    make("gone")
    assert job_folders.names() == ["gone"]
    (home / "index.sqlite").write_bytes(b"no database")
    pruning.delete_jobs(["gone"])
    assert (names(), job_folders.names()) == ([], [])


def test_all_that_are_named_or_none(make, capsys):
    make("ended")
    make("runs", days=None)
    assert main(["job", "delete", "ended", "runs", "--yes"]) == 2
    said = capsys.readouterr().err
    assert "job runs is NotStarted, and cannot be deleted before it has ended" in said
    assert "hint: drumline job cancel -n runs" in said
    assert main(["job", "delete", "ended", "endde", "--yes"]) == 3
    assert "did you mean 'ended'?" in capsys.readouterr().err
    assert main(["job", "delete", "ended"]) == 2
    assert "hint: drumline job delete ended --yes" in capsys.readouterr().err
    assert main(["job", "delete"]) == 2
    assert names() == ["ended", "runs"]


def test_what_others_need_is_said(make, home, capsys):
    make("base")
    make("p", steps={"train": "base"})
    make("tune", inputs={"model": {"path": "azureml://jobs/base/outputs/model"}})
    record = home / "assets" / "model" / "digits"
    record.mkdir(parents=True)
    (record / "1.yml").write_text(f"created_at: now\npath: {home}/jobs/base/outputs\n")
    (record / "2.yml").write_text("created_at: now\npath: runs:/other/model\n")
    MLClient().jobs.delete("base")
    said = capsys.readouterr().err
    assert "step 'train' of job p has its outputs in job base" in said
    assert "job tune read the outputs of job base: it could not run again" in said
    assert "model digits:1 is stored in job base" in said
    assert "digits:2" not in said
    assert names() == ["p", "tune"]


def test_a_job_that_a_running_one_reads_stays(make):
    make("base")
    make("next", days=None, inputs={"model": {"path": "azureml://jobs/base/outputs/model"}})
    with pytest.raises(UsageError, match="job next is NotStarted and reads the outputs of job base"):
        pruning.delete_jobs(["base"])
    assert prune("--yes") == 0
    assert names() == ["base", "next"]


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_removal_that_is_killed_is_completed_by_the_next(make, home, monkeypatch, renames):
    make("p", steps={"one": "p1"})
    make("p1", parent_job_name="p")
    make("other")
    real, count = os.rename, []

    def rename(*arguments, **named):
        count.append(1)
        if len(count) > renames:
            raise KeyboardInterrupt
        real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            pruning.delete_jobs(["p"])
    assert "p" not in names()
    assert all(RunFolder.for_job(name).exists() for name in names()), "whole or gone"
    assert (
        pruning.prune(pruning.PruneFilter(1000 * DAY), pruning.choose(pruning.PruneFilter(1000 * DAY))).jobs
        == ()
    )
    assert names() == metrics(home) == ["other"]
    assert list((home / trash.TRASH).iterdir()) == []


def test_another_job_of_the_name_is_no_leftover(make, home):
    make("job")
    journal = home / trash.TRASH / ("0" * 16)
    journal.mkdir(parents=True)
    (journal / "jobs.json").write_text(
        json.dumps({"jobs": [{"name": "job", "created": 1.5}, {"name": "../x"}, 7]})
    )
    make("old")
    pruning.delete_jobs(["old"])
    assert names() == ["job"]
    assert not journal.exists()


# prune


def test_old_jobs_go_and_what_is_needed_stays(make, home, capsys):
    make("old")
    make("young", days=3)
    make("failed", status="Failed", days=50)
    make("archived")
    job_folders.set_archived("archived", archived=True)
    make("runs", days=None)
    make("reused", parent_job_name="gone")
    make("p", days=2, steps={"train": "reused"})
    assert prune("--dry-run", "-o", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["jobs"] == ["failed", "old"]
    assert said["kept"] == [
        {"job": "archived", "why": "it is archived"},
        {"job": "reused", "why": "step 'train' of job p has its outputs in job reused"},
    ]
    assert said["removed"]["jobs"]["count"] == 2
    assert [(one["name"], one["status"], one["jobs"]) for one in said["details"]] == [
        ("failed", "Failed", 1),
        ("old", "Completed", 1),
    ]
    assert sum(one["size_bytes"] for one in said["details"]) == said["removed"]["jobs"]["size_bytes"]
    assert said["size_bytes"] > 40_000
    assert prune("--dry-run", "--status", "failed", "-o", "table") == 0
    page = capsys.readouterr()
    lines = page.out.splitlines()
    assert lines[0].split() == ["JOB", "AGE", "SIZE", "WHY"]
    assert re.fullmatch(r"failed  50d +[\d.]+ KiB  ended as Failed", lines[1])
    assert lines[2] == ""
    assert [line.split()[0] for line in lines[3:]] == ["TYPE", "jobs", "total"]
    assert lines[4].endswith("  ended more than 30d ago")
    assert lines[1].split()[2:4] == lines[5].split()[1:3]
    assert page.err == "next: drumline prune --older-than 30d --status failed -o table\n"
    before = names()
    assert prune() == 2
    assert "--yes" in capsys.readouterr().err
    assert prune("--status", "failed", "--experiment", "other", "--yes") == 0
    assert names() == before
    capsys.readouterr()
    assert prune("--status", "failed,canceled", "--experiment", "digits", "--yes", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["jobs"] == ["failed"]
    assert prune("--include-archived", "--yes") == 0
    assert names() == ["p", "reused", "runs", "young"]
    assert metrics(home) == ["reused", "runs", "young"]


def test_archived_jobs_that_stay_are_listed(make, capsys):
    make("old")
    make("archived")
    job_folders.set_archived("archived", archived=True)
    kept = ["kept: archived: it is archived", "archived jobs go too with --include-archived"]
    assert prune("--dry-run", "-o", "table") == 0
    assert capsys.readouterr().out.splitlines()[-2:] == kept
    assert prune("--yes") == 0
    capsys.readouterr()
    assert prune("--yes", "-o", "table") == 0
    assert capsys.readouterr().out.splitlines()[-3:] == ["there is nothing to remove", *kept]
    assert names() == ["archived"]


def test_the_next_snapshot_leaves_out_what_a_download_made(make, tmp_path):
    make("old")
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("pass\n")

    def take():
        listed = snapshot.list_code(str(work), str(tmp_path / "home"), lambda _: None)
        return [file.relative for file in listed.files], listed.skipped

    download("old", str(work))
    assert (work / "artifacts" / "outputs" / "model.bin").exists()
    marker = "artifacts/.drumline-download"
    told = f"artifacts: downloaded from a job; to take it, remove {marker}"
    assert take() == (["train.py"], (told,))
    download("old", str(work))
    assert take() == (["train.py"], (told,))
    (work / marker).unlink()
    download("old", str(work))
    assert take() == (["artifacts/outputs/model.bin", "train.py"], ())


def test_mistakes_change_nothing(make, capsys):
    make("old")
    for words in (
        ["prune", "--yes"],
        ["prune", "--older-than", "soon", "--yes"],
        ["prune", "--older-than", "1d", "--status", "Running", "--yes"],
        ["prune", "--older-than", "1d", "--keep-outputs", "--only-outputs", "--yes"],
    ):
        assert main(words) == 2
        assert "error: " in capsys.readouterr().err
    assert names() == ["old"]


def test_snapshots_and_environments_that_nothing_needs_go(make, home):
    def content(kind, digest, days=40):
        path = home / kind / digest
        path.mkdir(parents=True)
        (path / "file").write_text("x" * 5000)
        marker = path / ".complete"
        if kind == "environments":
            marker.write_text('{"kind": "uv"}')
        for each in (marker, path):
            if each.exists():
                os.utime(each, (time.time() - days * DAY,) * 2)
        return path

    used, free, fresh = (content("snapshots", one) for one in (DIGEST, OTHER, "ef" * 32))
    os.utime(fresh)
    old_upload, new_upload = content("uploads", "c0de-1.1"), content("uploads", "c0de-2.1", days=0)
    needed, unused = content("environments", "12" * 16), content("environments", OTHER)
    young = content("environments", "ef" * 32, days=3)
    make("young", days=3, code=DIGEST)
    make("runs", days=None, environment="12" * 16)
    at_once = pruning.choose(pruning.PruneFilter(0))
    assert {one.path for one in at_once.snapshots} == {str(used), str(free), str(old_upload)}
    listed = {row["type"]: row for row in disk_usage.describe_usage()}["snapshots"]
    assert (listed["count"], listed["in_use"]) == (5, 2)
    assert listed["reclaimable_bytes"] > 8000
    assert prune("--yes") == 0
    assert [path.exists() for path in (old_upload, new_upload)] == [False, True]
    assert [path.exists() for path in (used, free, fresh)] == [True, False, True]
    assert [path.exists() for path in (needed, unused, young)] == [True, False, True]
    # The last job that needs it takes it along.
    assert main(["prune", "--older-than", "2d", "--experiment", "digits", "--yes"]) == 0
    assert [path.exists() for path in (used, fresh, young)] == [False, True, True]


@pytest.mark.parametrize("option", ["--keep-outputs", "--only-outputs"])
def test_parts_go_and_the_job_says_so(make, tmp_path, capsys, option):
    folder = make("old")
    logged = Path(folder.user_logs, "std_log.txt")
    logged.write_text("hello\n")
    make("kept", days=1)
    assert prune(option, "--yes") == 0
    assert names() == ["kept", "old"]
    keeps_outputs = option == "--keep-outputs"
    assert Path(folder.outputs).exists() is keeps_outputs
    assert logged.exists() is not keeps_outputs
    shown = description.show_job("old")
    gone = {"code", "inputs", "user_logs", "system_logs", "system_metrics"} if keeps_outputs else {"outputs"}
    assert set(shown["pruned"]) == gone
    assert "pruned" not in description.show_job("kept")
    with pytest.raises(DrumlineError, match="user_logs" if keeps_outputs else "outputs") as caught:
        download("old", str(tmp_path / "copy"))
    assert "pruned on" in caught.value.message
    assert (tmp_path / "copy" / "artifacts" / ("outputs" if keeps_outputs else "user_logs")).is_dir()
    # Nothing of it is left to go, and it can be listed, shown and fetched as ever.
    parts = pruning.KEEP_OUTPUTS if keeps_outputs else pruning.ONLY_OUTPUTS
    assert pruning.choose(pruning.PruneFilter(30 * DAY, parts=parts)).jobs == ()
    assert main(["job", "show", "old"]) == 0
    assert main(["job", "list"]) == 0
    assert MLClient().jobs.get("old").status == "Completed"


def test_real_pipelines(home, tmp_path, monkeypatch, capsys):
    """What the files of real jobs say: whose steps they are, and whose outputs they read."""
    monkeypatch.chdir(tmp_path)
    make = {"type": "command", "command": "echo 1 > ${{outputs.o}}/x"}
    read = {"type": "command", "command": "true", "inputs": {"i": "${{parent.jobs.make.outputs.o}}"}}
    make["outputs"] = {"o": "${{parent.outputs.o}}"}
    for name in ("first", "second"):
        pipeline = {"type": "pipeline", "name": name, "jobs": {"make": make, "read": read}}
        pipeline["outputs"] = {"o": {"type": "uri_folder"}}
        (tmp_path / "p.yml").write_text(json.dumps(pipeline))
        assert main(["job", "create", "-f", "p.yml", "--stream"]) == 0
    assert [step["reused"] for step in description.show_job("second")["steps"]] == [True, True]
    capsys.readouterr()
    assert main(["prune", "--older-than", "0d", "--dry-run", "-o", "json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["jobs"]) == ["first", "second"]
    planned = pruning.plan_deletion(["first"])
    assert sorted(planned.jobs) == ["first", "first-make", "first-read"]
    assert {need.user for need in planned.needs} == {"second"}
    assert main(["job", "delete", "first", "--yes"]) == 0
    capsys.readouterr()
    assert main(["job", "download", "second", "--all"]) == 1
    said = capsys.readouterr().err
    assert "output 'o' of job second is gone: the job of the step that wrote it was deleted" in said
    # The next one runs its steps again.
    (tmp_path / "p.yml").write_text((tmp_path / "p.yml").read_text().replace("second", "third"))
    assert main(["job", "create", "-f", "p.yml", "--stream"]) == 0
    assert [step["reused"] for step in description.show_job("third")["steps"]] == [False, False]
    # Every view of a job without its logs says so.
    assert main(["prune", "--older-than", "0d", "--keep-outputs", "--yes"]) == 0
    capsys.readouterr()
    for words in (
        ["logs"],
        ["stream"],
        ["show", "-o", "table"],
        ["show", "--timeline"],
        ["metrics"],
        ["top"],
    ):
        assert main(["job", words[0], "third-read", *words[1:]]) == 0
        said = "".join(capsys.readouterr())
        assert ("were pruned on 20" in said) is (words[0] in ("logs", "stream"))
        assert ("  pruned    code, " in said) is (words[-1] == "table")
        assert "next:" not in said


def test_a_step_whose_outputs_are_gone_is_not_reused(make):
    make("old")
    reuse.remember("old", "k" * 64, ["default"])
    assert reuse.find("k" * 64, ["default"]) == "old"
    assert reuse.find("k" * 64, []) == "old"
    assert prune("--only-outputs", "--yes") == 0
    assert reuse.find("k" * 64, ["default"]) == ""
    assert reuse.find("k" * 64, []) == ""


def test_a_submission_and_a_removal_wait_for_each_other(make, home, monkeypatch):
    make("old")
    monkeypatch.setattr(run_folder, "REMOVAL_LIMIT_S", 0.1)
    wanted = pruning.PruneFilter(0)
    shown = pruning.choose(wanted)
    submission = run_folder.hold_removal_lock(str(home))
    with submission, pytest.raises(DrumlineError, match="another process"):
        pruning.prune(wanted, shown)
    assert names() == ["old"]
    # What became needed since it was shown stays.
    make("next", days=None, inputs={"model": {"path": "azureml://jobs/old/outputs/model"}})
    assert pruning.prune(wanted, shown).jobs == ()
    assert names() == ["next", "old"]


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_a_person_is_asked_first(make, capsys, monkeypatch, answer, code):
    make("old")
    master, slave = pty.openpty()
    os.write(master, f"{answer}\n".encode())
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        assert prune() == code
        said = capsys.readouterr().err
        assert re.match(r"JOB .*\nold  40d ", said)
        end = "nothing was removed\n" if code else ""
        assert said.endswith(f"Remove them? This cannot be undone. [y/N] {end}")
        if code:
            os.write(master, f"{answer}\n".encode())
            assert main(["job", "delete", "old"]) == 1
            assert "Delete job old (" in capsys.readouterr().err
    os.close(master)
    assert names() == ([] if code == 0 else ["old"])


PODMAN = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2" in
    "image inspect") test -e {image} && echo 7000000 ;;
    "rmi localhost/drumline:used") exit 2 ;;
    "rmi "*-base) exit 1 ;;
    rmi*) rm {image} ;;
esac
"""


def test_an_image_goes_with_its_environment_unless_a_container_uses_it(home, tmp_path, monkeypatch):
    log, image = tmp_path / "log", tmp_path / "image"
    image.touch()
    (tmp_path / "podman").write_text(PODMAN.format(log=log, image=image))
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    long_ago = (time.time() - 40 * DAY,) * 2

    def environment(digest, **recipe):
        folder = home / "environments" / digest
        folder.mkdir(parents=True)
        (folder / ".complete").write_text(json.dumps({"kind": "podman", "recipe": recipe}))
        os.utime(folder / ".complete", long_ago)
        return folder

    used = environment("12" * 32, image="localhost/drumline:used", is_made=True)
    free = environment("34" * 32, image="localhost/drumline:free", is_made=True)
    pulled = environment("56" * 32, image="ubuntu:22.04")
    rows = {row["type"]: row for row in disk_usage.describe_usage()}
    assert (rows["images"]["count"], rows["images"]["reclaimable_bytes"]) == (2, 14_000_000)
    assert prune("--dry-run") == 0
    assert image.exists()
    assert prune("--yes") == 0
    assert (used.exists(), free.exists(), pulled.exists(), image.exists()) == (True, False, False, False)
    assert "ubuntu" not in log.read_text()
    # A build that holds the lock of an environment keeps it.
    image.touch()
    again = environment("34" * 32, image="localhost/drumline:free", is_made=True)
    with open(f"{again}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert prune("--yes") == 0
        assert again.exists()
    assert prune("--yes") == 0
    assert not again.exists()


# df


def test_what_takes_up_the_disk(make, home, capsys):
    make("old")
    make("runs", days=None)
    assert main(["df", "-o", "json"]) == 0
    rows = {row["type"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [
        "jobs", "logs and metrics", "snapshots", "environments", "images", "data cache", "assets and indexes",
        "warm interpreters",
    ]  # fmt: skip
    assert (rows["jobs"]["count"], rows["jobs"]["in_use"]) == (2, 1)
    assert 40_000 < rows["jobs"]["size_bytes"] < 200_000
    assert 20_000 < rows["jobs"]["reclaimable_bytes"] < rows["jobs"]["size_bytes"] * 0.6
    assert main(["df", "-o", "table"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["TYPE", "COUNT", "IN", "USE", "SIZE", "RECLAIMABLE"]
    assert table[-1].startswith("total")
    assert max(map(len, table)) <= 80


def test_files_with_several_names_count_once(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (one / "a").write_bytes(os.urandom(8192))
    os.link(one / "a", two / "a")
    folder = os.lstat(one).st_blocks * 512
    both = disk.measure_all(map(str, (one, two)))
    assert (both.size - 2 * folder, both.files) == (8192, 2)
    assert disk.measure_unshared([str(one)]).size == folder
    assert disk.measure_unshared(map(str, (one, two))).size == both.size
    assert disk.measure(str(tmp_path / "nowhere")).size == 0


def test_usage_is_data(make):
    make("old")
    assert {type(row["size_bytes"]) for row in disk_usage.describe_usage()} == {int}


# folders of a home on another file system


@pytest.fixture
def elsewhere(home):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == os.stat(home).st_dev:
            pytest.skip("there is one file system here")
        yield Path(folder)


@pytest.mark.parametrize("linked", ["jobs", "mlruns"])
@pytest.mark.parametrize(
    "words", [("job", "delete", "old", "--yes"), ("prune", "--older-than", "30d", "--yes")]
)
def test_what_a_link_leads_to_on_another_file_system_is_removed(home, make, elsewhere, linked, words, capsys):
    (home / linked).symlink_to(elsewhere)
    make("old")
    make("new", days=1.0)
    assert main(list(words)) == 0, capsys.readouterr().err
    assert (names(), metrics(home)) == (["new"], ["new"])
    assert [path for path in elsewhere.rglob("*") if "old" in path.name or "removed" in path.name] == []
    assert list((home / ".removed").iterdir()) == []
    assert len([path for path in elsewhere.rglob("*") if path.name == "new"]) == 1


def test_metrics_below_a_link_within_mlruns_are_removed(home, make, elsewhere):
    make("old")
    (experiment,) = (home / "mlruns").iterdir()
    shutil.move(experiment, elsewhere)
    experiment.symlink_to(elsewhere / experiment.name)
    assert main(["job", "delete", "old", "--yes"]) == 0
    assert list((elsewhere / experiment.name).iterdir()) == []


def test_what_a_killed_removal_left_there_is_removed_by_the_next(home, make, elsewhere):
    (home / "mlruns").symlink_to(elsewhere)
    make("old")
    left = elsewhere / ".removed.trash" / ("ab" * 8) / "metrics.0.gone"
    left.mkdir(parents=True)
    assert prune("--yes") == 0
    assert not (elsewhere / ".removed.trash").exists()
