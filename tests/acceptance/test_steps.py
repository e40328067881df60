"""The steps of a real training, followed without a change of its code."""

import json
import os
import shutil

import pytest
from cli_jobs import write_script
from needs import need_torch

from drumline.contract.record import describe_record
from drumline.contract.steps import PLACES
from drumline.control.facts.history import describe_attempt_steps, read_system
from drumline.control.facts.ranks import describe_ranks
from drumline.control.facts.steps import read_steps
from drumline.control.jobs import lookup

STEPS = 30

TRAIN = f"""
    import os, time
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, Dataset

    class Digits(Dataset):
        def __len__(self):
            return 4 * {STEPS}

        def __getitem__(self, index):
            return torch.ones(16)

    def main():
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        late_s = 0.1 if dist.get_rank() == 1 else 0.0
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in DataLoader(Digits(), batch_size=4, num_workers=1):
            time.sleep(0.02 + late_s)
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
        dist.destroy_process_group()

    main()
"""


@pytest.fixture(scope="module")
def needs_torch():
    need_torch()


@pytest.mark.usefixtures("needs_torch")
def test_a_training_is_followed_and_its_late_rank_named(cli, tmp_path):
    variables = {"DRUMLINE_STEPS_DETAIL": "1"}
    path = write_script(
        tmp_path,
        TRAIN,
        resources={"instance_count": 1},
        environment_variables=variables,
        drumline={"grace": 1},
        inputs={"max_steps": STEPS + 1},
    )
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    history = read_steps(lookup.folder_of("job").path, 0)
    assert sorted(history.ranks) == [0, 1]
    summary = history.summarize()
    assert summary is not None
    assert summary.done == STEPS
    assert summary.sources == ["ddp", "optimizer"]
    assert summary.latest.rank == 1
    assert summary.latest.late_ms > 50
    assert summary.latest.share > 0.5
    assert set(summary.phases) == {"input", "forward", "backward", "waiting", "exchange", "other"}
    # Rank 0 waits in backward for the rank whose forward takes longer.
    assert history.find_bucket_bytes() == ((16 * 4 + 4) * 4,)
    assert [len(history.list_seconds(rank, "step")) for rank in (0, 1)] == [STEPS, STEPS]
    forwards = [
        sorted(one for one in history.list_seconds(rank, "forward") if one)[STEPS // 2] for rank in (0, 1)
    ]
    assert forwards[1] - forwards[0] > 0.05

    shown = json.loads(cli("job", "show", "-n", "job", "-o", "json").out)["steps"]
    assert {**shown, "total": None, "total_source": None} == describe_record(summary)
    assert (shown["total"], shown["total_source"]) == (STEPS + 1, "input max_steps")
    page = cli("job", "show", "-n", "job", "-o", "table").out
    assert f"step {STEPS} of {STEPS + 1} (input max_steps), " in page
    assert "latest rank: 1, by " in page
    assert f"step {STEPS} of" in cli("job", "top", "job", "--once").out

    told = describe_attempt_steps("job")
    assert told.progress.startswith(f"step {STEPS} of {STEPS + 1} (input max_steps), ")
    assert "wait for rank 1" in told.sentence
    assert [one.lateness > 50 for one in describe_ranks("job").ranks] == [False, True]
    rows = read_system("job", "lateness").rows
    assert max(one for one in rows[1].values if one == one) > 50  # noqa: PLR0124 - nan is not


SHARDED = f"""
    import time
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    def main():
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        late_s = 0.1 if dist.get_rank() == 1 else 0.0
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2 * {STEPS}):
            time.sleep(0.05 + late_s)
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
        dist.destroy_process_group()

    main()
"""


@pytest.mark.usefixtures("needs_torch")
def test_the_late_rank_of_a_sharded_model_is_named_by_its_collectives(cli, tmp_path):
    path = write_script(tmp_path, SHARDED, resources={"instance_count": 1}, drumline={"grace": 1})
    assert cli("job", "create", "-f", path, "--stream").rc == 0
    summary = read_steps(lookup.folder_of("job").path, 0).summarize()
    assert summary is not None
    assert (summary.done, summary.sources) == (2 * STEPS, ["collectives", "optimizer"])
    assert summary.latest.rank == 1
    assert summary.latest.late_ms > 50
    assert "latest rank: 1, by " in cli("job", "show", "-n", "job", "-o", "table").out


OWN_LOOP = """
    import os
    import torch

    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    print(torch.autograd.backward.__module__, "DRUMLINE_STEPS" in os.environ)
"""


@pytest.mark.usefixtures("needs_torch")
def test_nothing_is_followed_where_a_job_does_not_want_it(cli, tmp_path):
    settings = {"grace": 1, "steps": False}
    path = write_script(tmp_path, OWN_LOOP, resources={"instance_count": 1}, drumline=settings)
    created = cli("job", "create", "-f", path, "--stream")
    assert created.rc == 0
    assert not os.path.exists(os.path.join(lookup.folder_of("job").path, "steps"))


MPI_LOOP = """
    import sys, time
    from array import array
    from mpi4py import MPI

    world, total = MPI.COMM_WORLD, array("d", [0.0])
    until, goes_on = time.monotonic() + 12, True
    while goes_on:
        end = time.monotonic() + 0.05 * world.rank
        while time.monotonic() < end:
            pass
        world.Allreduce(array("d", [1.0]), total)
        goes_on = world.bcast(time.monotonic() < until)
"""


def test_stacks_tell_where_the_time_of_an_mpi_job_goes(cli, tmp_path):
    pytest.importorskip("mpi4py", reason="the calls of MPI")
    if shutil.which("mpirun") is None:
        pytest.skip("needs an MPI; scripts/test installs openmpi-bin as root")
    distribution = {"type": "mpi", "process_count_per_instance": 2}
    path = write_script(
        tmp_path,
        MPI_LOOP,
        distribution=distribution,
        resources={"instance_count": 1},
        drumline={"grace": 1},
    )
    created = cli("job", "create", "-f", path, "--stream")
    assert created.rc == 0, created.out
    looks = read_steps(lookup.folder_of("job").path, 0).looks
    sums = {
        rank: [sum(column) for column in zip(*(one.counts for one in looks[rank]), strict=True)]
        for rank in (0, 1)
    }
    shares = {rank: counts[PLACES.index("communication")] / sum(counts) for rank, counts in sums.items()}
    assert shares[0] > 0.7, sums
    assert shares[1] < 0.5, sums

    shown = json.loads(cli("job", "show", "-n", "job", "-o", "json").out)["steps"]
    assert (shown["done"], shown["sources"]) == (None, ["stacks"])
    assert shown["looks"] == sum(map(sum, sums.values()))
    assert sum(shown["phases"].values()) == pytest.approx(1.0, abs=0.01)
    assert f"(by {shown['looks']} looks at stacks)" in cli("job", "show", "-n", "job", "-o", "table").out
    assert "looks at stacks)" in cli("job", "top", "job", "--once").out
