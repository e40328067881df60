"""
A small network learns handwritten digits with DistributedDataParallel; all of its place it reads from the environment.
"""

import argparse
import gc
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

TEST_SHARE = 0.25
SPLIT_SEED = 7
BATCH_SIZE = 32
"""Images per rank and step."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip())
    parser.add_argument(
        "--digits", type=Path, required=True, help="holds digits.csv: 64 pixels and the label"
    )
    parser.add_argument("--model", type=Path, required=True, help="the folder to write to")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    return parser.parse_args()


def device_of_rank() -> torch.device:
    """A GPU of its own where the node has one for each of its ranks, which NCCL wants; else the CPU."""
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return torch.device("cpu")


def main() -> None:
    arguments = parse_arguments()
    device = device_of_rank()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", init_method="env://")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    table = np.loadtxt(arguments.digits / "digits.csv", delimiter=",", dtype=np.int64)
    table = torch.from_numpy(np.random.default_rng(SPLIT_SEED).permutation(table)).to(device)
    pixels, labels = table[:, :64].float() / 16, table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.learning_rate)
    # As many for each rank.
    share = test_count + rank + world_size * torch.arange((len(table) - test_count) // world_size)

    for epoch in range(1, arguments.epochs + 1):
        order = share[torch.randperm(len(share))]
        for batch in order.split(BATCH_SIZE):
            loss = cross_entropy(model(pixels[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}, loss {loss.item():.4f}", flush=True)

    if rank == 0:
        with torch.no_grad():
            right = network(pixels[:test_count]).argmax(dim=1) == labels[:test_count]
        torch.save(network.state_dict(), arguments.model / "model.pt")
        print(f"test accuracy {right.float().mean().item():.4f} ({world_size} ranks)", flush=True)
    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del model, optimizer
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
