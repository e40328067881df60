"""What an image changes in a plan."""

import pytest
from planning import plan

from drumline.contract.errors import PlanError
from drumline.contract.installed_mpi import OPEN_MPI, Mpi
from drumline.contract.plan import Build, Plan
from drumline.spec.parts.resources import MpiDistribution, PyTorchDistribution, RayDistribution


def contained(kind="podman", recipe=None, at=None, **job):
    build = Build(kind, "d1", "/home/ann/environments/d1", {"image": "img:1", **(recipe or {})}, "env:1")
    return plan(at={"build": build, "interpreter": "", **(at or {})}, **job)


def test_a_plan_has_the_container_and_the_images_own_path():
    made = contained(nodes=1, shm_size="2g", docker_args="--cap-add SYS_PTRACE")
    assert made.container == {
        "kind": "podman",
        "image": "img:1",
        "pull": "never",
        "mounts": ["/home/ann/jobs/calm_drum", "/home/ann/jobs/calm_drum/code", "/home/ann/mlruns"],
        "shm_bytes": 2 << 30,
        "arguments": ["--cap-add", "SYS_PTRACE"],
    }
    assert "PATH" not in made.user_env
    assert made.argv == ("/bin/bash", "-c", "python train.py")
    assert not [one for one in made.warnings if "shm_size" in one or "docker_args" in one]
    assert Plan.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        ("pip install -r more.txt && python train.py", True),
        ("python -m pip  install torch; python train.py", True),
        ("uv pip install --system torch && python t.py", True),
        ("conda install -y numpy && python t.py", True),
        ("pip install --target packages torch && PYTHONPATH=packages python t.py", False),
        ("conda install -y -n mine numpy", False),
        ("python -m venv v && . v/bin/activate && pip install torch", False),
        ("python train.py --update", False),
        ("PIP_QUIET=1 sudo -H /opt/bin/pip3 \\\n  install torch && python t.py", True),
        ("set -e\n  $PYTHON -m pip install torch", True),
        ("bash -c 'pip install torch'", True),
        ("if ! python -c 'import torch'; then pip install torch; fi", True),
        ("pip install \\\n  --target packages torch", False),
        ("echo pip install torch", False),
        ("python t.py --say 'run pip install torch'", False),
        ("# pip install torch\npython t.py", False),
        ("A=python " * 40 + "t.py; install", False),
    ],
)
def test_an_installation_is_told_unless_it_is_in_a_container(command, is_told):
    def list_told(made):
        return [one for one in made.warnings if one.startswith("command: an installation")]

    assert len(list_told(plan(nodes=1, command=command))) == is_told
    assert not list_told(contained(command=command))


def test_without_an_image_those_fields_are_not_used():
    said = plan(nodes=1, shm_size="2g", docker_args="-v /a:/b").warnings
    assert len([one for one in said if "shm_size" in one or "docker_args" in one]) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--ulimit memlock=-1 -v '/my data:/data'", ["--ulimit", "memlock=-1", "-v", "/my data:/data"]),
        (["--ulimit memlock=-1", "-v", "/my data:/data"], ["--ulimit", "memlock=-1", "-v", "/my data:/data"]),
    ],
)
def test_arguments_are_words(given, words):
    assert contained(docker_args=given).container["arguments"] == words


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"shm_size": "much"}, "resources.shm_size: 'much' is not a size"),
        ({"docker_args": "--detach"}, "resources.docker_args: --detach is not the job's to choose"),
        ({"docker_args": "-dit"}, "resources.docker_args: -dit is not the job's to choose"),
        ({"docker_args": "'"}, "resources.docker_args: no closing quotation"),
        ({"distribution": RayDistribution()}, "environment: a cluster of Ray is not started in containers"),
    ],
)
def test_what_cannot_be_in_a_container_is_refused(job, message):
    with pytest.raises(PlanError) as refused:
        contained(nodes=1, **job)
    assert message in str(refused.value)


def test_an_image_made_on_one_node_of_a_cluster_is_refused():
    made = {"is_made": True}
    with pytest.raises(PlanError, match="made on one node"):
        contained(recipe=made, nodes=2, distribution=PyTorchDistribution(), at={"engine": "slurm"})
    assert contained("apptainer", made, nodes=2, at={"engine": "slurm"}).container["kind"] == "apptainer"


def test_ranks_of_an_mpi_share_the_nodes_memory():
    mpi = {"mpi": Mpi(OPEN_MPI, 4, 1, "mpirun")}
    made = contained(
        nodes=1, shm_size="2g", distribution=MpiDistribution(process_count_per_instance=2), at=mpi
    )
    assert made.container["shm_bytes"] == 0
    assert any("the same MPI" in one for one in made.warnings)
