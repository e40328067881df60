"""Ranks that were to train one model, and do not: the job goes on, with a warning that says so."""

import textwrap

import pytest
from cli_jobs import wait_for_status, write_job, write_script
from needs import need_torch
from waiting import wait_until

from drumline.control.facts import description

need_torch()
pytestmark = pytest.mark.timeout(600)

TRAIN = """
    import os, time
    import torch
    import torch.distributed as dist

    rank, together = int(os.environ["RANK"]), int(os.environ["TOGETHER"])
    if rank < together:
        dist.init_process_group("gloo", rank=rank, world_size=together)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while not os.path.exists("outputs/go"):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        if rank == 0:
            open("outputs/trains", "w").close()
        time.sleep(0.02)
"""
THREE = {
    "distribution": {"type": "pytorch", "process_count_per_instance": 3},
    "resources": {"instance_count": 1},
}


def test_a_rank_that_trains_alone_is_told(cli, tmp_path, drumline_home):
    variables = {"TOGETHER": "2", "DRUMLINE_WORLD_GUARD": "0.2"}
    done = cli("job", "create", "-f", write_script(tmp_path, TRAIN, environment_variables=variables, **THREE))
    assert done.rc == 0, done.err
    told = wait_until(lambda: description.show_job("job").get("warnings"), 60.0, "the warning")
    (drumline_home / "jobs" / "job" / "outputs" / "go").touch()
    wait_for_status("job", "Completed")
    text = (
        "these 3 processes train 2 separate models: WORLD_SIZE was 3, ranks 0-1 connected to none of rank 2"
    )
    assert [(one["kind"], one["text"]) for one in told] == [("world", text)]
    assert f"warning: {text}"[:60] in cli("job", "show", "job", "-o", "table").out


def test_ranks_of_one_group_are_one_world(cli, tmp_path, drumline_home):
    variables = {"TOGETHER": "3", "DRUMLINE_WORLD_GUARD": "0.01"}
    done = cli("job", "create", "-f", write_script(tmp_path, TRAIN, environment_variables=variables, **THREE))
    assert done.rc == 0, done.err
    outputs = drumline_home / "jobs" / "job" / "outputs"
    wait_until((outputs / "trains").exists, 60.0, "training")
    (outputs / "go").touch()
    assert "warnings" not in wait_for_status("job", "Completed")


LIKE_TORCH = {
    "__init__.py": "",
    "_C.py": """
        class _distributed_c10d:
            def TCPStore(*_, **named):
                if named["use_libuv"]:
                    raise RuntimeError("use_libuv was requested but PyTorch was built without libuv support")
    """,
    "distributed/__init__.py": "",
    "distributed/distributed_c10d.py": """
        import os
        import torch._C

        def get_backend():
            return "gloo"

        def _update_default_pg(pg):
            pass

        def init_process_group():
            torch._C._distributed_c10d.TCPStore(use_libuv=os.environ.get("USE_LIBUV", "1") == "1")
            _update_default_pg(object())
    """,
}


def test_a_pytorch_without_libuv_gets_the_older_store(cli, tmp_path):
    for name, text in LIKE_TORCH.items():
        file = tmp_path / "code" / "torch" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    (tmp_path / "code" / "train.py").write_text(
        "from torch.distributed import distributed_c10d\ndistributed_c10d.init_process_group()\n"
    )
    job = write_job(tmp_path, "python train.py", code=str(tmp_path / "code"), name="job", **THREE)
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 0, done.out
    # It writes nothing, which is told too.
    warning = description.show_job("job")["warnings"][0]
    assert (warning["kind"], warning["text"][:66]) == (
        "libuv",
        "this PyTorch was built without libuv, so Drumline set USE_LIBUV=0 ",
    )
