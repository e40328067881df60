"""
One rank of a job that hangs.

    python hanging.py CASE

Nothing in here knows what launched it; RANK and WORLD_SIZE are all that it reads (or MPI's own).
"""

import asyncio
import ctypes
import fcntl
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RANK = int(os.environ.get("RANK", "0"))


def gloo():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return dist


def train(odd):
    """Some steps, of which rank 1 misses one."""
    import torch

    dist = gloo()
    for step in range(10):
        if step == 5 and RANK == 1:
            odd()
        dist.all_reduce(torch.ones(64))


def missed_collective():
    train(lambda: time.sleep(1000))


def mismatched_collectives():
    import torch

    dist = gloo()
    dist.barrier()
    if RANK == 0:
        dist.recv(torch.ones(4), 1)
    else:
        dist.barrier()


def both_receive():
    import torch

    gloo().recv(torch.ones(4), 1 - RANK)


def late_for_the_rendezvous():
    if RANK == 1:
        time.sleep(1000)
    gloo()


def lock():
    one = threading.Lock()
    one.acquire()
    train(one.acquire)


def two_locks():
    one, two = threading.Lock(), threading.Lock()
    there = threading.Barrier(2)

    def take(first, second):
        with first:
            there.wait()
            second.acquire()

    def both():
        thread = threading.Thread(target=take, args=(one, two))
        thread.start()
        take(two, one)

    train(both)


def joined_thread():
    thread = threading.Thread(target=queue.Queue().get, daemon=True)
    thread.start()
    train(thread.join)


def event_of_a_loop():
    async def main():
        await asyncio.Event().wait()

    train(lambda: asyncio.run(main()))


def empty_queue():
    train(queue.Queue().get)


def silent_socket():
    one, two = socket.socketpair()
    train(lambda: (one.recv(1), two))


def standard_input():
    reader, writer = os.pipe()
    os.dup2(reader, 0)
    train(lambda: (sys.stdin.read(), writer))


def full_pipe():
    """The child cannot write, and its parent only waits for its end."""
    train(lambda: subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE).wait())


def file_lock():
    path = os.path.join(tempfile.gettempdir(), f"hanging-{os.getpid()}")
    first = os.open(path, os.O_CREAT | os.O_RDWR)
    second = os.open(path, os.O_RDWR)
    os.unlink(path)
    fcntl.flock(first, fcntl.LOCK_EX)
    train(lambda: fcntl.flock(second, fcntl.LOCK_EX))


def missing_file():
    """A marker that no rank writes, looked for again and again."""

    def poll():
        while not os.path.exists("/nowhere/checkpoint.done"):
            time.sleep(0.02)

    train(poll)


def stopped():
    train(lambda: os.kill(os.getpid(), signal.SIGSTOP))


def disk():
    """The kernel holds a parent of vfork as it holds one that reads from a dead file server: in state D."""

    def hold():
        libc = ctypes.CDLL(None)
        if libc.vfork() == 0:
            libc.pause()

    train(hold)


def worker_that_waits():
    class Stuck:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            time.sleep(1000)

    def load():
        from torch.utils.data import DataLoader

        next(iter(DataLoader(Stuck(), num_workers=1)))

    train(load)


def pool_whose_worker_was_killed():
    def work():
        with multiprocessing.Pool(1) as pool:
            result = pool.apply_async(time.sleep, (1000,))
            time.sleep(0.5)
            os.kill(pool._pool[0].pid, signal.SIGKILL)
            result.get()

    train(work)


def beside_a_monitor():
    """A thread that looks at the machine now and then is no progress."""

    def monitor():
        while True:
            with open("/proc/stat") as file:
                file.read()
            time.sleep(0.5)

    threading.Thread(target=monitor, daemon=True).start()
    train(lambda: time.sleep(1000))


def exception_kept_by_a_child():
    def fail():
        multiprocessing.Process(target=time.sleep, args=(1000,)).start()
        raise ValueError("bad batch")

    train(fail)


def exception_kept_by_a_thread():
    def fail():
        threading.Thread(target=time.sleep, args=(1000,)).start()
        raise ValueError("bad batch")

    train(fail)


def exception_before_a_barrier():
    def fail():
        raise ValueError("bad batch")

    import torch.distributed as dist

    try:
        train(fail)
    finally:
        dist.barrier()


def everybody_sleeps():
    time.sleep(1000)


def mpi_missed_collective():
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:
        time.sleep(1000)
    MPI.COMM_WORLD.Barrier()


def mpi_both_receive():
    from mpi4py import MPI

    MPI.COMM_WORLD.recv(source=1 - MPI.COMM_WORLD.rank)


MPI_CASES = {function.__name__: function for function in (mpi_missed_collective, mpi_both_receive)}
CASES = {
    function.__name__: function
    for function in (
        missed_collective,
        mismatched_collectives,
        both_receive,
        late_for_the_rendezvous,
        lock,
        two_locks,
        joined_thread,
        event_of_a_loop,
        empty_queue,
        silent_socket,
        standard_input,
        full_pipe,
        file_lock,
        missing_file,
        stopped,
        disk,
        worker_that_waits,
        pool_whose_worker_was_killed,
        beside_a_monitor,
        exception_kept_by_a_child,
        exception_kept_by_a_thread,
        exception_before_a_barrier,
        everybody_sleeps,
    )
} | MPI_CASES

NAMED = {
    "mismatched_collectives": r"rank 0 waits in recv .*rank 1 waits in barrier",
    "both_receive": r"ranks 0-1 wait in recv",
    "late_for_the_rendezvous": r"rank 1 is in late_for_the_rendezvous",
    "two_locks": r"rank 1 is in take ",
    "joined_thread": r"rank 1 is in (train|join|get|wait)",
    "event_of_a_loop": r"rank 1 is in run \(.*event_of_a_loop|rank 1 is in .*<lambda>",
    "full_pipe": r"rank 1 is in wait ",
    "missing_file": r"rank 1 is in poll",
    "stopped": r"rank 1 is .*stopped by a signal",
    "disk": r"rank 1 is .*hold.*waiting on the disk",
    "worker_that_waits": r"rank 1 is in .*load",
    "pool_whose_worker_was_killed": r"rank 1 is in get .*work",
    "exception_kept_by_a_child": r"rank 1 .* failed first, .*: ValueError: bad batch .*fail",
    "exception_kept_by_a_thread": r"rank 1 .* failed first, .*: ValueError: bad batch .*fail",
    "exception_before_a_barrier": r"rank 1 waits in barrier .*handling ValueError: bad batch",
    "everybody_sleeps": r"ranks 0-1 are in everybody_sleeps",
    "mpi_missed_collective": r"rank 1 is in mpi_missed_collective",
    "mpi_both_receive": r"ranks 0-1 are in mpi_both_receive",
}
"""What the report has to say; of the others, that rank 1 is in one of the functions above."""

if __name__ == "__main__":
    CASES[sys.argv[1]]()
