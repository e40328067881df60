"""
A training like that of examples/digits-ddp whose steps take about as long as asked for, on random images. Rank 0 writes
what it measured as JSON: seconds and CPU seconds of each step, and the memory of the process in bytes.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WARM_STEPS = 30


def build_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def memory_bytes() -> int:
    """What this process has for itself alone: neither libraries nor files that others have mapped too."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * sum(
        int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_Dirty")
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--sleep-ms", type=float, required=True, help="of each step, as if a device computed")
    parser.add_argument("--result", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    given = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    count = (WARM_STEPS + given.steps) * given.batch_size
    images = TensorDataset(torch.rand(count, 64), torch.randint(10, (count,)))
    model = DistributedDataParallel(build_network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    seconds, cpu_s = [], []
    end, cpu_end = time.perf_counter(), time.process_time()
    for pixels, labels in DataLoader(images, batch_size=given.batch_size):
        time.sleep(given.sleep_ms / 1000)
        loss = cross_entropy(model(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        now, cpu_now = time.perf_counter(), time.process_time()
        seconds.append(now - end)
        cpu_s.append(cpu_now - cpu_end)
        end, cpu_end = now, cpu_now
    if dist.get_rank() == 0:
        result = {
            "step_s": seconds[WARM_STEPS:],
            "cpu_s": cpu_s[WARM_STEPS:],
            "memory_bytes": memory_bytes(),
            "is_followed": os.path.isabs(os.environ.get("DRUMLINE_STEPS", "")),
        }
        given.result.write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
