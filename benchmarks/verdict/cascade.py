"""
One rank of a job that fails in a cascade: the culprit fails, and the others follow.

CASCADE is a JSON object: folder (shared by the ranks), culprit (a rank), cause, work ("bare" or "gloo"),
follow (by rank: how it follows, and how many milliseconds behind), dies (behind the culprit's end, else behind its
exception, while it may still be about to end).
Nothing in here knows what launched it; RANK and WORLD_SIZE are all that it reads.
"""

import json
import os
import signal
import sys
import time

RANK = int(os.environ["RANK"])
COUNT = int(os.environ["WORLD_SIZE"])
CASE = json.loads(os.environ["CASCADE"])


def mark(name):
    """Whole at once: whoever sees the file can read it."""
    path = os.path.join(CASE["folder"], name)
    with open(path + ".partial", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".partial", path)


def wait_for(*names):
    while not all(os.path.exists(os.path.join(CASE["folder"], name)) for name in names):
        time.sleep(0.0005)


def wait_for_end(name):
    with open(os.path.join(CASE["folder"], name)) as file:
        stat = f"/proc/{file.read()}/stat"
    while True:
        try:
            with open(stat) as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return
        except OSError:
            return
        time.sleep(0.0005)


class TroubleError(Exception):
    """One of the program's own."""


def segfault():
    import ctypes

    ctypes.string_at(0)


def no_such_module():
    import no_such_module  # noqa: F401


def raise_(error):
    raise error


CAUSES = {
    "value": lambda: raise_(ValueError("bad batch")),
    "key": lambda: {}["optimizer"],
    "own": lambda: raise_(TroubleError("the loss is not a number")),
    "assert": lambda: raise_(AssertionError("shapes differ")),
    "import": no_such_module,
    "file": lambda: open("/nowhere/shard-0007.tar"),  # noqa: SIM115
    "memory": lambda: raise_(MemoryError("cannot allocate 80.00 GiB")),
    "exit": lambda: sys.exit(7),
    "exit at once": lambda: os._exit(9),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "segfault": segfault,
}


def fail(cause):
    mark(f"failed-{RANK}")
    CAUSES[cause]()


def follow(how, behind_ms):
    """What a peer does whose neighbour is gone."""
    time.sleep(behind_ms / 1000)
    if how == "reset":
        raise ConnectionResetError(104, "Connection reset by peer")
    if how == "pipe":
        raise BrokenPipeError(32, "Broken pipe")
    if how == "closed":
        raise RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:4242")
    if how == "exit":
        os._exit(1)
    if how == "abort":
        os.abort()
    signal.pause()


def bare():
    mark(f"there-{RANK}")
    wait_for(*(f"there-{rank}" for rank in range(COUNT)))
    if CASE["culprit"] == RANK:
        fail(CASE["cause"])
    wait_for(f"failed-{CASE['culprit']}")
    if CASE["dies"]:
        wait_for_end(f"failed-{CASE['culprit']}")
    follow(*CASE["follow"][RANK])


def gloo():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for step in range(1000):
        if step == 5 and CASE["culprit"] == RANK:
            fail(CASE["cause"])
        dist.all_reduce(torch.ones(64))


if __name__ == "__main__":
    gloo() if CASE["work"] == "gloo" else bare()
