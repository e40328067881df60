"""
A small network learns CIFAR-10, or pictures in its format, with DistributedDataParallel.

It reads RANK, WORLD_SIZE and LOCAL_RANK, which the launcher sets, and trains alone where WORLD_SIZE is 1.
"""

import argparse
import gc
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d, relu
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

FOLDER = "cifar-10-batches-bin"
RECORD = 1 + 3 * 32 * 32
"""Bytes: the label, then red, green and blue."""


class Net(nn.Module):
    """Two convolutions and three linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, kernel_size=5)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = max_pool2d(relu(self.conv1(pictures)), 2)
        hidden = max_pool2d(relu(self.conv2(hidden)), 2).flatten(1)
        return self.fc3(relu(self.fc2(relu(self.fc1(hidden)))))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help=f"holds {FOLDER}")
    parser.add_argument("--model-dir", type=Path, default=Path("outputs"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=4, help="pictures per rank and step")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    return parser.parse_args()


def read_pictures(folder: Path, pattern: str) -> TensorDataset:
    """Pixels between -1 and 1."""
    paths = sorted((folder / FOLDER).glob(pattern))
    table = np.concatenate([np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD) for path in paths])
    pixels = torch.from_numpy(table[:, 1:]).reshape(-1, 3, 32, 32).float() / 127.5 - 1
    return TensorDataset(pixels, torch.from_numpy(table[:, 0]).long())


def train(
    model: nn.Module, batches: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """Once over this rank's share; its mean loss."""
    model.train()
    total = 0.0
    for pictures, labels in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(pictures.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


@torch.no_grad()
def evaluate(model: nn.Module, pictures: Dataset, device: torch.device) -> float:
    """The share that is named right."""
    model.eval()
    right = 0
    for inputs, labels in DataLoader(pictures, batch_size=256):
        right += (model(inputs.to(device)).argmax(dim=1) == labels.to(device)).sum().item()
    return right / len(pictures)


def main() -> None:
    arguments = parse_arguments()
    world_size = int(os.environ["WORLD_SIZE"])
    rank = int(os.environ["RANK"])
    local_rank = int(os.environ["LOCAL_RANK"])
    distributed = world_size > 1
    # NCCL wants a GPU for each rank of the node.
    use_cuda = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if distributed:
        dist.init_process_group("nccl" if use_cuda else "gloo")

    torch.manual_seed(0)
    training_set = read_pictures(arguments.data_dir, "data_batch_*.bin")
    sampler = DistributedSampler(training_set, num_replicas=world_size, rank=rank)
    batches = DataLoader(training_set, batch_size=arguments.batch_size, sampler=sampler)
    network = Net().to(device)
    model = DistributedDataParallel(network) if distributed else network
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.learning_rate, momentum=arguments.momentum)

    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train(model, batches, optimizer, device)
        print(f"rank {rank}: epoch {epoch}, {len(batches)} steps, loss {loss:.4f}", flush=True)

    if rank == 0:
        accuracy = evaluate(network, read_pictures(arguments.data_dir, "test_batch.bin"), device)
        arguments.model_dir.mkdir(parents=True, exist_ok=True)
        torch.save(network.state_dict(), arguments.model_dir / "cifar_net.pt")
        print(f"test accuracy {accuracy:.4f} ({world_size} ranks)", flush=True)
    if distributed:
        # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
        del model, optimizer
        gc.collect()
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
