"""
Train a linear classifier of handwritten digits on several ranks, from a folder of csv files, into a folder.

Plain PyTorch: it knows nothing of where the folders really are.
"""

import argparse
import csv
import gc
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def load(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels as shares of full ink, and labels, of every csv file in the folder."""
    rows: list[list[int]] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            rows += [[int(field) for field in row] for row in csv.reader(file)]
    table = torch.tensor(rows)
    return table[:, :64].float() / 16, table[:, 64]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    pixels, labels = load(arguments.data)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mine = slice(rank, len(labels) // ranks * ranks, ranks)
    model = DistributedDataParallel(nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(arguments.epochs):
        loss = cross_entropy(model(pixels[mine]), labels[mine])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), arguments.model / "net.pt")
        print(f"trained on {len(labels)} images with {ranks} ranks, loss {loss.item():.4f}")

    del model, optimizer
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
