"""
A small classifier of handwritten digits, trained with DeepSpeed's ZeRO.

`deepspeed.init_distributed` finds RANK, WORLD_SIZE and MASTER_ADDR, whoever set them: a launcher for each process,
an MPI, or DeepSpeed's own.
"""

import argparse
import csv
import gc
import os
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--local_rank", type=int, default=0, help="given by DeepSpeed's launcher; not used here"
    )
    return deepspeed.add_config_arguments(parser).parse_args()


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
def test_accuracy(engine: deepspeed.DeepSpeedEngine, test_set: TensorDataset) -> float:
    """The share of test images named right; each rank looks at every WORLD_SIZE-th image."""
    pixels, labels = (tensor[dist.get_rank() :: dist.get_world_size()] for tensor in test_set.tensors)
    pixels, labels = pixels.to(engine.device), labels.to(engine.device)
    right = (engine(pixels).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    return right.item() / len(test_set)


def main() -> None:
    arguments = parse_arguments()
    deepspeed.init_distributed()
    torch.manual_seed(0)
    is_first = dist.get_rank() == 0
    training_set, test_set = load_digits(arguments.data)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    # A fused optimizer would be compiled first; this one is there.
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    engine, optimizer, _, _ = deepspeed.initialize(
        model=network,
        optimizer=optimizer,
        config=arguments.deepspeed_config or str(Path(__file__).with_name("ds_config.json")),
    )
    sampler = DistributedSampler(training_set, seed=0)
    batches = DataLoader(training_set, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler)

    for epoch in range(1, arguments.epochs + 1):
        sampler.set_epoch(epoch)
        for pixels, labels in batches:
            loss = cross_entropy(engine(pixels.to(engine.device)), labels.to(engine.device))
            engine.backward(loss)
            engine.step()
        accuracy = test_accuracy(engine, test_set)
        if is_first:
            print(f"epoch {epoch:2d}  loss {loss.item():.4f}  test accuracy {accuracy:.4f}", flush=True)

    stage = engine.zero_optimization_stage()
    engine.save_checkpoint("outputs/checkpoint")
    if is_first:
        print(f"test accuracy {accuracy:.4f} ({dist.get_world_size()} ranks, ZeRO stage {stage})", flush=True)
    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del engine, optimizer, network
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
    main()
