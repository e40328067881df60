"""
A small classifier of handwritten digits, trained with Horovod.

`horovod.torch.init()` finds its place by MPI; the script knows nothing of its launcher.
"""

import argparse
import csv
from pathlib import Path

import horovod.torch as hvd
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    return parser.parse_args()


def load_digits(path: Path) -> tuple[TensorDataset, TensorDataset]:
    """The images as training and test set; the split is the same on every rank and in every run."""
    with path.open(newline="") as file:
        table = torch.tensor([[int(field) for field in row] for row in csv.reader(file)])
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))]
    pixels, labels = table[:, :64].float() / 16, table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return (
        TensorDataset(pixels[test_count:], labels[test_count:]),
        TensorDataset(pixels[:test_count], labels[:test_count]),
    )


@torch.no_grad()
def test_accuracy(model: nn.Module, test_set: TensorDataset) -> float:
    """The share of test images named right; each rank looks at every size-th image."""
    pixels, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in test_set.tensors)
    right = (model(pixels).argmax(dim=1) == labels).sum()
    return hvd.allreduce(right, op=hvd.Sum).item() / len(test_set)


def main() -> None:
    arguments = parse_arguments()
    hvd.init()
    torch.manual_seed(hvd.rank())
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    training_set, test_set = load_digits(arguments.data)
    sampler = DistributedSampler(training_set, num_replicas=hvd.size(), rank=hvd.rank(), seed=0)
    batches = DataLoader(training_set, batch_size=32, sampler=sampler)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    # Every rank began with weights of its own; those of the first are everybody's.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        for pixels, labels in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(pixels), labels)
            loss.backward()
            optimizer.step()
        accuracy = test_accuracy(model, test_set)
        if hvd.rank() == 0:
            print(f"epoch {epoch:2d}  loss {loss.item():.4f}  test accuracy {accuracy:.4f}", flush=True)

    if hvd.rank() == 0:
        outputs = Path("outputs")
        outputs.mkdir(exist_ok=True)
        torch.save(model.state_dict(), outputs / "model.pt")
        nodes = hvd.cross_size()
        print(f"test accuracy {accuracy:.4f} ({hvd.size()} ranks on {nodes} nodes)", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
