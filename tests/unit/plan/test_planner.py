"""What a job becomes, and what is refused."""

import json
import os
from pathlib import Path

import pytest
from planning import plan

from drumline.contract.errors import DrumlineError, PlanError
from drumline.contract.installed_mpi import OPEN_MPI, Mpi
from drumline.contract.plan import Plan

GOLDEN = Path(__file__).parent / "golden"
DISTRIBUTIONS = {
    "plain-1": (1, None),
    "plain-2": (2, None),
    "pytorch-2x2": (2, {"type": "PyTorch", "process_count_per_instance": 2}),
    "tensorflow-2+1": (2, {"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1}),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_plans_are_as_they_were(name):
    """Reviewed as text; ``UPDATE_GOLDEN=1 scripts/test tests/unit/plan`` writes them anew."""
    nodes, distribution = DISTRIBUTIONS[name]
    text = plan(nodes=nodes, distribution=distribution).to_json() + "\n"
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert json.loads(text) == json.loads(golden.read_text())


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_plan_survives_the_way_to_disk_and_back(name):
    nodes, distribution = DISTRIBUTIONS[name]
    made = plan(nodes=nodes, distribution=distribution)
    assert Plan.from_json(made.to_json()) == made


def test_a_plan_of_a_newer_format_is_not_guessed_at():
    text = plan(nodes=1).to_json().replace('"format": 2', '"format": 99')
    with pytest.raises(ValueError, match="format 99"):
        Plan.from_json(text)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"nodes": 0}, r"resources.instance_count: 0 is not between 1 and 4096"),
        ({"nodes": -1}, r"instance_count: -1"),
        (
            {"distribution": {"type": "pytorch", "process_count_per_instance": 0}},
            r"process_count_per_instance: 0",
        ),
        (
            {"distribution": {"type": "mpi"}},
            r"mpi needs an MPI, and there is no mpirun or mpiexec on the PATH",
        ),
        ({"timeout": 0}, r"limits.timeout: 0"),
        ({"command": "echo \0"}, r"U\+0000 cannot be in a command"),
        (
            {"nodes": 4096, "distribution": {"type": "pytorch", "process_count_per_instance": 9}},
            r"32768 ranks",
        ),
        ({"command": "   "}, r"command: the job has no command"),
        ({"command": "echo ${{outputs.nope}}"}, r"outputs.nope"),
        ({"command": "echo ${{inputs.nope}}"}, r"inputs.nope"),
        ({"environment_variables": {"A=B": "1"}}, r"'A=B' cannot be a variable's name"),
        ({"environment_variables": {"A": "x\0y"}}, r"cannot hold a zero byte"),
        (
            {"inputs": {"x": {"type": "uri_folder", "path": "https://h/x"}}},
            r"inputs.x: a web server has no folders",
        ),
        ({"inputs": {"x": {"path": "ftp://h/x"}}}, r"inputs.x: .* is no address of data"),
        ({"inputs": {"x": {"path": "abfss://files/x"}}}, r"inputs.x: .* is not complete"),
        ({"inputs": {"x": {"path": "s3://lab/a/../b"}}}, r"cannot have a part"),
        (
            {"outputs": {"x": {"path": "https://h/x"}}},
            r"outputs.x: cannot write to https://h/x",
        ),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(job, message):
    with pytest.raises(DrumlineError, match=message) as caught:
        plan(**job)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["../x", "a b", ".hidden", "-rf", "x" * 256, "", "a\nb", "a.", "\u202ex"])
def test_a_name_that_is_no_folders_is_refused(name):
    from drumline.plan.request import check_name

    with pytest.raises(PlanError, match="cannot be a job's name"):
        check_name(name)


def test_values_are_put_in_as_they_are_and_never_scanned_again():
    made = plan(
        nodes=1, command="echo ${{inputs.a}} ${{inputs.b}}", inputs={"a": "${{inputs.b}}", "b": "x; y"}
    )
    assert made.argv == ("/bin/bash", "-c", "echo ${{inputs.b}} x; y")


def test_data_of_this_machine_is_reached_in_place():
    made = plan(nodes=1, command="ls ${{inputs.d}}", inputs={"d": {"path": "/data/set"}})
    assert made.argv[2] == "ls /data/set"
    assert made.copies == ()


def test_data_in_mode_download_is_copied():
    made = plan(nodes=1, command="ls ${{inputs.d}}", inputs={"d": {"path": "/data/set", "mode": "download"}})
    target = "/home/ann/jobs/calm_drum/inputs/d/set"
    assert made.argv[2] == f"ls {target}"
    assert [(copy.source, copy.target) for copy in made.copies] == [("/data/set", target)]


@pytest.mark.parametrize("mode", ["ro_mount", "download", "direct"])
def test_data_that_nodes_do_not_reach_is_copied_in_every_mode(mode):
    given = {"d": {"path": "/home/ann/set", "mode": mode}, "e": {"path": "/data/set"}}
    made = plan(nodes=1, command="ls ${{inputs.d}} ${{inputs.e}}", inputs=given, at={"reached": ("/data",)})
    target = "/home/ann/jobs/calm_drum/inputs/d/set"
    assert made.argv[2] == f"ls {target} /data/set"
    assert [(copy.source, copy.target) for copy in made.copies] == [("/home/ann/set", target)]


def test_an_address_in_mode_direct_is_passed_on():
    made = plan(nodes=1, command="cat ${{inputs.d}}", inputs={"d": {"path": "https://h/x", "mode": "direct"}})
    assert made.argv[2] == "cat https://h/x"


def test_what_is_elsewhere_is_fetched_and_written_back():
    made = plan(
        nodes=1,
        command="train ${{inputs.d}} ${{inputs.f}} ${{outputs.m}}",
        inputs={
            "d": {"path": "abfss://digits@lab.dfs.core.windows.net/v1/"},
            "f": {"type": "uri_file", "path": "https://h/a%20b/x.csv?v=1", "mode": "download"},
        },
        outputs={
            "m": {"path": "s3://lab/models/net"},
            "u": {"type": "uri_file", "path": "gs://lab/net.pt", "mode": "upload"},
            "direct": {"path": "s3://lab/elsewhere", "mode": "direct"},
        },
    )
    home = "/home/ann/jobs/calm_drum"
    assert made.argv[2] == f"train {home}/inputs/d/v1 {home}/inputs/f/x.csv {home}/named-outputs/m"
    assert [(one.name, one.kind, one.target, one.writable) for one in made.fetches] == [
        ("inputs.d", "folder", f"{home}/inputs/d/v1", False),
        ("inputs.f", "file", f"{home}/inputs/f/x.csv", True),
        ("outputs.m", "folder", f"{home}/named-outputs/m", True),
    ]
    assert [(one.name, one.source, one.uri, one.always) for one in made.uploads] == [
        ("outputs.m", f"{home}/named-outputs/m", "s3://lab/models/net", True),
        ("outputs.u", f"{home}/named-outputs/u", "gs://lab/net.pt", False),
    ]
    assert made.user_env["AZURE_ML_OUTPUT_direct"] == "s3://lab/elsewhere"


def test_tensorboard_is_shown_what_its_log_dir_names():
    made = plan(
        nodes=1,
        command="x",
        outputs={"o": {}},
        services={
            "a": {"type": "tensor_board"},
            "b": {"type": "tensor_board", "log_dir": "outputs/tb", "port": 6006},
            "c": {"type": "tensor_board", "log_dir": "${{outputs.o}}/logs"},
        },
    )
    home = "/home/ann/jobs/calm_drum"
    assert [(one.name, one.folder, one.port) for one in made.services] == [
        ("a", f"{home}/outputs", 0),
        ("b", f"{home}/code/outputs/tb", 6006),
        ("c", f"{home}/named-outputs/o/logs", 0),
    ]
    assert not [warning for warning in made.warnings if warning.startswith("services")]


def test_every_field_that_is_not_honoured_is_answered_with_a_warning_that_names_it():
    made = plan(
        nodes=1,
        environment="azureml:e:1",
        compute="azureml:gpu-cluster",
        instance_type="Standard_NC6",
        shm_size="2g",
        docker_args="--ipc=host",
        locations=["westus"],
        job_tier="spot",
        priority="high",
        services={"t": {"type": "jupyter_lab"}},
        inputs={"d": {"path": "/d", "datastore": "blob"}},
        outputs={"o": {"path": "wasbs://c@a.blob.core.windows.net/x?sig=abc"}},
    )
    fields = [warning.split(":")[0] for warning in made.warnings]
    assert fields == [
        "environment",
        "compute",
        "resources.instance_type",
        "resources.shm_size",
        "resources.docker_args",
        "resources.locations",
        "queue_settings.job_tier",
        "queue_settings.priority",
        "services",
        "inputs.d.datastore",
        "outputs.o.path",
    ]


def test_grace_is_thirty_seconds_unless_the_job_says_otherwise():
    assert plan(nodes=1).grace_s == 30.0
    assert plan(nodes=1, drumline={"grace": 2.5}).grace_s == 2.5


@pytest.mark.parametrize(
    ("command", "nodes", "stays"),
    [
        ("/opt/train/bin/deepspeed train.py", 2, True),
        ("python -m deepspeed.launcher.runner train.py", 2, True),
        ("python -m deepspeed.launcher.runner train.py", 1, False),
        ('bin/deepspeed --hostfile "$DRUMLINE_HOSTFILE" train.py', 2, False),
        # That one is ours, and knows the nodes.
        ("deepspeed --autotuning run train.py --deepspeed src/deepspeed.json", 2, False),
    ],
)
def test_a_launcher_that_would_stay_on_one_node_is_warned_of(command, nodes, stays):
    made = plan(nodes=nodes, command=command, distribution={"type": "pytorch"}, drumline={"once": True})
    assert any("starts ranks on node 0 alone" in warning for warning in made.warnings) == stays


@pytest.mark.parametrize(
    ("command", "procs", "launcher"),
    [
        ("torchrun --nproc-per-node 2 train.py", 2, "torchrun"),
        ("cd src && python -m torch.distributed.run train.py", 2, "torch.distributed.run"),
        ("accelerate launch train.py", 4, "accelerate launch"),
        ("mpirun -n 2 python train.py", 2, "mpirun"),
        ("horovodrun -np 2 python train.py", 2, "horovodrun"),
        ("torchrun --nproc-per-node 2 train.py", 1, ""),
        ("python train.py --launcher torchrun.yml", 2, ""),
    ],
)
def test_a_launcher_in_each_process_of_a_node_is_warned_of(command, procs, launcher):
    distribution = {"type": "pytorch", "process_count_per_instance": procs}
    made = plan(nodes=2, command=command, distribution=distribution)
    of_mpi = plan(
        nodes=2,
        command=command,
        distribution={**distribution, "type": "mpi"},
        at={"mpi": Mpi(OPEN_MPI, 4, 1, "mpirun")},
    )
    assert [warning for warning in of_mpi.warnings if "in each of the" in warning] == [
        warning for warning in made.warnings if "in each of the" in warning
    ]
    said = [warning for warning in made.warnings if "in each of the" in warning]
    assert len(said) == bool(launcher)
    assert not said or f"it starts {launcher} in each of the {procs} processes" in said[0]


@pytest.mark.parametrize(
    ("ranks", "cores", "at", "expected"),
    [
        (17, 1, {"shares_machine": True}, "34 ranks share 2 cores of this machine"),
        (8, 1, {"shares_machine": True}, ""),
        (17, 2, {"shares_machine": False}, "17 ranks share 2 cores of node 0"),
        (9, 1, {"shares_machine": False}, "9 ranks share 1 core of node 0"),
        (16, 2, {"shares_machine": False}, ""),
        (99, 0, {"shares_machine": False}, ""),
    ],
)
@pytest.mark.parametrize("kind", ["pytorch", "mpi"])
def test_more_than_eight_ranks_a_core_are_warned_about(ranks, cores, at, expected, kind):
    distribution = {"type": kind, "process_count_per_instance": ranks}
    made = plan(distribution=distribution, cores=cores, at={**at, "mpi": Mpi(OPEN_MPI, 4, 1, "mpirun")})
    said = [warning for warning in made.warnings if "ranks share" in warning]
    assert said == ([f"distribution: {expected}; expect them to be slow"] if expected else [])
