"""
A classifier of handwritten digits whose weights, gradients and optimizer are sharded over all ranks (FSDP2).

Plain PyTorch: it reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT from the environment, as any
launcher sets them.
"""

import argparse
import csv
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    return parser.parse_args()


def join_group() -> torch.device:
    """Join the process group of all ranks; return the device that this rank trains on."""
    # NCCL wants a GPU for each rank. Where a node has fewer than ranks, all of them train on the CPU.
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl")
        return device
    dist.init_process_group("gloo")
    return torch.device("cpu")


def load_digits(path: Path, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Pixels and labels to train on, then those to test with; the same on every rank and in every run."""
    with path.open(newline="") as file:
        table = torch.tensor([[int(field) for field in row] for row in csv.reader(file)])
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))
    table = table[order].to(device)
    pixels, labels = table[:, :64].float() / 16, table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return pixels[test_count:], labels[test_count:], pixels[:test_count], labels[:test_count]


def build_network() -> nn.Sequential:
    """Three layers, so that there is something to gather while something else computes."""
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def shard(model: nn.Sequential, device: torch.device) -> nn.Sequential:
    """Each rank keeps its part of every weight; a layer is whole only while it computes."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    pixels: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
) -> float:
    """Every rank takes its own images of a common shuffle; return the mean loss over all ranks."""
    ranks = dist.get_world_size()
    order = torch.randperm(len(labels), device="cpu").to(labels.device)
    losses = []
    for step in range(len(labels) // (batch_size * ranks)):
        first = (step * ranks + dist.get_rank()) * batch_size
        batch = order[first : first + batch_size]
        loss = cross_entropy(model(pixels[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    return mean.item() / ranks


@torch.no_grad()
def test_accuracy(model: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of test images named right; each rank looks at every WORLD_SIZE-th image."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    right = (model(pixels[mine]).argmax(dim=1) == labels[mine]).sum()
    dist.all_reduce(right)
    return right.item() / len(labels)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    """Each rank writes its shards; whoever reads them later may have another number of ranks."""
    weights, state = get_state_dict(model, optimizer)
    checkpoint.save({"model": weights, "optimizer": state}, checkpoint_id=folder)


def load(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> None:
    weights, state = get_state_dict(model, optimizer)
    checkpoint.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)


def main() -> None:
    arguments = parse_arguments()
    device = join_group()
    is_first = dist.get_rank() == 0
    # The same on every rank: the first weights, and the order of the images.
    torch.manual_seed(0)
    pixels, labels, test_pixels, test_labels = load_digits(arguments.data, device)
    model = shard(build_network().to(device), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    if is_first:
        held = sum(weight.to_local().numel() for weight in model.parameters())
        whole = sum(weight.numel() for weight in model.parameters())
        print(f"rank 0 keeps {held} of {whole} weights", flush=True)

    for epoch in range(1, arguments.epochs + 1):
        loss = train_epoch(model, optimizer, pixels, labels, arguments.batch_size)
        accuracy = test_accuracy(model, test_pixels, test_labels)
        if is_first:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)

    folder = Path("outputs") / "checkpoint"
    save(model, optimizer, folder)
    for weight in model.parameters():
        nn.init.zeros_(weight)
    load(model, optimizer, folder)
    # Of the weights that were read back.
    accuracy = test_accuracy(model, test_pixels, test_labels)
    if is_first:
        print(f"test accuracy {accuracy:.4f} ({dist.get_world_size()} ranks)", flush=True)

    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del model, optimizer
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
