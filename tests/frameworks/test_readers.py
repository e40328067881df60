"""What a job's processes are told is what each framework's own code makes of it."""

import json
import shutil

import pytest
from cli_jobs import write_job
from frameworks.conftest import skip_without
from frameworks.table import BASE, ROOT

pytestmark = pytest.mark.timeout(300)

TWO_A_NODE = {"type": "pytorch", "process_count_per_instance": 2}
ONE_A_NODE = {"type": "pytorch"}
ONE_A_NODE_BY_MPI = {"type": "mpi"}
TWO_A_NODE_BY_MPI = {"type": "mpi", "process_count_per_instance": 2}


@pytest.fixture
def seen_by(run_in, tmp_path, drumline_home):
    """By process: what that reader saw, and the environment that it read."""

    def ask(environment, reader, distribution, needs=None):
        skip_without(environment, needs or reader)
        fields = {"distribution": distribution} if distribution else {}
        path = write_job(
            tmp_path,
            f"python readers.py {reader}",
            code=str(ROOT / "tests" / "jobs"),
            name="probe",
            resources={"instance_count": 2},
            **fields,
        )
        done = run_in(environment, tmp_path, "-m", "drumline", "job", "create", "-f", path, "--stream")
        assert done.rc == 0, done.out[-4000:] + done.err
        logs = sorted((drumline_home / "jobs" / "probe" / "user_logs").glob("*.txt"))
        lines = [
            line for log in logs for line in log.read_text().splitlines() if line.startswith('{"reader"')
        ]
        return [(one["seen"], one["environment"]) for one in map(json.loads, lines)]

    return ask


def place_in(environment, *names):
    return [int(environment[name]) for name in names]


def test_torch(seen_by):
    answers = seen_by(BASE, "torch", TWO_A_NODE)
    assert [(seen["rank"], seen["count"], seen["local_rank"]) for seen, _ in answers] == [
        (0, 4, 0),
        (1, 4, 1),
        (2, 4, 0),
        (3, 4, 1),
    ]
    for seen, environment in answers:
        assert seen["launched"]
        assert seen["local_rank"] == seen["group_local_rank"]
        assert [seen["rank"], seen["count"]] == place_in(environment, "ROLE_RANK", "ROLE_WORLD_SIZE")
        assert environment["TORCHELASTIC_RUN_ID"] == "probe"


@pytest.mark.parametrize("distribution", [None, ONE_A_NODE], ids=["none", "pytorch"])
def test_torchrun(seen_by, distribution):
    for node, (seen, environment) in enumerate(seen_by(BASE, "torchrun", distribution, "torch")):
        assert seen == {
            "backend": "static",
            "endpoint": f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}",
            "nodes": [2, 2],
            "node": node,
            "per_node": 1,
        }


def test_lightning_whose_processes_are_started_for_it(seen_by):
    answers = seen_by(BASE, "lightning", TWO_A_NODE)
    assert len(answers) == 4
    for seen, environment in answers:
        assert seen["name"] == "TorchElasticEnvironment"
        assert seen["started"]
        assert [seen["rank"], seen["count"], seen["local_rank"], seen["node"]] == place_in(
            environment, "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"
        )
        assert seen["address"] == f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"


def lightning_starts_two(node, address):
    """What the first process of each node sees."""
    return {
        "name": "LightningEnvironment",
        "started": False,
        "rank": node * 2,
        "count": 4,
        "local_rank": 0,
        "node": node,
        "address": address,
    }


def test_lightning_that_starts_its_own_processes(seen_by):
    for node, (seen, environment) in enumerate(seen_by(BASE, "lightning", None)):
        assert seen == lightning_starts_two(
            node, f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
        )


@pytest.mark.parametrize("reader", ["accelerate", "transformers"])
def test_accelerate_and_transformers(seen_by, reader):
    answers = seen_by(BASE, reader, TWO_A_NODE)
    assert len(answers) == 4
    for seen, environment in answers:
        expected = place_in(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK")
        assert [seen["rank"], seen["count"], seen["local_rank"]] == expected
        assert seen.get("kind", "MULTI_CPU") == "MULTI_CPU"


def test_jax(seen_by):
    """It finds the coordinator by itself; number and index of processes are given to it."""
    answers = seen_by("jax", "jax", TWO_A_NODE)
    assert [seen["rank"] for seen, _ in answers] == [0, 1, 2, 3]
    for seen, environment in answers:
        assert seen["count"] == 4
        assert seen["coordinator"] == environment["JAX_COORDINATOR_ADDRESS"]
        assert place_in(environment, "RANK", "WORLD_SIZE") == place_in(
            environment, "JAX_PROCESS_ID", "JAX_NUM_PROCESSES"
        )


# Below a real mpirun

PLACES = ("RANK", "WORLD_SIZE")
by_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="no mpirun, which scripts/test installs as root"
)


@by_mpi
def test_mpi4py(seen_by):
    answers = seen_by(BASE, "mpi4py", TWO_A_NODE_BY_MPI)
    assert len(answers) == 4
    for seen, environment in answers:
        assert [seen["rank"], seen["count"], seen["total"]] == [*place_in(environment, *PLACES), 6]


@by_mpi
def test_the_guides_function_for_mpi_jobs(seen_by):
    answers = seen_by(BASE, "guide", TWO_A_NODE_BY_MPI, "torch")
    assert len(answers) == 4
    for seen, environment in answers:
        assert [seen["rank"], seen["count"]] == place_in(environment, *PLACES)
        assert seen["address"] == "127.0.0.1"
        assert seen["interface"] == "lo"


@by_mpi
def test_lightning_below_mpi(seen_by):
    for seen, environment in seen_by(BASE, "lightning", TWO_A_NODE_BY_MPI):
        assert seen["started"]
        expected = place_in(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK")
        assert [seen["rank"], seen["count"], seen["local_rank"], seen["node"]] == expected


@by_mpi
def test_lightning_that_starts_its_own_processes_below_mpi(seen_by):
    for node, (seen, environment) in enumerate(seen_by(BASE, "adapter", ONE_A_NODE_BY_MPI, "lightning")):
        assert seen == lightning_starts_two(node, environment["AZ_BATCH_MASTER_NODE"])


@by_mpi
def test_accelerate_below_mpi(seen_by):
    for seen, environment in seen_by(BASE, "accelerate", TWO_A_NODE_BY_MPI):
        expected = place_in(environment, "RANK", "WORLD_SIZE", "LOCAL_RANK")
        assert [seen["rank"], seen["count"], seen["local_rank"]] == expected


@by_mpi
def test_deepspeed_below_mpi(seen_by):
    answers = seen_by("deepspeed", "deepspeed", TWO_A_NODE_BY_MPI)
    assert len(answers) == 4
    for seen, environment in answers:
        assert seen["found"] == seen["given"]
        assert seen["rank"] == int(environment["OMPI_COMM_WORLD_RANK"])


@by_mpi
def test_jax_below_open_mpi_needs_no_arguments(seen_by):
    answers = seen_by("jax", "jax_alone", TWO_A_NODE_BY_MPI, "jax")
    assert sorted(seen["rank"] for seen, _ in answers) == [0, 1, 2, 3]
    for seen, environment in answers:
        assert [seen["rank"], seen["count"]] == place_in(environment, *PLACES)
