"""A Ray cluster out of the nodes of a job, and the program that its processes begin as."""

import ast
import json
import os
import subprocess
import sys

import pytest
from planning import FACTS, environments, plan, site

from drumline.contract.errors import PlanError
from drumline.contract.plan import bind
from drumline.plan.distributions.ray import _program
from drumline.plan.planner import plan_job
from drumline.spec.jobs.command import command

ALL_FACTS = {
    **FACTS,
    "ray_port": "6380",
    "client_port": "10001",
    "dashboard_port": "8270",
    "agent_0_port": "7000",
    "agent_1_port": "7001",
}


def ray(nodes=2, **distribution):
    return plan(nodes=nodes, distribution={"type": "ray", **distribution})


def started(made):
    """What follows the program in what each node's Ray begins as, bound."""
    return [[bind(word, ALL_FACTS) for word in task.argv[3:]] for task in made.ranks if task.argv]


def test_the_command_runs_once_and_every_node_has_a_ray():
    made = ray()
    assert [[task.label for task in node.ranks] for node in made.nodes] == [["0", "ray0"], ["ray1"]]
    assert [task.awaited for task in made.ranks] == [True, False, False]
    assert [task.log for task in made.ranks] == [
        "user_logs/std_log.txt",
        "user_logs/std_log_node_00_ray.txt",
        "user_logs/std_log_node_01_ray.txt",
    ]
    assert made.argv[:2] == ("python3", "-c")
    assert made.argv[3:] == ("command", "/bin/bash", "-c", "python train.py")
    assert made.cores_wanted == 2


def test_ray_finds_its_head_by_a_leased_port():
    made = ray()
    variables = environments(made, ALL_FACTS)
    assert {one["RAY_ADDRESS"] for one in variables.values()} == {"10.0.0.4:6380"}
    assert variables[0]["AZ_BATCH_MASTER_NODE"] == "10.0.0.4:6380"
    assert started(made) == [
        [
            "head",
            "10.0.0.4:6380",
            "[]",
            "--node-ip-address=10.0.0.4",
            "--dashboard-agent-listen-port=7000",
            "--ray-client-server-port=10001",
            "--include-dashboard=false",
        ],
        [
            "worker",
            "10.0.0.4:6380",
            "[]",
            "--node-ip-address=10.0.0.5",
            "--dashboard-agent-listen-port=7001",
        ],
    ]


def test_what_the_distribution_says_is_passed_on():
    made = ray(
        port=6379,
        include_dashboard=True,
        head_node_additional_args="--num-cpus=2 --resources='{\"a b\": 1}'",
        worker_node_additional_args="--labels=${node_0}",
    )
    head, worker = started(made)
    assert head[1] == worker[1] == "10.0.0.4:6379"
    assert head[-2:] == ["--include-dashboard=true", "--dashboard-port=8270"]
    assert json.loads(head[2]) == ["--num-cpus=2", '--resources={"a b": 1}']
    # Nothing in a user's word is late-bound.
    assert json.loads(worker[2]) == ["--labels=${node_0}"]


def test_a_ray_has_all_gpus_of_its_node():
    job = command(command="x", instance_count=2, distribution={"type": "ray"})
    assert [node.gpu_count for node in plan_job(job, site(2, gpus=8)).nodes] == [8, 8]


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        ({"address": "10.0.0.1:6379"}, "address: joining a Ray cluster that is there already"),
        ({"port": 0}, "distribution.port: 0 is not between 1 and 65535"),
        ({"dashboard_port": 70000}, "dashboard_port: 70000 is not between"),
        ({"head_node_additional_args": "--resources='{"}, "head_node_additional_args: no closing quotation"),
    ],
)
def test_what_cannot_be_is_refused(distribution, message):
    with pytest.raises(PlanError, match=message):
        ray(**distribution)


def test_the_program_is_python_3_9_and_has_nothing_late_bound():
    ast.parse(_program(), feature_version=(3, 9))
    assert bind(_program(), {}) == _program()


def begin(folder, *words, **env):
    """The program as an agent starts it, in a job's folder of its own."""
    variables = {"PATH": "/usr/bin:/bin", "DRUMLINE_RUN_FOLDER": str(folder), "AZUREML_NODE_COUNT": "1"}
    (folder / "system_logs").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", _program(), *words],
        env={**variables, "AZUREML_CR_NODE_RANK": "0", **env},
        cwd=folder,
        capture_output=True,
        text=True,
    )


def a_ray(folder):
    """A program of that name that shows how it was called."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "ray"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "$RAY_AUTH_TOKEN_PATH" >&2\n')
    program.chmod(0o700)
    return f"{folder / 'bin'}:/usr/bin:/bin"


def test_without_ray_it_says_what_to_install(tmp_path):
    done = begin(tmp_path, "head", "127.0.0.1:6379", "[]")
    assert done.returncode == 127
    assert done.stderr == (
        "there is no program 'ray' on the PATH; install Ray where the job runs: pip install ray\n"
    )


def test_a_port_that_is_taken_is_named(tmp_path, unused_port_holder):
    port = unused_port_holder.getsockname()[1]
    done = begin(tmp_path, "head", f"127.0.0.1:{port}", "[]", PATH=a_ray(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"port {port} is taken on this node")


@pytest.fixture
def unused_port_holder():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_head_becomes_ray_with_the_users_words_last(tmp_path):
    # A module of the user's in the working folder is not taken for Python's.
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    done = begin(
        tmp_path,
        "head",
        "127.0.0.1:0",
        '["--num-cpus=9"]',
        "--node-ip-address=127.0.0.1",
        PATH=a_ray(tmp_path),
        TMPDIR="/tmp",
    )
    *words, token = done.stderr.splitlines()
    assert words[:6] == [
        "start",
        "--block",
        "--head",
        "--port=0",
        "--disable-usage-stats",
        "--node-ip-address=127.0.0.1",
    ]
    assert words[6] == f"--num-cpus={len(os.sched_getaffinity(0))}"
    assert words[7].startswith("--object-store-memory=")
    assert words[8:] == ["--temp-dir=/tmp", "--num-cpus=9"]
    assert token == str(tmp_path / "ray_token")
    assert (tmp_path / "ray_token").stat().st_mode & 0o777 == 0o600
    assert len((tmp_path / "ray_token").read_text()) == 64


def test_the_users_own_way_to_authenticate_is_kept(tmp_path):
    done = begin(
        tmp_path, "head", "127.0.0.1:0", "[]", PATH=a_ray(tmp_path), TMPDIR="/tmp", RAY_AUTH_MODE="disabled"
    )
    assert done.stderr.endswith("--temp-dir=/tmp\n\n")


def test_a_folder_whose_name_leaves_no_room_for_sockets_is_refused(tmp_path):
    long = tmp_path / ("x" * 44)
    long.mkdir()
    done = begin(tmp_path, "head", "127.0.0.1:0", "[]", PATH=a_ray(tmp_path), TMPDIR=str(long))
    assert "too long for the sockets" in done.stderr
