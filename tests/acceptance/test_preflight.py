"""The checks before a job: nodes of this machine that say that they are machines of their own."""

import json
import shlex
import subprocess
import sys

import pytest
from isolated_nodes import skip_without, write_compute

PROGRAM = """
import sys
from drumline.engines.local import agents
from drumline.checks import links, registry
from drumline.supervisor.attempt import preflight_phase

agents.LocalFacts.are_separate = True
# A busy machine needs longer, and what is known in time is no part of these tests.
preflight_phase.LIMIT_S = 120.0
preflight_phase._FACTS_S = 60.0
preflight_phase._CONNECT_S = 30.0
preflight_phase._LINKS_S = 60.0
links._PARTNER_S = links._STALL_S = 30.0
whole = registry.GATHERERS["cpu"]


def gather_cpu(settings):
    # Agents are forks of this process, and so are their checkers.
    facts = whole(settings)
    is_odd = settings["address"] == "127.0.0.2" and FAULT
    return facts._replace(product="0x1p+1" if is_odd else "0x1p+0")


registry.GATHERERS["cpu"] = gather_cpu
from drumline.cli.main import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")

    def run(name, *, fault=False, settings="{}"):
        (tmp_path / "job.yml").write_text(
            f"name: {name}\ncode: .\ncommand: >-\n  {shlex.quote(sys.executable)} train.py\ndrumline: {settings}\n"
            "resources: {instance_count: 2}\ndistribution: {type: pytorch}\n"
        )
        program = PROGRAM.replace("FAULT", str(fault))
        words = [sys.executable, "-c", program]
        done = subprocess.run(
            [*words, "job", "create", "-f", "job.yml", "--stream"],
            capture_output=True,
            text=True,
            timeout=200,
        )
        shown = subprocess.run(
            [*words, "job", "show", name, "-o", "json"], capture_output=True, text=True, timeout=200
        )
        return done, json.loads(shown.stdout)

    return run


def test_nodes_are_checked_before_the_ranks_start(run):
    done, job = run("checked")
    assert (done.returncode, job["status"]) == (0, "Completed"), done.stderr
    assert job["preflight"]["seconds"] > 0
    assert [one for one in job["preflight"]["findings"] if one["status"] == "error"] == []


def test_an_error_stops_the_job_before_a_rank_starts(run):
    done, job = run("unfit", fault=True)
    assert (done.returncode, job["status"], job["failed_node"]) == (1, "Failed", 1)
    assert job["reason"].startswith(
        "not started: node 1: its CPU computes 0x1p+1 where node 0 compute 0x1p+0;"
    )
    assert job["ranks"] == []
    errors = [one["id"] for one in job["preflight"]["findings"] if one["status"] == "error"]
    assert errors == ["arithmetic"]


def test_off_leaves_the_checks_out(run):
    done, job = run("unchecked", fault=True, settings="{preflight: off}")
    assert (done.returncode, job["status"]) == (0, "Completed"), done.stderr
    assert "preflight" not in job


def test_doctor_checks_the_nodes_of_a_compute_and_starts_no_rank(cli, tmp_path):
    skip_without(shm_size="64m")
    made = cli("compute", "create", "-f", write_compute(tmp_path, nodes=2, shm_size="64m"))
    assert made.rc == 0, made.err
    done = cli("doctor", "--compute", "lab", "-o", "json")
    assert done.rc == 0, done.out
    checks = json.loads(done.out)["checks"]
    small = [one for one in checks if one["id"] == "shared-memory"]
    assert [(one["node"], one["status"]) for one in small] == [("lab-0", "warning"), ("lab-1", "warning")]
    assert all("/dev/shm has 64 MiB" in one["finding"] and one["remedy"] for one in small)
    assert {one["id"] for one in checks} >= {"python", "ports", "links", "shared-paths"}
    job = done.err.split()[1]
    shown = json.loads(cli("job", "show", job, "-o", "json").out)
    assert (shown["status"], shown["ranks"]) == ("Completed", [])
    assert job not in cli("job", "list", "-o", "tsv").out
