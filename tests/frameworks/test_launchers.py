"""Launchers in a job's command, and the ways in which plain scripts join their group."""

import re

import pytest
from cli_jobs import write_job
from frameworks import followed, table
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


ACCELERATED = """
import sys
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
model = torch.nn.Linear(8, 1)
images = TensorDataset(torch.ones(320, 8), torch.ones(320, 1))
model, optimizer, batches = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(images, batch_size=8)
)
steps = 0
for epoch in range(int(sys.argv[1])):
    for pixels, labels in batches:
        with accelerator.accumulate(model):
            accelerator.backward((model(pixels) - labels).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            steps += accelerator.sync_gradients
print(f"{steps} steps of {accelerator.num_processes} ranks", flush=True)
accelerator.end_training()
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


def test_accelerate_launch_trains_on_all_nodes(run_in, tmp_path, drumline_home):
    """``--multi_gpu`` is its launcher of several ranks a node, GPUs or not; ``--cpu`` starts one, or asks mpirun."""
    words = (
        "--multi_gpu --num_machines 2 --num_processes 4 --machine_rank $NODE_RANK "
        "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT "
        "--mixed_precision no --dynamo_backend no --num_cpu_threads_per_process 1"
    )
    # Without the settings of whoever runs the tests.
    home = {"HF_HOME": str(tmp_path)}
    source = tmp_path / "src"
    source.mkdir()
    (source / "train.py").write_text(ACCELERATED)
    command = f"accelerate launch {words} train.py ${{{{inputs.epochs}}}}"
    fields = {"environment_variables": home, "code": str(source), "inputs": {"epochs": 3}}
    out = ran(run_in, tmp_path, command, **fields)
    # Ten batches of a rank make four steps: three, three, three and one.
    assert "12 steps of 4 ranks" in out
    run_folder = drumline_home / "jobs" / re.search(r"RunId: (\S+)", out)[1]
    followed.check(run_folder, table.Followed(12, "input epochs"))


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
