"""Launchers in a job's command, and the ways in which plain scripts join their group."""

import re

import pytest
from cli_jobs import write_job
from frameworks.conftest import skip_without
from frameworks.table import ACCURACY, BASE, EXAMPLES

pytestmark = pytest.mark.timeout(300)

DIGITS = EXAMPLES / "digits-ddp"
TRAIN = f"train.py --epochs 3 --data '{DIGITS / 'data' / 'digits.csv'}'"
TWO_NODES = {"resources": {"instance_count": 2}, "code": str(DIGITS / "src")}
ONE_A_NODE = {"type": "pytorch"}
TWO_A_NODE = {"type": "pytorch", "process_count_per_instance": 2}

JOIN = """
import sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo", **eval(sys.argv[1]))
total = torch.tensor([dist.get_rank()])
dist.all_reduce(total)
print(f"{dist.get_rank()} of {dist.get_world_size()}: {total.item()}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(autouse=True)
def _installed():
    skip_without(BASE, "torch", "accelerate")


def ran(run_in, folder, command, **fields):
    path = write_job(folder, command, **{**TWO_NODES, **fields})
    done = run_in(BASE, folder, "-m", "drumline", "job", "create", "-f", path, "--stream")
    assert done.rc == 0, done.out[-4000:] + done.err
    return done.out


@pytest.mark.parametrize("distribution", [None, ONE_A_NODE], ids=["none", "pytorch"])
def test_a_torchrun_without_arguments_trains_on_all_nodes(distribution, run_in, tmp_path):
    out = ran(
        run_in,
        tmp_path,
        f"torchrun {TRAIN}",
        environment_variables={"PET_NPROC_PER_NODE": 2},
        **({"distribution": distribution} if distribution else {}),
    )
    assert re.search(ACCURACY, out)


def test_arguments_of_torchrun_win(run_in, tmp_path):
    out = ran(run_in, tmp_path, f"torchrun --nnodes 1 --standalone --nproc-per-node 1 {TRAIN}")
    assert out.count("(1 rank)") == 2


def test_torchruns_own_rendezvous_works_with_our_names(run_in, tmp_path):
    words = "--rdzv-backend c10d --rdzv-endpoint $MASTER_ADDR:$MASTER_PORT --rdzv-id $AZUREML_RUN_ID --nproc-per-node 2"
    assert re.search(ACCURACY, ran(run_in, tmp_path, f"torchrun {words} {TRAIN}"))


def test_accelerate_launch_trains_on_all_nodes(run_in, tmp_path):
    """``--multi_gpu`` is its launcher of several ranks a node, GPUs or not; ``--cpu`` starts one, or asks mpirun."""
    words = (
        "--multi_gpu --num_machines 2 --num_processes 4 --machine_rank $NODE_RANK "
        "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT "
        "--mixed_precision no --dynamo_backend no --num_cpu_threads_per_process 1"
    )
    # Without the settings of whoever runs the tests.
    home = {"HF_HOME": str(tmp_path)}
    out = ran(run_in, tmp_path, f"accelerate launch {words} {TRAIN}", environment_variables=home)
    assert re.search(ACCURACY, out)


@pytest.mark.parametrize(
    "arguments",
    [
        'dict(init_method="env://")',
        'dict(init_method="tcp://%s:%s" % (E["MASTER_ADDR"], E["MASTER_PORT"]), rank=int(E["RANK"]), '
        'world_size=int(E["WORLD_SIZE"]))',
    ],
    ids=["env", "tcp"],
)
def test_ways_to_join_a_group(arguments, run_in, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "join.py").write_text("from os import environ as E\n" + JOIN)
    out = ran(run_in, tmp_path, f"python join.py '{arguments}'", code=str(source), distribution=TWO_A_NODE)
    assert sorted(re.findall(r"(\d) of 4: 6$", out, re.MULTILINE)) == ["0", "1", "2", "3"]
