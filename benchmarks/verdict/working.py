"""
One rank of a job that works for SECONDS and prints nothing meanwhile, though it looks as if it hung.

    SECONDS=20 python working.py CASE

Nothing in here knows what launched it; RANK and WORLD_SIZE are all that it reads (or MPI's own).
"""

import asyncio
import concurrent.futures
import hashlib
import itertools
import math
import multiprocessing
import os
import queue
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

SECONDS = float(os.environ.get("SECONDS", "20"))
RANK = int(os.environ.get("RANK", "0"))
PAUSE_S = SECONDS / 6
ROUNDS = 6
BUSY = ["timeout", str(SECONDS), "sh", "-c", "while :; do :; done"]
END = time.monotonic() + SECONDS


def goes_on():
    return time.monotonic() < END


def native(seconds=0.9):
    """One call of native code, for about so long as busy as the machine is now. It lets other threads run."""
    began = time.monotonic()
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 300_000)
    rounds = int(300_000 * seconds / (time.monotonic() - began))
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", max(rounds, 1))


def gloo():
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return dist


def child():
    subprocess.run(BUSY, check=False)


def pipeline():
    subprocess.run(" ".join([*BUSY[:2], "awk", "'BEGIN{while(1);}'", "|", "cat"]), shell=True, check=False)


def child_in_its_own_session():
    subprocess.Popen(BUSY, start_new_session=True).wait()


def daemon():
    """It is nobody's child, and only a file tells when it is done."""
    done = tempfile.mktemp()
    text = f"({' '.join(BUSY[:3])} -c 'while :; do :; done'; touch {done}) </dev/null >/dev/null 2>&1 &"
    subprocess.run(["sh", "-c", text], check=False)
    while not os.path.exists(done):
        time.sleep(0.5)
    os.unlink(done)


def many_short_children():
    while goes_on():
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"], check=False)


def child_of_rank_0():
    dist = gloo()
    if RANK == 0:
        child()
    dist.barrier()


def a_step_a_second():
    while goes_on():
        native()


def one_native_call():
    native(SECONDS)


def calls_that_hold_the_lock():
    while goes_on():
        math.factorial(100_000)


def a_backtracking_pattern():
    while goes_on():
        re.match(r"(a+)+$", "a" * 23 + "b")


def a_query():
    base = sqlite3.connect(":memory:")
    numbers = "WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM n WHERE i < 20000000) SELECT max(i) FROM n"
    while goes_on():
        base.execute(numbers).fetchall()


def a_tenth_of_each_second():
    while goes_on():
        native(0.12)
        time.sleep(0.9)


def steps_in_step():
    import torch

    dist = gloo()
    while going_on(dist):
        native(0.8)
        dist.all_reduce(torch.ones(4))


def steps_in_a_fallback():
    """The program tells of an exception by itself, and goes on while it handles that."""
    import torch

    dist = gloo()
    try:
        raise ImportError("no faster kernel")
    except ImportError:
        sys.excepthook(*sys.exc_info())
        while going_on(dist):
            time.sleep(PAUSE_S)
            dist.all_reduce(torch.ones(4))


def evaluation_on_rank_0():
    dist = gloo()
    if RANK == 0:
        while goes_on():
            native()
    dist.barrier()


def evaluation_in_python():
    dist = gloo()
    if RANK == 0:
        while goes_on():
            sum(itertools.repeat(1, 1000))
    dist.barrier()


def rank_0_waits_to_receive():
    import torch

    dist = gloo()
    if RANK == 1:
        native(SECONDS)
        dist.send(torch.ones(4), 0)
    elif RANK == 0:
        dist.recv(torch.ones(4), 1)


def large_collectives():
    import torch

    dist = gloo()
    tensor = torch.ones(8_000_000)
    while going_on(dist):
        dist.all_reduce(tensor)


def small_collectives():
    import torch

    dist = gloo()
    while going_on(dist):
        for _ in range(500):
            dist.all_reduce(torch.ones(4))


def going_on(dist):
    """All ranks have to agree."""
    import torch

    flag = torch.tensor([float(goes_on())])
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def multiplications():
    import torch

    dist = gloo()
    matrix = torch.rand(1500, 1500)
    while going_on(dist):
        for _ in range(4):
            torch.linalg.svdvals(matrix[:400, :400])


def joined_thread():
    thread = threading.Thread(target=one_native_call)
    thread.start()
    thread.join()


def thread_behind_a_queue():
    done = queue.Queue()
    threading.Thread(target=lambda: (a_step_a_second(), done.put(1))).start()
    done.get()


def thread_behind_an_event():
    done = threading.Event()
    threading.Thread(target=lambda: (one_native_call(), done.set())).start()
    done.wait()


def executor():
    with concurrent.futures.ThreadPoolExecutor() as pool:
        pool.submit(one_native_call).result()


def thread_behind_a_loop():
    async def main():
        await asyncio.to_thread(one_native_call)

    asyncio.run(main())


def pool_of_processes():
    with multiprocessing.Pool(2) as pool:
        pool.map(native, [SECONDS / 2, SECONDS / 2])


def executor_of_processes():
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        list(pool.map(native, [SECONDS / 2, SECONDS / 2]))


class Slow:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        native(SECONDS / 2)
        return index


def workers_that_decode():
    from torch.utils.data import DataLoader

    for _ in DataLoader(Slow(), num_workers=2):
        pass


def slow_writer():
    with tempfile.NamedTemporaryFile() as file:
        while goes_on():
            file.write(os.urandom(50_000))
            file.flush()
            time.sleep(0.2)


def slow_reader():
    with open("/dev/zero", "rb", buffering=0) as file:
        while goes_on():
            file.read(50_000)
            time.sleep(0.2)


def one_rank_is_done():
    if RANK:
        native(SECONDS)


def no_python():
    os.execvp("sh", ["sh", "-c", f"timeout {SECONDS} sh -c 'while :; do :; done'; exit 0"])


def launcher():
    """Start torchrun within the rank: what it starts works."""
    if RANK:
        return
    path = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "--standalone"]
    names = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    }
    subprocess.run([*path, __file__, "one_native_call"], env=names, check=True)


def now_and_then():
    """Yield until the end, with a pause in which nothing happens."""
    while goes_on():
        time.sleep(PAUSE_S)
        yield


def rounds():
    """As many pauses on all ranks."""
    for _ in range(ROUNDS):
        time.sleep(PAUSE_S)
        yield


def collectives_now_and_then():
    import torch

    dist = gloo()
    for _ in rounds():
        dist.all_reduce(torch.ones(4))


def barriers_now_and_then():
    dist = gloo()
    for _ in rounds():
        dist.barrier()


def broadcasts_now_and_then():
    import torch

    dist = gloo()
    for _ in rounds():
        dist.broadcast(torch.ones(4), 0)
    # Whoever sends is done before the other one has it.
    dist.barrier()


def objects_now_and_then():
    dist = gloo()
    for _ in rounds():
        dist.all_gather_object([None, None], RANK)


def messages_now_and_then():
    import torch

    dist = gloo()
    for _ in rounds():
        (dist.send if RANK else dist.recv)(torch.ones(4), 1 - RANK)


def collectives_of_a_group_of_one():
    import torch

    dist = gloo()
    groups = [dist.new_group([rank]) for rank in range(2)]
    for _ in rounds():
        dist.all_reduce(torch.ones(4), group=groups[RANK])


def collectives_that_are_waited_for_later():
    import torch

    dist = gloo()
    for _ in range(ROUNDS):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        time.sleep(PAUSE_S)
        work.wait()


def one_rank_is_slower():
    import torch

    dist = gloo()
    for _ in range(ROUNDS):
        if RANK:
            time.sleep(PAUSE_S)
        dist.all_reduce(torch.ones(4))


def slow_steps():
    import torch

    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in now_and_then():
        weight.grad = torch.ones(4)
        optimizer.step()


def slow_steps_in_a_thread():
    thread = threading.Thread(target=slow_steps)
    thread.start()
    thread.join()


def slow_steps_in_a_child():
    subprocess.run([sys.executable, __file__, "slow_steps"], check=True)


class SlowSamples:
    def __len__(self):
        return 2 * ROUNDS

    def __getitem__(self, index):
        import torch

        time.sleep(PAUSE_S / 2)
        return torch.ones(4)


def slow_batches():
    from torch.utils.data import DataLoader

    for _ in DataLoader(SlowSamples(), batch_size=2):
        pass


def slow_batches_of_workers():
    from torch.utils.data import DataLoader

    for _ in DataLoader(SlowSamples(), batch_size=4, num_workers=2):
        pass


def ddp_with_slow_batches():
    import torch
    from torch.utils.data import DataLoader

    gloo()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(SlowSamples(), batch_size=2):
        model(batch).sum().backward()
        optimizer.step()


def serve(protocol):
    """Rank 1 asks rank 0 now and then."""
    import http.client
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments):
            pass

    port = int(os.environ["MASTER_PORT"])
    if RANK == 0:
        with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            threading.Timer(SECONDS + PAUSE_S, server.shutdown).start()
            server.serve_forever(poll_interval=1.0)
        return
    connection = http.client.HTTPConnection("127.0.0.1", port)
    time.sleep(1)
    for _ in now_and_then():
        connection.request("GET", "/")
        connection.getresponse().read()


def a_server_now_and_then():
    serve("HTTP/1.0")


def a_server_with_one_connection():
    serve("HTTP/1.1")


def stream(rank_that_sends):
    """Move 300 kB a second from one rank to the other, which only waits for them."""
    import socket

    port = int(os.environ["MASTER_PORT"])
    if RANK == 0:
        with socket.create_server(("127.0.0.1", port)) as listening:
            peer, _ = listening.accept()
    else:
        time.sleep(1)
        peer = socket.create_connection(("127.0.0.1", port))
    with peer:
        while goes_on() and rank_that_sends == RANK:
            peer.sendall(bytes(60_000))
            time.sleep(0.2)
        while rank_that_sends != RANK and peer.recv(1 << 16):
            pass


def a_download():
    stream(0)


def an_upload():
    stream(1)


def a_line_a_second():
    with tempfile.NamedTemporaryFile("w") as file:
        while goes_on():
            print("step", file=file, flush=True)
            time.sleep(0.9)


def a_file_that_is_opened_for_each_line():
    path = tempfile.mktemp()
    while goes_on():
        with open(path, "a") as file:
            print("step", file=file)
        time.sleep(0.9)
    os.unlink(path)


def one_long_sleep():
    time.sleep(SECONDS)


def a_child_that_sleeps():
    subprocess.run(["sh", "-c", f"sleep {SECONDS}; :"], check=True)


def a_loop_that_sleeps():
    asyncio.run(asyncio.sleep(SECONDS))


def mpi_collectives_now_and_then():
    from mpi4py import MPI

    for _ in rounds():
        MPI.COMM_WORLD.Barrier()


def mpi_evaluation():
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 0:
        native(SECONDS)
    MPI.COMM_WORLD.Barrier()


def mpi_collectives():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    while world.allreduce(goes_on(), op=MPI.LAND):
        for _ in range(100):
            world.allreduce(1)


MPI_CASES = {
    function.__name__: function
    for function in (mpi_evaluation, mpi_collectives, mpi_collectives_now_and_then)
}
COUNTED = {
    function.__name__: function
    for function in (
        collectives_now_and_then,
        steps_in_a_fallback,
        barriers_now_and_then,
        broadcasts_now_and_then,
        objects_now_and_then,
        messages_now_and_then,
        collectives_of_a_group_of_one,
        collectives_that_are_waited_for_later,
        one_rank_is_slower,
        slow_steps,
        slow_steps_in_a_thread,
        slow_steps_in_a_child,
        slow_batches,
        slow_batches_of_workers,
        ddp_with_slow_batches,
        a_server_now_and_then,
        a_server_with_one_connection,
    )
}
"""Of these a count rises, so that they must not be reported either."""

CASES = {
    function.__name__: function
    for function in (
        child,
        pipeline,
        child_in_its_own_session,
        daemon,
        many_short_children,
        child_of_rank_0,
        a_step_a_second,
        one_native_call,
        calls_that_hold_the_lock,
        a_backtracking_pattern,
        a_query,
        a_tenth_of_each_second,
        steps_in_step,
        evaluation_on_rank_0,
        evaluation_in_python,
        rank_0_waits_to_receive,
        large_collectives,
        small_collectives,
        multiplications,
        joined_thread,
        thread_behind_a_queue,
        thread_behind_an_event,
        executor,
        thread_behind_a_loop,
        pool_of_processes,
        executor_of_processes,
        workers_that_decode,
        slow_writer,
        slow_reader,
        one_rank_is_done,
        no_python,
        launcher,
        a_download,
        an_upload,
        a_line_a_second,
        a_file_that_is_opened_for_each_line,
        one_long_sleep,
        a_child_that_sleeps,
        a_loop_that_sleeps,
    )
}
CASES |= COUNTED | MPI_CASES

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    CASES[sys.argv[1]]()
