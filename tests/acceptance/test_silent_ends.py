"""Jobs whose ranks all end with 0, and that did less than was asked: real programs, and real signals."""

import json
import os
import signal

import pytest
from cli_jobs import one_rank, wait_for_status, write_script
from needs import need_torch
from waiting import wait_until

from drumline.contract import events as e
from drumline.control.jobs import lookup

HANDLE = """
    import os, signal, sys

    def stop(number, frame):
        print("saved", flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    assert signal.getsignal(signal.SIGTERM) is stop is signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    exec(os.environ.get("WAY", ""))
    signal.pause()
"""
PEER = """
    import os, signal, sys, time

    def stop(number, frame):
        print("saved", flush=True)
        sys.exit(0)

    if os.environ["RANK"] == "1":
        signal.signal(signal.SIGTERM, stop)
        with open("server.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("server.new", "server")
        while True:
            time.sleep(60)
    while not os.path.exists("server"):
        time.sleep(0.01)
    os.kill(int(open("server").read()), signal.SIGTERM)
"""
UNKNOWN = "rank 0 on node 0 ended with exit code 0 after SIGTERM; it is not known who sent it"
SHARDS = """
    import os, sys
    import torch, torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, way = dist.get_rank(), os.environ["WAY"]
    model = torch.nn.Linear(2, 1)
    model = model if way == "reduce" else DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(count):
        for step in range(count):
            try:
                optimizer.zero_grad()
                model(torch.ones(4, 2)).sum().backward()
                if way == "reduce":
                    dist.all_reduce(model.weight.grad)
            except RuntimeError:
                break
            optimizer.step()

    if way == "join":
        with model.join():
            train(9 - 2 * rank)
    else:
        train(7 if way == "alike" else 9 - 2 * rank)
    if way == "alike" and rank == 0:
        with torch.no_grad():
            [model.module(torch.ones(4, 2)) for batch in range(5)]
    if way in ("alike", "join"):
        dist.destroy_process_group()
"""


def list_ranks():
    return [one.pid for one in lookup.folder_of("job").read_events() if isinstance(one, e.RankStarted)]


def test_a_rank_that_an_outsider_told_to_stop_has_a_warning(cli, tmp_path, drumline_home):
    job = write_script(tmp_path, HANDLE, **one_rank(resources={"instance_count": 1}))
    assert cli("job", "create", "-f", job).rc == 0
    log = drumline_home / "jobs" / "job" / "user_logs" / "std_log.txt"
    wait_until(lambda: log.exists() and "ready" in log.read_text(), 60.0, "the handler")
    os.kill(list_ranks()[0], signal.SIGTERM)
    ended = wait_for_status("job", "Completed")
    assert [(one["kind"], one["text"]) for one in ended["warnings"]] == [("signal", UNKNOWN)]


@pytest.mark.parametrize(
    ("way", "warning"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", ""),
        ("signal.raise_signal(signal.SIGTERM)", UNKNOWN),
        ("os.system('kill $PPID')", UNKNOWN),
    ],
)
def test_a_program_that_stops_itself_has_completed(cli, tmp_path, way, warning):
    settings = one_rank(resources={"instance_count": 1})
    settings["drumline"] = {**settings.get("drumline", {}), "max_restarts": 1}
    job = write_script(tmp_path, HANDLE, environment_variables={"WAY": way}, **settings)
    done = cli("job", "create", "-f", job, "--stream")
    assert (done.rc, done.err) == (0, f"job job has a warning: {warning}\n" if warning else "")
    assert done.out.count("saved") == 1


def test_a_server_that_another_rank_stops_has_completed(cli, tmp_path):
    job = write_script(tmp_path, PEER, resources={"instance_count": 1})
    done = cli("job", "create", "-f", job, "--stream")
    assert (done.rc, done.err) == (0, "")
    assert "saved" in done.out


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("way", "warning"),
    [
        (
            "reduce",
            "rank 1 ended while others still waited for it: rank 0 entered 8 collectives, rank 1 entered 7",
        ),
        (
            "ddp",
            "rank 1 ended while others still waited for it: rank 0 entered 1 collective, rank 1 entered 0",
        ),
        ("join", ""),
        ("alike", ""),
    ],
)
def test_ranks_whose_data_ends_at_different_steps(cli, tmp_path, way, warning):
    need_torch()
    variables = {"WAY": way}
    job = write_script(
        tmp_path,
        SHARDS,
        environment_variables=variables,
        resources={"instance_count": 1},
        drumline={"grace": 5},
    )
    told = tmp_path / "told"
    notify = json.dumps([{"command": f"cat > '{told}.new' && mv '{told}.new' '{told}'", "on": "end"}])
    text = json.loads(job.read_text())
    text["drumline"]["notify"] = json.loads(notify)
    job.write_text(json.dumps(text))
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 0, done.out
    assert done.err == (f"job job has a warning: {warning}\n" if warning else "")
    wait_until(told.exists, 60.0, "the notice")
    assert json.loads(told.read_text())["warnings"] == ([warning] if warning else [])
