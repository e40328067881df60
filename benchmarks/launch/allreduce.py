"""
A rank that joins the others over gloo, adds up their ones, and says that it ran as noop.py does.
"""

import os
import sys

# mpirun names them its own way.
for name, given in (("RANK", "OMPI_COMM_WORLD_RANK"), ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")):
    if name not in os.environ:
        os.environ[name] = os.environ[given]

import torch  # noqa: E402  (the variables come first)
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
if ones.item() != dist.get_world_size():
    sys.exit(f"the sum is {ones.item()} in a world of {dist.get_world_size()}")
os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), b".")
dist.destroy_process_group()
