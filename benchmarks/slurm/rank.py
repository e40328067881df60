"""
A rank that says when it began, in seconds since 1970; with the argument `allreduce`, one that then adds up its ones
with those of all others over gloo.
"""

import time

print(time.time(), flush=True)

import os  # noqa: E402  (nothing comes before the first line)
import sys  # noqa: E402

if sys.argv[1:] == ["allreduce"]:
    # srun names it its own way.
    os.environ.setdefault("RANK", os.environ.get("SLURM_PROCID", ""))

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    ones = torch.ones(1)
    dist.all_reduce(ones)
    if ones.item() != dist.get_world_size():
        sys.exit(f"the sum is {ones.item()} in a world of {dist.get_world_size()}")
    dist.destroy_process_group()
