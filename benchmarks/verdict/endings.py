"""
One rank of a job that ends in a way that hides who began: the culprit ends well, takes its time, is late, or fails of
something that a later exception hides.

    python endings.py KIND CULPRIT

Nothing in here knows what launched it; RANK, WORLD_SIZE and what PyTorch reads are all that it needs.
"""

import atexit
import contextlib
import faulthandler
import logging
import os
import resource
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
KIND, CULPRIT = sys.argv[1], int(sys.argv[2])
STEP = 5
TIMEOUT = timedelta(seconds=3 if KIND.startswith(("late", "chained")) else 60)
ALONE = 1.0 if RANK == CULPRIT else 0.0
"""Only the culprit takes its time."""

SLEEPS = {"finally": 0.0, "slow finally, 0.3 s": 0.3, "slow finally, 3 s": 3.0}


def load_batch():
    """Never comes."""
    time.sleep(100)


def count_words():
    """The same, in native code."""
    while True:
        torch.ones(256, 256) @ torch.ones(256, 256)


def bad_batch():
    raise ValueError("bad batch")


def raise_from():
    try:
        bad_batch()
    except ValueError as error:
        raise RuntimeError("training failed") from error


class Killed(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


class Broken(Killed):
    def __getitem__(self, index):
        raise ValueError(f"bad image {index}")


class Stop(BaseException):
    """No Exception, so that nothing that handles those stops it."""


def bad_group():
    raise ExceptionGroup(
        "epoch 3", [ExceptionGroup("readers", [ValueError("shard 7 is empty")]), OSError("shard 9")]
    )


def stop():
    raise Stop("the watchdog says stop")


def interrupt():
    raise KeyboardInterrupt("enough")


def handle_and_exit():
    atexit.register(print, "tracker: synced 5 files", flush=True)
    try:
        bad_batch()
    except ValueError:
        sys.exit(1)


def wait_for_own_watchdog():
    faulthandler.dump_traceback_later(0.5, exit=True)
    load_batch()


def open_too_many():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    kept = []
    while True:
        kept.append(os.open(__file__, os.O_RDONLY))


def say(text, code):
    """Ends as a program in another language does."""
    print(text, file=sys.stderr, flush=True)
    os._exit(code)


PANIC = """panic: runtime error: index out of range [6] with length 3

goroutine 1 [running]:
main.main()
\t/src/loader.go:12 +0x1d
"""
JAVA = """Exception in thread "main" java.lang.IllegalStateException: table 'users' is not there
\tat Job.read(Job.java:7)
\tat Job.main(Job.java:2)"""


def other_collective():
    dist.recv(torch.ones(4), src=(CULPRIT + 1) % dist.get_world_size())


def destroy_and_leave():
    dist.destroy_process_group()
    os._exit(0)


STEPS = {
    "sys.exit(0)": lambda: sys.exit(0),
    "os._exit(0)": lambda: os._exit(0),
    "destroys its group, os._exit(0)": destroy_and_leave,
    "late in load_batch": load_batch,
    "late in native code": count_words,
    "late for a barrier": load_batch,
    "late for objects": load_batch,
    "late for a monitored barrier": load_batch,
    "late in another collective": other_collective,
    "slow finally, sys.exit(3)": lambda: sys.exit(3),
    "raise ... from": raise_from,
    "SIGABRT": os.abort,
    "a loader's worker is killed": lambda: list(torch.utils.data.DataLoader(Killed(), num_workers=1)),
    "a group of exceptions": bad_group,
    "BaseException": stop,
    "KeyboardInterrupt": interrupt,
    "handles it, sys.exit(1)": handle_and_exit,
    "sys.exit with lines": lambda: sys.exit("no learning rate:\n  lr\n  optimizer.lr"),
    "its own faulthandler": wait_for_own_watchdog,
    "no descriptor is left": open_too_many,
    "a loader's worker raises": lambda: list(torch.utils.data.DataLoader(Broken(), num_workers=1)),
    "a panic of Go": lambda: say(PANIC, 2),
    "an exception of Java": lambda: say(JAVA, 1),
    "torchrun: BaseException": stop,
    "torchrun: SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
}
"""What the culprit does in the middle of a loop of collectives; else it raises."""

RETURNS = {"returns": 0.0, "destroys its group, returns": 0.0, "destroys its group, returns 1 s later": 1.0}


def work():
    """True where it has ended early."""
    for step in range(STEP * 400):
        if step == STEP and RANK == CULPRIT:
            if KIND in RETURNS:
                return True
            STEPS.get(KIND, bad_batch)()
        if KIND == "late for a barrier":
            dist.barrier()
        elif KIND == "late for objects":
            dist.broadcast_object_list([step], src=CULPRIT)
        elif KIND == "late for a monitored barrier":
            dist.monitored_barrier(timeout=TIMEOUT)
        else:
            dist.all_reduce(torch.ones(64))
    return False


@contextlib.contextmanager
def group():
    try:
        yield
    finally:
        dist.destroy_process_group()
        time.sleep(ALONE)


def spin(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def in_context():
    with group():
        work()


def in_except():
    try:
        work()
    except ValueError:
        logging.getLogger("train").exception("it failed")
        dist.destroy_process_group()
        time.sleep(ALONE)
        raise


def with_atexit():
    atexit.register(time.sleep, 2 * ALONE)
    atexit.register(dist.destroy_process_group)
    work()


def with_barrier():
    try:
        work()
    finally:
        dist.barrier()


def with_barrier_in_except():
    try:
        work()
    except ValueError:
        dist.barrier()
        raise


def in_finally():
    try:
        work()
    finally:
        dist.destroy_process_group()
        if KIND == "slow finally, busy":
            spin(ALONE)
        else:
            time.sleep(ALONE * SLEEPS.get(KIND, 1.0))


def plainly():
    if work() and KIND != "returns":
        dist.destroy_process_group()
        time.sleep(RETURNS[KIND])


ENDS = {
    "slow context manager": in_context,
    "slow except": in_except,
    "slow atexit": with_atexit,
    "chained: finally: barrier": with_barrier,
    "chained: except: barrier, raise": with_barrier_in_except,
    "finally": in_finally,
    "slow finally, 0.3 s": in_finally,
    "slow finally, 3 s": in_finally,
    "slow finally, busy": in_finally,
    "slow finally, sys.exit(3)": in_finally,
}


def main():
    if KIND == "late for the start" and RANK == CULPRIT:
        load_batch()
    dist.init_process_group("gloo", timeout=TIMEOUT)
    ENDS.get(KIND, plainly)()


if __name__ == "__main__":
    main()
