"""
A rank that joins the others over gloo and adds up their ones.

Its argument is the file that it then adds a line to: its rank, its process id, and the moment of
that sum in nanoseconds of CLOCK_MONOTONIC.
While `hold` lies beside that file, it goes on to a second sum, in which rank 3 never takes part.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

# mpirun names them its own way.
rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
world_size = int(os.environ.get("WORLD_SIZE") or os.environ["OMPI_COMM_WORLD_SIZE"])

dist.init_process_group("gloo", rank=rank, world_size=world_size)
ones = torch.ones(1)
dist.all_reduce(ones)
moment_ns = time.monotonic_ns()
if ones.item() != world_size:
    sys.exit(f"the sum is {ones.item()} in a world of {world_size}")

# As /proc has it: getpid() is another number in a PID namespace.
pid = os.readlink("/proc/self")
line = f"{rank} {pid} {moment_ns}\n".encode()
os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), line)

if os.path.exists(os.path.join(os.path.dirname(sys.argv[1]), "hold")):
    if rank == 3:
        time.sleep(300)
    dist.all_reduce(ones)
dist.destroy_process_group()
