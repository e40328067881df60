"""Reading does not write: every verb and method that reads works on a home that cannot be written to."""

import importlib
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_jobs import WAIT_FOR_SIGNAL, one_rank, wait_for_status, write_job
from pipelines import step, wait_for_end, write_pipeline
from waiting import wait_until

from drumline import LocalCompute, MLClient, load_component, load_job
from drumline.cli.main import COMMANDS, SHORT, find_module
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.assets import asset_verbs
from drumline.control.facts import description
from drumline.control.jobs import job_outcome, lookup, recovery
from drumline.control.machine import computes
from drumline.control.settings import workspaces
from drumline.control.submission.submit import submit
from drumline.entities import Data, Environment, Model, Workspace

PYTHON = shlex.quote(sys.executable)
READER = Path(__file__).parents[1] / "read_only.py"
LOGS_LOSS = (
    "from drumline.v1 import Run; Run.get_context().log('loss', 0.5); open('outputs/f', 'w').write('x')"
)

LOST = "[status, reason, exit_code, failed_rank]"
"""Of a job whose supervisor was killed; when it ended is known better where its end can be written down."""

LISTED = "[].[name, status, reason]"
"""Without ages."""

READS: dict[str, dict[str, list[list[str]]]] = {
    "job": {
        "show": [["-n", "done"], ["-n", "p"], ["-n", "done", "--timeline"], ["-n", "lost", "--query", LOST]],
        "stream": [["-n", "done"], ["-n", "p"]],
        "logs": [["-n", "done"], ["-n", "done", "--tail", "1", "--timestamps"], ["-n", "p"]],
        "wait": [["-n", "done"], ["-n", "p"]],
        "open": [["-n", "done"]],
        "list": [
            ["--query", LISTED],
            ["--include-archived", "--query", LISTED],
            ["--status", "failed", "--query", LISTED],
            ["--archived-only"],
            ["-p", "p"],
        ],
        "download": [["-n", "done", "-p", "COPY"], ["-n", "done", "-p", "COPY", "--all"]],
        "validate": [["-f", "JOB"]],
        "metrics": [["-n", "done"], ["-n", "p"]],
        "diff": [["done", "p"], ["done", "done", "-o", "table"]],
        "top": [["-n", "done", "--once"]],
        "show-services": [["-n", "done"]],
    },
    "compute": {"show": [["-n", "here"]], "list": [[]], "list-nodes": [["-n", "here"]]},
    "data": {"show": [["-n", "set"]], "list": [[], ["-n", "set"]]},
    "model": {
        "show": [["-n", "net"]],
        "list": [[]],
        "download": [["-n", "net", "--version", "1", "-p", "COPY"]],
    },
    "environment": {"show": [["-n", "own"]], "list": [[]]},
    "component": {
        "show": [["-n", "part"]],
        "list": [[]],
        "download": [["-n", "part", "-p", "COPY"]],
        "validate": [["-f", "COMPONENT"]],
    },
    "datastore": {"show": [["-n", "workspaceblobstore"]], "list": [[]]},
    "cache": {"show": [[]], "list": [[]], "limit": [[]]},
    "warm": {"list": [[]]},
    "workspace": {"show": [["-n", "vision"]], "list": [[]]},
}
"""By command and verb, the words that follow."""

WRITES = {
    "job": {
        "create",
        "cancel",
        "preempt",
        "delete",
        "archive",
        "restore",
        "update",
        "stacks",
        "exec",
        "rerun",
        "bundle",
    },
    "compute": {"attach", "create", "update", "detach", "delete"},
    "data": {"create", "update", "archive", "restore", "mount", "import", "share"},
    "model": {"create", "update", "archive", "restore", "package", "share"},
    "environment": {"create", "update", "archive", "restore", "build", "share"},
    "component": {"create", "update", "archive", "restore", "prepare-for-sign"},
    "datastore": {"create", "update", "delete", "mount"},
    "azure": {"env", "notebook", "python", "run", "serve", "shell"},
    "cache": {"prune", "clear"},
    "warm": {"stop"},
    "workspace": {"create", "update", "delete"},
}
"""Those that change something, ask a running job, or are not here."""

PLAIN = [
    ["plan", "-f", "JOB"],
    ["lint", "-f", "JOB"],
    ["configure", "--list-defaults"],
    ["ps"],
    ["df", "--query", "[].type"],
]

EXPRESSIONS = [
    "[job.name for job in client.jobs.list()]",
    "[job.name for job in client.jobs.list(parent_job_name='p')]",
    "client.jobs.get('done').status",
    "client.jobs.get('lost').status",
    "client.jobs.stream('done')",
    "client.jobs.show_services('done')",
    "client.jobs.download('done', download_path='COPY', all=True)",
    "client.jobs.validate(client.jobs.get('done')).passed",
    "[(one.name, one.latest_version) for one in client.data.list()]",
    "client.data.get('set', label='latest').path",
    "[one.name for one in client.models.list()]",
    "client.models.get('net', '1').path",
    "client.models.download('net', '1', 'COPY')",
    "[one.name for one in client.environments.list()]",
    "client.environments.get('own', label='latest').python",
    "[one.name for one in client.components.list()]",
    "client.components.get('part', label='latest').command",
    "client.components.download('part', version='1', download_path='COPY')",
    "[one.name for one in client.datastores.list()]",
    "client.datastores.get_default().name",
    "client.datastores.get('workspaceblobstore').name",
    "[one.name for one in client.compute.list()]",
    "client.compute.get('here').name",
    "len(list(client.compute.list_nodes('here')))",
    "[one.name for one in client.workspaces.list()]",
    "client.workspaces.get('vision').name",
    "sorted(workspace.experiments)",
    "sorted(workspace.datasets), sorted(workspace.models), sorted(workspace.environments)",
    "sorted(workspace.datastores), sorted(workspace.compute_targets)",
    "workspace.get_default_datastore().name",
    "workspace.get_details()['name']",
    "[run.id for run in v1.Experiment(workspace, 'Default').get_runs()]",
    "workspace.get_run('done').get_status()",
    "workspace.get_run('done').get_details()",
    "sorted(workspace.get_run('done').get_details_with_logs()['logFiles'])",
    "workspace.get_run('done').get_metrics()",
    "workspace.get_run('done').get_tags(), workspace.get_run('done').get_properties()",
    "workspace.get_run('done').get_file_names()",
    "workspace.get_run('done').download_file('outputs/f', 'COPY')",
    "workspace.get_run('done').get_all_logs('COPY')",
    "workspace.get_run('done').wait_for_completion()['status']",
    "[run.id for run in workspace.get_run('p').get_children()]",
    "v1.Dataset.get_by_name(workspace, 'set').to_path()",
    "[one.name for one in v1.Model.list(workspace)]",
    "v1.Model(workspace, 'net').download('COPY', exist_ok=True)",
    "v1.Datastore.get_default(workspace).name",
]


def commands():
    return [
        [command, verb, *words]
        for command, verbs in READS.items()
        for verb, all_words in verbs.items()
        for words in all_words
    ] + PLAIN


@pytest.fixture
def full(drumline_home, tmp_path, monkeypatch):
    """A home with a job, a pipeline, an archived job, one whose supervisor was killed, and one of each asset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_WARM", "off")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("1")
    job = write_job(tmp_path, f'{PYTHON} -c "{LOGS_LOSS}"', outputs={"o": None}, **one_rank())
    for name in ("done", "hidden"):
        submit(load_job(job, params_override=[{"name": name}]))
        wait_for_status(name, "Completed")
    MLClient().jobs.archive("hidden")
    submit(load_job(write_pipeline(tmp_path, {"a": step("true"), "b": step("true", "a")})))
    assert wait_for_end()["status"] == "Completed"
    asset_verbs.create(Data(name="set", path=str(tmp_path / "data"), type="uri_folder"))
    asset_verbs.create(Model(name="net", path=str(tmp_path / "data"), type="custom_model"))
    asset_verbs.create(Environment(name="own", python=sys.executable))
    part = tmp_path / "part.yml"
    part.write_text(
        json.dumps({"type": "command", "name": "part", "version": "1", "command": "true", "code": "data"})
    )
    asset_verbs.create(load_component(part))
    computes.attach(LocalCompute(name="here"))
    workspaces.create(Workspace(name="vision"))
    kill_supervisor_of("lost", tmp_path)
    return drumline_home


def kill_supervisor_of(name, folder):
    """A job that nobody has written off: its supervisor and its agent are gone."""
    submit(load_job(write_job(folder, f'{PYTHON} -c "{WAIT_FOR_SIGNAL}"', name=name, **one_rank())))
    running = wait_for_status(name, "Running")
    who = running["processes"]
    for pid in (who["supervisor"], *who["agents"]):
        os.kill(pid, signal.SIGKILL)
    run = RunFolder.for_job(name)
    wait_until(lambda: job_outcome.read_outcome(run).is_final, 20.0, "its end to be seen")
    for rank in who["ranks"]:
        wait_until(lambda pid=rank["pid"]: not os.path.exists(f"/proc/{pid}"), 20.0, "its ranks to end")
    write_job(folder, "true", **one_rank())


def ask(folder, seal=None, expressions=True):
    """What all commands and expressions answer, each in a copy of what it may write to."""
    copy = folder / ("sealed" if seal else "open")
    for target in ("cli", "sdk"):
        (copy / target).mkdir(parents=True)
    words = {"COPY": str(copy / "cli"), "JOB": str(folder / "job.yml"), "COMPONENT": str(folder / "part.yml")}
    asked = {
        "seal": str(seal) if seal else "",
        "commands": [[words.get(word, word) for word in line] for line in commands()],
        "expressions": [text.replace("'COPY'", repr(str(copy / "sdk"))) for text in EXPRESSIONS]
        if expressions
        else [],
    }
    argv = [sys.executable, str(READER)]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", *argv] if seal else argv,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.replace(str(copy), "COPY")))


@pytest.fixture
def can_seal(tmp_path):
    """Skip where no namespace can be had in which a folder is mounted read-only."""
    probe = 'mount --bind . . && mount -o remount,bind,ro . && cd "$PWD" && ! touch probe 2>/dev/null'
    try:
        done = subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", probe],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare on this machine")
    if done.returncode:
        pytest.skip(f"no folder can be mounted read-only here: {done.stderr.strip()}")


def test_every_verb_either_reads_or_writes():
    for command in COMMANDS:
        verbs = getattr(importlib.import_module(find_module(command)), "VERBS", None)
        if verbs is not None and command not in SHORT:
            reads = set(READS.get(command, ()))
            assert set(verbs) == reads | WRITES[command], command
            assert not reads & WRITES[command], command


def test_all_that_reads_answers_the_same_where_nothing_can_be_written(full, tmp_path, can_seal):
    sealed, free = ask(tmp_path, full), ask(tmp_path)
    assert {
        asked: answer for asked, answer in sealed.items() if asked in free and answer != free[asked]
    } == {}
    assert set(sealed) == set(free)
    assert {asked: answer for asked, answer in sealed.items() if isinstance(answer, list) and answer[0]} == {}
    assert {asked: answer for asked, answer in sealed.items() if "Error" in str(answer)} == {}
    ended = description.show_job("lost")
    assert (ended["status"], ended["exit_code"]) == ("Failed", 1)


def test_jobs_are_listed_where_the_index_is_missing_and_cannot_be_made(full, tmp_path, can_seal):
    for file in full.glob("index.sqlite*"):
        file.unlink()
    sealed = ask(tmp_path, full, expressions=False)
    listed = [answer for asked, answer in sealed.items() if asked.startswith("job list")]
    assert not list(full.glob("index.sqlite*"))
    assert listed == [
        answer for asked, answer in ask(tmp_path, expressions=False).items() if asked.startswith("job list")
    ]


def test_reading_an_outcome_leaves_the_end_to_others(full):
    run = lookup.folder_of("lost")
    before = Path(run.events).read_bytes()
    seen = job_outcome.read_outcome(run)
    assert (seen.status, seen.reason) == ("Failed", job_outcome.KILLED)
    assert Path(run.events).read_bytes() == before
    assert not fold(run.read_events()).is_final
    assert recovery.recover(run).status == "Failed"
    assert fold(run.read_events()).is_final
