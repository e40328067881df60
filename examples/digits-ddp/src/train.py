"""
A small classifier of handwritten digits, trained with DistributedDataParallel.

Plain PyTorch: it reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT from the
environment,
as any launcher sets them, and trains alone when there is no RANK.
"""

import argparse
import csv
import gc
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    return parser.parse_args()


def join_group() -> torch.device:
    """Join the process group of all ranks; return the device that this rank trains on."""
    # NCCL wants a GPU for each rank. Where a node has fewer than ranks, all of them train on the
    # CPU.
    enough_gpus = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    use_cuda = torch.cuda.is_available() and enough_gpus
    backend = "nccl" if use_cuda else "gloo"
    device = torch.device("cpu")
    if use_cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    return device


def load_digits(path: Path, device: torch.device) -> tuple[TensorDataset, TensorDataset]:
    """The images as training and test set; the split is the same on every rank and in every run."""
    with path.open(newline="") as file:
        table = torch.tensor([[int(field) for field in row] for row in csv.reader(file)])
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))
    table = table[order].to(device)
    pixels, labels = table[:, :64].float() / 16, table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return (
        TensorDataset(pixels[test_count:], labels[test_count:]),
        TensorDataset(pixels[:test_count], labels[:test_count]),
    )


def build_network() -> nn.Sequential:
    """Two small convolutions over the 8x8 image and one linear layer."""
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


def train_epoch(
    model: nn.Module, batches: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device
) -> float:
    """Train on this rank's share once; return the mean loss over all ranks."""
    total = torch.zeros(2, device=device)
    for pixels, labels in batches:
        loss = cross_entropy(model(pixels), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(labels), len(labels)], device=device)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def test_accuracy(model: nn.Module, test_set: TensorDataset) -> float:
    """The share of test images named right; each rank looks at every WORLD_SIZE-th image."""
    pixels, labels = (tensor[dist.get_rank() :: dist.get_world_size()] for tensor in test_set.tensors)
    right = (model(pixels).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(test_set)


def find_logger() -> Callable[..., object]:
    """A function that logs a metric to the job's run: MLflow's, else Drumline's; elsewhere it does nothing."""
    try:
        from mlflow import log_metric
    except ImportError:
        try:
            from drumline.v1 import Run
        except ImportError:
            return lambda *_, **__: None
        return Run.get_context().log
    return log_metric


def main() -> None:
    arguments = parse_arguments()
    device = join_group()
    torch.manual_seed(0)
    is_first = dist.get_rank() == 0
    training_set, test_set = load_digits(arguments.data, device)
    sampler = DistributedSampler(training_set, seed=0)
    batches = DataLoader(training_set, batch_size=arguments.batch_size, sampler=sampler)
    network = build_network().to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)

    log = find_logger() if is_first and "MLFLOW_RUN_ID" in os.environ else None
    curve = []
    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, batches, optimizer, device)
        accuracy = test_accuracy(network, test_set)
        curve.append((epoch, f"{loss:.4f}", f"{accuracy:.4f}"))
        if is_first:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)
        if log:
            log("loss", loss, step=epoch)
            log("test_accuracy", accuracy, step=epoch)

    if is_first:
        outputs = Path("outputs")
        outputs.mkdir(exist_ok=True)
        torch.save(network.state_dict(), outputs / "model.pt")
        with (outputs / "curve.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("epoch", "loss", "test_accuracy"), *curve])
        world_size = dist.get_world_size()
        ranks = f"{world_size} ranks" if world_size > 1 else "1 rank"
        print(f"test accuracy {accuracy:.4f} ({ranks})", flush=True)
    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del model, optimizer
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
