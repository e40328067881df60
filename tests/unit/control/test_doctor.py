"""``drumline doctor`` on this machine: what it prints, its exit code, and what ``--fix`` mends."""

import json
import os
import socket
import sqlite3
import subprocess
import sys

import pytest

from drumline import MLClient
from drumline.checks import checker
from drumline.checks.findings import Finding
from drumline.cli.main import main
from drumline.contract import process_identity
from drumline.contract.folder import base_home, home
from drumline.control.machine import computes
from drumline.control.upkeep import machine_doctor
from drumline.engines.base import ClusterNode
from drumline.node.warm import pool_folder
from drumline.spec.registered.compute import SlurmCompute
from drumline.store.index import Index


@pytest.fixture
def quick(monkeypatch):
    """
    The facts that these tests are about; the others take time, and have tests of their own. These have the time of a
    busy machine, where a process may wait for a core for long.
    """
    whole = checker.gather

    def gather(names, settings, deadline_s):
        facts = whole([name for name in names if name in ("leftovers", "disk")], settings, 20 * deadline_s)
        return {name: facts.get(name, {}) for name in names}

    monkeypatch.setattr(checker, "gather", gather)


def list_findings(capsys, *words):
    code = main(["doctor", "-o", "json", *words])
    printed = capsys.readouterr()
    return code, json.loads(printed.out)["checks"], printed.err


def run(capsys, *words):
    """Of a check with several findings, the last."""
    code, findings, said = list_findings(capsys, *words)
    return code, {one["id"]: one for one in findings}, said


def test_every_check_of_one_machine_is_shown(capsys):
    code, checks, _ = run(capsys)
    assert {"python", "ports", "disk", "index", "sockets", "leftovers"} <= checks.keys()
    assert "links" not in checks
    assert code == int(any(one["status"] == "error" for one in checks.values()))
    assert all(one.keys() == {"id", "status", "node", "finding", "remedy"} for one in checks.values())


@pytest.mark.usefixtures("quick")
def test_a_damaged_index_is_found_and_rebuilt(capsys):
    index = Index(home())
    index.names(archived=None, parent=None, limit=None)
    assert run(capsys)[1]["index"]["status"] == "ok"
    path = os.path.join(home(), "index.sqlite")
    with open(path, "r+b") as file:
        file.write(b"no database" * 10)
    for ending in ("-wal", "-shm"):
        if os.path.exists(path + ending):
            os.unlink(path + ending)
    _, checks, _ = run(capsys)
    assert checks["index"]["status"] == "warning"
    assert "drumline doctor --fix" in checks["index"]["remedy"]
    _, checks, said = run(capsys, "--fix")
    assert checks["index"]["status"] == "ok"
    assert "index: rebuilt, with 0 jobs" in said
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
    database.close()


@pytest.mark.usefixtures("quick")
def test_a_socket_of_a_killed_process_is_removed_and_a_live_one_stays(capsys):
    folders = [
        os.path.join(base_home(), "warm", process_identity.name_machine(), name) for name in ("dead", "live")
    ]
    listeners = []
    for folder in folders:
        os.makedirs(folder)
        listener = socket.socket(socket.AF_UNIX)
        with pool_folder.shorten_socket_path(folder) as address:
            listener.bind(address)
        listener.listen()
        listeners.append(listener)
    assert run(capsys)[1]["sockets"]["status"] == "ok"
    listeners[0].close()
    _, checks, _ = run(capsys)
    assert (checks["sockets"]["status"], "dead" in checks["sockets"]["finding"]) == ("warning", True)
    _, checks, said = run(capsys, "--fix")
    assert checks["sockets"]["status"] == "ok"
    assert "removed 1 stale socket" in said
    assert [os.path.exists(os.path.join(folder, pool_folder.SOCKET)) for folder in folders] == [False, True]
    listeners[1].close()


@pytest.fixture
def left(tmp_path, monkeypatch):
    """A process of a job that is gone, where no other test leaves folders of agents."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    program = [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"]
    env = {**os.environ, "DRUMLINE_RUN_FOLDER": os.path.join(base_home(), "jobs", "calm_drum")}
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.usefixtures("quick")
def test_what_jobs_left_is_ended_and_removed(capsys, left, tmp_path):
    """A process of one, and the folder of an agent of another."""
    folder = tmp_path / "scratch" / "drumline-00000000-n1"
    folder.mkdir()
    (folder / "agent").write_text(os.uname().nodename)
    found = [one["finding"] for one in list_findings(capsys)[1] if one["id"] == "leftovers"]
    assert found == [
        f"process {left.pid} of job calm_drum is left, whose supervisor is gone",
        f"1 folder of ended agents are left: {folder}",
    ]
    assert "leftovers: ended 1 process, removed 1 folder" in run(capsys, "--fix")[2]
    assert not folder.exists()
    assert left.wait(60) == -9


@pytest.mark.usefixtures("quick")
def test_what_could_not_be_checked_is_said_and_mended_all_the_same(capsys, left, monkeypatch):
    monkeypatch.setattr(machine_doctor, "_DEADLINE_S", 0.0)
    found = run(capsys)[1]["leftovers"]
    assert (found["status"], found["remedy"]) == ("warning", "run drumline doctor again")
    assert found["finding"].startswith("it was not checked: ")
    assert "leftovers: ended 1 process," in run(capsys, "--fix")[2]
    assert left.wait(60) == -9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "2"], "--nodes is for the nodes of a compute"),
        (["--compute", "lab", "--fix"], "--fix repairs this machine"),
        (["--compute", "lab", "--nodes", "0"], "--nodes must be at least 1"),
        (["--compute", "local", "--nodes", "2"], "the nodes of compute 'local' are all this machine"),
    ],
)
def test_options_that_mean_nothing_are_refused(capsys, words, said):
    assert main(["doctor", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_compute_whose_nodes_share_this_machine_is_this_machine(capsys):
    _, checks, said = run(capsys, "--compute", "local")
    assert {"disk", "index"} <= checks.keys()
    assert said == ""
    found = {one["id"]: one for one in MLClient().compute.doctor()}
    assert found.keys() == checks.keys()
    assert found["index"].keys() == checks["index"].keys()


def test_of_a_cluster_the_free_nodes_are_checked(monkeypatch):
    states = ["idle", "mixed", "idle", "down*"]
    monkeypatch.setattr(computes, "nodes", lambda _: [ClusterNode("n", state, 1, 0, 1) for state in states])
    assert machine_doctor.choose_count(SlurmCompute(name="c")) == 2
    assert machine_doctor.choose_count(SlurmCompute(name="c", max_instances=1)) == 1
    states[:] = ["allocated"]
    assert machine_doctor.choose_count(SlurmCompute(name="c")) == 1


def test_an_error_is_red_and_ends_with_1(capsys, monkeypatch):
    found = [
        Finding("disk", "error", None, "the run folder /x\x1b[31m cannot be written to", "free space there"),
        Finding("cores", "ok", None, "8 cores"),
    ]
    monkeypatch.setattr(machine_doctor, "examine_machine", lambda: found)
    assert main(["doctor", "-o", "table"]) == 1
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.splitlines()[1].strip() == "free space there"
    assert printed.endswith("1 error; 0 warnings\n")
