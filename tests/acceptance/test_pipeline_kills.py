"""A driver that is killed, wherever it is at that moment: every step runs once, and none is lost."""

import contextlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys

import pytest
from cli_jobs import job_names
from pipelines import (
    counts,
    driver_of,
    guard_of,
    is_over,
    runs,
    started,
    step,
    steps_of,
    wait_for_end,
    write_pipeline,
)
from waiting import wait_until

from drumline import load_job
from drumline.contract.folder import RunFolder
from drumline.control.driver import process
from drumline.control.jobs import recovery
from drumline.control.submission.submit import submit


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """The run folder of a pipeline that is submitted, and has no driver yet: a, then b; and one with a step d."""
    steps = {
        "a": step(counts(tmp_path / "a", "echo 1 > ${{outputs.o}}/x")),
        "b": step(counts(tmp_path / "b", "cat ${{inputs.a}}/x"), "a", outputs={"o": "${{parent.outputs.r}}"}),
        "c": {"type": "pipeline", "jobs": {"d": step(counts(tmp_path / "d"))}},
    }
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "start_driver", lambda *_: None)
        submit(load_job(write_pipeline(tmp_path, steps, outputs={"r": None})))
    return RunFolder.for_job("p")


def drive(folder, place, after, call):
    """A driver that is killed before or after that call of the function at ``place``, as a process of its own."""
    owner, _, name = place.rpartition(".")
    try:
        holder = importlib.import_module(owner)
    except ModuleNotFoundError:
        module, _, kind = owner.rpartition(".")
        holder = getattr(importlib.import_module(module), kind)
    original = getattr(holder, name)
    count = 0

    def patched(*arguments, **named):
        nonlocal count
        count += 1
        if count == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = original(*arguments, **named)
        if count == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    child = os.fork()
    if not child:
        setattr(holder, name, patched)
        process._be_driver(folder)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("place", "after", "call"),
    [
        ("drumline.control.driver.children.ChildJobs.note", False, 1),  # a is about to be started
        ("drumline.control.driver.children.ChildJobs.note", True, 1),  # it was said so, and nothing is done
        ("drumline.control.submission.run_folder.create_folder", True, 1),  # an empty folder
        ("drumline.contract.folder.RunFolder.write", True, 3),  # with a job's file
        ("drumline.contract.folder.RunFolder.begin", False, 1),  # all but the first event
        ("drumline.contract.folder.RunFolder.begin", True, 1),  # a job that nobody supervises
        ("drumline.control.driver.children.fork_supervisor", True, 1),  # its supervisor is on its way
        ("drumline.contract.folder.RunFolder.begin", True, 2),  # the inner pipeline has no driver
        ("drumline.control.jobs.recovery.start_driver", True, 1),  # its driver is on its way
        ("drumline.control.driver.reuse.remember", True, 1),  # a has ended, and nobody has noted it
        ("drumline.control.driver.pipeline.link_output", True, 1),  # the pipeline's output is there
        ("drumline.control.assets.references.register_outputs", True, 1),  # all have ended, but the whole
    ],
)
def test_killed_at(pipeline, tmp_path, drumline_home, place, after, call):
    drive(pipeline, place, after, call)
    shown = wait_for_end()
    assert shown["status"] == "Completed", shown["reason"]
    assert [runs(tmp_path / name) for name in "abd"] == [1, 1, 1]
    assert set(steps_of("p").values()) == {"Completed"}
    assert sorted(job_names(drumline_home)) == ["p", "p-a", "p-b", "p-c", "p-c-d"]
    assert os.path.isdir(os.path.join(pipeline.named_outputs, "r"))


def test_killed_between_the_end_and_its_notice(pipeline, tmp_path):
    told, killed = tmp_path / "told", tmp_path / "killed"
    receiver = {"name": "command", "kind": "command", "command": f"echo $DRUMLINE_NOTICE_EVENT >> '{told}'"}
    graph = pipeline.read_json(pipeline.graph)
    pipeline.write(pipeline.graph, json.dumps({**graph, "notify": [{**receiver, "on": ["end"]}]}))
    notify = process._notify

    def notify_second(*arguments):
        try:
            killed.mkdir()
        except FileExistsError:
            notify(*arguments)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    guard = os.fork()
    if not guard:
        try:
            process._notify = notify_second
            os._exit(process.guard(pipeline, process.take_lock(pipeline)))
        finally:
            os._exit(1)
    assert wait_for_end()["status"] == "Completed"
    assert os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1]) == 0
    wait_until(lambda: told.exists() and told.read_text(), 20.0, "the notice")
    assert (told.read_text(), killed.is_dir()) == ("end\n", True)


def test_two_supervisors_of_one_job_are_one(tmp_path, drumline_home):
    """As where a driver was killed while the first was on its way."""
    from drumline import command
    from drumline.engines.local.engine import ENGINE

    submitted = submit(command(name="j", command=counts(tmp_path / "j")))
    for _ in range(3):
        ENGINE.submit(submitted.folder, None)
    assert wait_for_end("j")["status"] == "Completed"
    assert runs(tmp_path / "j") == 1


def test_killed_over_and_over(tmp_path):
    """Drivers, and now and then their guard too, at moments that a seed decides."""
    dice = random.Random(7)
    names = [f"s{number}" for number in range(4)]
    steps = {
        name: step(counts(tmp_path / name, "sleep 0.1"), *names[max(0, number - 1) : number])
        for number, name in enumerate(names)
    }
    submit(load_job(write_pipeline(tmp_path, steps)))
    kills = 0
    # On a slow machine a driver may never get far enough between two kills: after some it is left alone.
    while kills < 24 and not is_over("p"):
        driver = driver_of("p")
        guard = 0
        if dice.random() < 0.3:
            with contextlib.suppress(OSError, LookupError):
                guard = guard_of(driver)
        moment = dice.uniform(0.0, 0.15)
        try:
            wait_until(lambda: is_over("p"), moment / 4)
        except TimeoutError:
            for pid in (guard, driver):
                if pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                    kills += 1
            wait_for_another(driver)
    assert wait_for_end()["reason"] == "4 steps completed"
    assert kills > 3
    assert [runs(tmp_path / name) for name in names] == [1] * 4
    assert len(started("p")) >= 4


def wait_for_another(driver):
    """Whoever looks starts one where the guard is gone."""
    from drumline.control.jobs import recovery

    def is_there():
        recovery.recover(RunFolder.for_job("p"))
        return is_over("p") or driver_of("p") != driver

    wait_until(is_there, 20.0)


NO_LOCKS = """
import errno, fcntl, os

def flock(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

if os.environ.get("NO_LOCKS"):
    fcntl.flock = flock
"""
SWEEP = """\
type: sweep
trial: {command: "echo ${{search_space.x}}", environment: {image: local}}
search_space: {x: {type: choice, values: [1, 2]}}
objective: {goal: minimize, primary_metric: loss}
sampling_algorithm: grid
limits: {max_total_trials: 2}
"""


@pytest.fixture
def no_locks(tmp_path, monkeypatch):
    """As on NFS without its lock daemon, for our programs, the driver among them."""
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(NO_LOCKS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "patch"))
    monkeypatch.setenv("NO_LOCKS", "1")


@pytest.mark.parametrize("kind", ["pipeline", "sweep", "command"])
def test_a_home_without_locks_is_one_sentence_at_once(tmp_path, drumline_home, no_locks, kind):
    if kind == "pipeline":
        file = write_pipeline(tmp_path, {"a": step("true")})
    else:
        file = tmp_path / "job.yml"
        file.write_text(SWEEP if kind == "sweep" else "command: 'true'\nenvironment: {image: local}\n")
    words = [sys.executable, "-m", "drumline", "job", "create", "--stream", "-f", str(file), "--name", "p"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "cannot be locked: No locks available; set DRUMLINE_HOME to a folder" in done.stderr + done.stdout
    if kind != "command":
        # It is refused, so the name is free.
        assert not (drumline_home / "jobs" / "p").exists()


def test_who_streams_a_pipeline_hears_why_its_driver_does_not_start(pipeline, no_locks):
    words = [sys.executable, "-m", "drumline", "job", "stream", "-n", "p"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as stream:
        try:
            said = next(line for line in stream.stdout if line.startswith("job p waits: "))
        finally:
            stream.kill()
    assert "driver.lock cannot be locked: No locks available" in said
