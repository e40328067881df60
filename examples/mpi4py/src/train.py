"""
A classifier of handwritten digits in NumPy: each rank takes the gradient of its share, MPI adds them up.

It calls MPI itself, by mpi4py, and knows nothing of RANK or WORLD_SIZE. Run it by `python -m mpi4py`, so that an
exception on one rank ends all of them.
"""

import argparse
from pathlib import Path

import numpy as np
from mpi4py import MPI

TEST_SHARE = 0.25
SPLIT_SEED = 7
HIDDEN = 64

Weights = list[np.ndarray]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.5)
    return parser.parse_args()


def load_digits(path: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Pixels, labels and how many of them, at the front, are for the test; the same on every rank."""
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)
    table = table[np.random.default_rng(SPLIT_SEED).permutation(len(table))]
    return table[:, :64] / 16, table[:, 64], round(TEST_SHARE * len(table))


def forward(weights: Weights, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer, and the probability of each digit."""
    hidden = np.maximum(pixels @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradient(weights: Weights, pixels: np.ndarray, labels: np.ndarray) -> Weights:
    """Of the summed cross-entropy."""
    hidden, probabilities = forward(weights, pixels)
    error = probabilities - np.eye(10)[labels]
    behind = (error @ weights[2].T) * (hidden > 0)
    return [pixels.T @ behind, behind.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def main() -> None:
    arguments = parse_arguments()
    world = MPI.COMM_WORLD
    pixels, labels, test_count = load_digits(arguments.data)
    random = np.random.default_rng(0)
    weights = [
        random.normal(0, 0.1, (64, HIDDEN)),
        np.zeros(HIDDEN),
        random.normal(0, 0.1, (HIDDEN, 10)),
        np.zeros(10),
    ]
    train_count = len(labels) - test_count
    share = np.arange(test_count + world.rank, len(labels), world.size)
    for epoch in range(1, arguments.epochs + 1):
        for batch in np.array_split(share, 8):
            own = np.concatenate([part.ravel() for part in gradient(weights, pixels[batch], labels[batch])])
            total = np.empty_like(own)
            world.Allreduce(own, total)
            total *= arguments.lr * 8 / train_count
            start = 0
            for weight in weights:
                np.subtract(weight, total[start : start + weight.size].reshape(weight.shape), out=weight)
                start += weight.size
        tested = np.arange(world.rank, test_count, world.size)
        right = int((forward(weights, pixels[tested])[1].argmax(axis=1) == labels[tested]).sum())
        accuracy = world.allreduce(right) / test_count
        if world.rank == 0 and epoch % 10 == 0:
            print(f"epoch {epoch:3d}  test accuracy {accuracy:.4f}", flush=True)

    if world.rank == 0:
        outputs = Path("outputs")
        outputs.mkdir(exist_ok=True)
        np.savez(outputs / "model.npz", *weights)
        print(MPI.Get_library_version().split(",")[0], flush=True)
        print(f"test accuracy {accuracy:.4f} ({world.size} ranks)", flush=True)


if __name__ == "__main__":
    main()
