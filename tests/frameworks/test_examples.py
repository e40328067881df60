"""The examples, as a person runs them, and what happens when one of their ranks dies."""

import os
import re
import runpy
import signal
import time
import types
from pathlib import Path
from typing import Any

import pytest
from cli_jobs import status_of
from frameworks import followed, starts
from frameworks.conftest import CHOSEN
from frameworks.table import BASE, EXAMPLES, ROOT, TABLE, Example, environments
from waiting import wait_until

import drumline
from drumline import MLClient, load_job
from drumline.control.facts import description
from drumline.spec.jobs.job import to_dict

pytestmark = pytest.mark.timeout(300)

SOON_S = 30.0 + 20.0
"""
Between the death of a rank and the end of its job, on a machine that is busy: the grace period, which a framework that
defers SIGTERM may take whole, and a while.
"""

OF_THEIR_KIND = {"digits-ddp", "mpi4py"}
"""
Whose ranks wait for each other as those of the others of the environment BASE do: one of these is killed always, one of
each example where other environments are chosen too.
"""

each = pytest.mark.parametrize(
    "example",
    # The one of checkpointing is run whole, and interrupted, by test_checkpointing.
    [row for row in TABLE if CHOSEN or row.name != "checkpointing"],
    ids=lambda row: row.id,
    indirect=True,
)
with_submit_file = [row for row in TABLE if row.has_submit_file]
run_in_python = pytest.mark.parametrize(
    "example",
    [row for row in with_submit_file if row.environment != BASE or (CHOSEN and row.name == "digits-ddp")],
    ids=lambda row: row.id,
    indirect=True,
)


def reached(example: Example, text: str) -> str:
    """The line that says how far the training came; it came far enough."""
    found = re.search(example.figure, text)
    assert found, text[-4000:]
    assert float(found[1]) >= example.least
    return found[0]


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


@each
def test_the_job_file_reaches_its_figure(example, examples, run_in, record, drumline_home, monkeypatch):
    folder = examples / example.name
    before = files_in(folder)
    mode = starts.mode_of(example)
    monkeypatch.setenv("DRUMLINE_WARM", mode)
    done = run_in(
        example.environment, folder, "-m", "drumline", "job", "create", "-f", example.job_file, "--stream"
    )
    assert done.rc == 0, done.out[-4000:] + done.err
    figure = reached(example, done.out)
    assert files_in(folder) == before
    run_folder = drumline_home / "jobs" / re.search(r"RunId: (\S+)", done.out)[1]
    if example.check:
        example.check(run_folder / "outputs")
    starts.check(example, mode, run_folder)
    if example.followed:
        followed.check(run_folder, example.followed)
    record(example, figure)


@pytest.mark.parametrize("row", with_submit_file, ids=lambda row: row.id)
def test_the_python_file_submits_the_job_of_the_job_file(row, monkeypatch):
    submitted = []

    class Client(MLClient):
        def __init__(self, **names):
            self.jobs = types.SimpleNamespace(
                stream=lambda name: None, get=self.get, download=lambda *_, **__: None
            )

        def create_or_update(self, job):
            submitted.append(job)
            job.name = job.name or "submitted"
            return job

        def get(self, name):
            return types.SimpleNamespace(status="Completed")

    monkeypatch.setattr(drumline, "MLClient", Client)
    folder = EXAMPLES / row.name
    runpy.run_path(str(folder / "submit.py"))
    (in_python,) = (to_dict(job, absolute=True) for job in submitted)
    in_file = to_dict(load_job(folder / "job.yml"), absolute=True)
    for of_file_alone in ("$schema", "description", "drumline", "name"):
        in_file.pop(of_file_alone, None)
        in_python.pop(of_file_alone, None)
    assert comparable(in_python, folder) == comparable(in_file, folder)


def comparable(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Paths as they are resolved, words without the blanks between them."""
    inputs = {
        name: {**value, "path": os.path.realpath(folder / value["path"])}
        if isinstance(value, dict)
        else value
        for name, value in job["inputs"].items()
    }
    code = os.path.realpath(folder / job["code"])
    compute = job["compute"].removeprefix("azureml:")
    return {**job, "inputs": inputs, "code": code, "command": job["command"].split(), "compute": compute}


@run_in_python
def test_the_same_in_python(example, examples, run_in, monkeypatch):
    # Its job file is run with ranks that are forked.
    monkeypatch.setenv("DRUMLINE_WARM", os.environ.get("TEST_WARM") or "off")
    done = run_in(example.environment, examples / example.name, "submit.py")
    assert done.rc == 0, done.out[-4000:] + done.err
    reached(example, done.out)
    assert ": Completed" in done.out


@pytest.mark.parametrize(
    "example",
    [row for row in TABLE if CHOSEN or row.environment != BASE or row.name in OF_THEIR_KIND],
    ids=lambda row: row.id,
    indirect=True,
)
def test_a_rank_that_is_killed_ends_the_job(example, examples, run_in, drumline_home):
    """The ranks that are left wait in a collective that may never end by itself."""
    folder = examples / example.name
    settings = [word for setting in example.long for word in ("--set", setting)]
    words = ("job", "create", "-f", example.job_file, *settings, "--query", "name", "-o", "tsv")
    created = run_in(example.environment, folder, "-m", "drumline", *words)
    name = created.out.strip()
    assert name, created.err
    logs = drumline_home / "jobs" / name / "user_logs"

    def trains() -> bool:
        """True as soon as some rank says so, or when the job has ended."""
        said = any(re.search(example.training, log.read_text(errors="replace")) for log in logs.glob("*.txt"))
        return said or status_of(name) in {"Completed", "Failed"}

    wait_until(trains, 200, "the training")
    shown = description.show_job(name)
    assert shown["status"] == "Running", shown["reason"]
    victim = next(rank for rank in shown["processes"]["ranks"] if rank["rank"] == example.victim)
    os.kill(victim["pid"], signal.SIGKILL)
    begin = time.monotonic()
    done = run_in(example.environment, folder, "-m", "drumline", "job", "stream", "-n", name)
    assert time.monotonic() - begin < SOON_S
    shown = description.show_job(name)
    assert (done.rc, shown["status"]) == (1, "Failed")
    assert re.search(example.reason, shown["reason"]), shown["reason"]


def test_every_example_is_in_the_table():
    # Two are no framework's; tests/acceptance/test_environments.py and test_rehearsal.py run them. One takes minutes,
    # and measures before it trains: test_deepspeed_autotuning.py.
    examples = {path.parent.name for path in EXAMPLES.glob("*/job.yml")}
    assert {row.name for row in TABLE} == examples - {"deepspeed-autotuning", "environment", "rehearsal"}


def test_every_example_is_in_the_document():
    """Whoever adds a row runs ``scripts/test --frameworks all``, which writes it."""
    if set(environments()) <= set(CHOSEN):
        pytest.skip("this run writes it")
    page = (ROOT / "docs" / "howto" / "frameworks.md").read_text()
    assert {row.name for row in TABLE} == set(re.findall(r"^\| \[([a-z0-9-]+)\]", page, re.MULTILINE))
