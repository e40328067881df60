"""
A small classifier of handwritten digits that may be interrupted at any step, and ends as if it never had been.

Plain PyTorch. When a rank is sent SIGTERM, all ranks agree on the step after which they stop; rank 0 saves network,
optimizer and step, and the script ends. Started again, it loads the checkpoint and goes on with the next step.
"""

import argparse
import csv
import gc
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

TEST_SHARE = 0.25
SPLIT_SEED = 7
CHECKPOINT = Path("outputs", "checkpoint.pt")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds after each step, to have time to interrupt"
    )
    return parser.parse_args()


class Notice:
    """Whether this rank was told to end."""

    def __init__(self) -> None:
        self.came = False
        signal.signal(signal.SIGTERM, self._come)

    def _come(self, *_: object) -> None:
        self.came = True

    def came_to_any(self) -> bool:
        """The same answer on every rank: the signal does not reach all of them at the same step."""
        came = torch.tensor(int(self.came))
        dist.all_reduce(came, dist.ReduceOp.MAX)
        return bool(came)

    @staticmethod
    def seconds_left() -> float | None:
        """Until this process is killed; None where nobody says so."""
        try:
            return float(Path(os.environ["DRUMLINE_DEADLINE"]).read_text()) - time.time()
        except (KeyError, FileNotFoundError):
            return None


def load_digits(path: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pixels and labels to train on, and to test with; the split is the same on every rank and in every run."""
    with path.open(newline="") as file:
        table = torch.tensor([[int(field) for field in row] for row in csv.reader(file)])
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))]
    pixels, labels = table[:, :64].float() / 16, table[:, 64]
    count = round(TEST_SHARE * len(table))
    return pixels[count:], labels[count:], pixels[:count], labels[:count]


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


def batch_of(step: int, image_count: int, batch_size: int) -> torch.Tensor:
    """The numbers of this rank's images at that step: they follow from the step alone, so nothing of it is saved."""
    per_step = batch_size * dist.get_world_size()
    epoch, place = divmod(step, image_count // per_step)
    order = torch.randperm(image_count, generator=torch.Generator().manual_seed(epoch))
    first = place * per_step + dist.get_rank() * batch_size
    return order[first : first + batch_size]


def save(network: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """All or nothing: whoever is killed here leaves the checkpoint before. Blocks every rank until it is there."""
    if dist.get_rank() == 0:
        CHECKPOINT.parent.mkdir(exist_ok=True)
        partial = CHECKPOINT.with_suffix(".partial")
        state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, partial)
        partial.replace(CHECKPOINT)
    dist.barrier()


def load(network: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step to go on with."""
    if not CHECKPOINT.exists():
        return 0
    state = torch.load(CHECKPOINT, weights_only=True)
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


@torch.no_grad()
def measure(network: nn.Module, pixels: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Mean loss and accuracy; each rank looks at every WORLD_SIZE-th image."""
    pixels, labels = (one[dist.get_rank() :: dist.get_world_size()] for one in (pixels, labels))
    guessed = network(pixels)
    loss = cross_entropy(guessed, labels, reduction="sum")
    sums = torch.stack([loss, (guessed.argmax(dim=1) == labels).sum(), torch.tensor(len(labels))]).double()
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def main() -> None:
    arguments = parse_arguments()
    notice = Notice()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    is_first = dist.get_rank() == 0
    pixels, labels, test_pixels, test_labels = load_digits(arguments.data)
    network = build_network()
    # Otherwise DDP regroups the gradients after the first step, so after each restart, and their sums are rounded
    # differently for one step: enough to change the eighth digit of the loss.
    model = DistributedDataParallel(network, find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    begin = load(network, optimizer)
    if begin and is_first:
        print(f"goes on at step {begin}", flush=True)

    per_epoch = len(labels) // (arguments.batch_size * dist.get_world_size())
    last = arguments.epochs * per_epoch
    interrupted = False
    for step in range(begin, last):
        chosen = batch_of(step, len(labels), arguments.batch_size)
        loss = cross_entropy(model(pixels[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(arguments.pause)
        interrupted = notice.came_to_any()
        if interrupted or (step + 1) % arguments.save_every == 0 or step + 1 == last:
            save(network, optimizer, step + 1)
        if interrupted:
            break
        if is_first and (step + 1) % per_epoch == 0:
            print(f"epoch {(step + 1) // per_epoch:2d}  loss {loss.item():.4f}", flush=True)

    if interrupted and is_first:
        left = notice.seconds_left()
        in_time = "" if left is None else f", {left:.1f} s before the deadline"
        print(f"saved after step {step + 1} of {last}{in_time}", flush=True)
    if not interrupted:
        loss, _ = measure(network, pixels, labels)
        _, accuracy = measure(network, test_pixels, test_labels)
        if is_first:
            ranks = dist.get_world_size()
            print(f"final loss {loss:.9f}, test accuracy {accuracy:.4f} ({ranks} ranks)", flush=True)
    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del model, optimizer
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
