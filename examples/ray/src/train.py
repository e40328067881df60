"""
A small classifier of handwritten digits, trained by Ray actors that average their gradients.

Plain Ray and numpy: `ray.init()` finds the cluster by RAY_ADDRESS, as any launcher sets it, and
starts one on this machine when there is none.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import ray

TEST_SHARE = 0.25
SPLIT_SEED = 7
HIDDEN = 64

Arrays = list[np.ndarray]
Images = tuple[np.ndarray, np.ndarray]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--batch-size", type=int, default=16, help="images per worker and step")
    return parser.parse_args()


def load_digits(path: Path) -> tuple[Images, Images]:
    """The images as training and test set; the split is the same in every run."""
    with path.open(newline="") as file:
        table = np.array([[int(field) for field in row] for row in csv.reader(file)])
    table = np.random.default_rng(SPLIT_SEED).permutation(table)
    pixels, labels = table[:, :64] / 16, table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return (pixels[test_count:], labels[test_count:]), (pixels[:test_count], labels[:test_count])


def first_weights() -> Arrays:
    """One hidden layer: its weights and biases, then those of the layer after it."""
    random = np.random.default_rng(0)
    inner = random.normal(0, (2 / 64) ** 0.5, (64, HIDDEN))
    outer = random.normal(0, (1 / HIDDEN) ** 0.5, (HIDDEN, 10))
    return [inner, np.zeros(HIDDEN), outer, np.zeros(10)]


def scores_of(weights: Arrays, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the ten digits, and the hidden layer that they come from."""
    inner, inner_bias, outer, outer_bias = weights
    hidden = np.maximum(pixels @ inner + inner_bias, 0)
    return hidden @ outer + outer_bias, hidden


def gradients_of(weights: Arrays, images: Images) -> tuple[float, Arrays]:
    """The mean loss, and its gradient for every weight."""
    pixels, labels = images
    scores, hidden = scores_of(weights, pixels)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(shares[rows, labels]).mean()
    shares[rows, labels] -= 1
    shares /= len(labels)
    back = shares @ weights[2].T * (hidden > 0)
    return float(loss), [pixels.T @ back, back.sum(axis=0), hidden.T @ shares, shares.sum(axis=0)]


@ray.remote(num_cpus=1)
class Worker:
    """Holds a share of the images, and looks at some of them in each step."""

    def __init__(self, images: Images, batch_size: int, seed: int) -> None:
        self.images = images
        self.batch_size = batch_size
        self.random = np.random.default_rng(seed)

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def gradients(self, weights: Arrays) -> tuple[float, Arrays]:
        pixels, labels = self.images
        chosen = self.random.choice(len(labels), self.batch_size, replace=False)
        return gradients_of(weights, (pixels[chosen], labels[chosen]))


def test_accuracy(weights: Arrays, test_set: Images) -> float:
    """The share of test images named right."""
    pixels, labels = test_set
    return float(np.mean(scores_of(weights, pixels)[0].argmax(axis=1) == labels))


def start_workers(images: Images, count: int, batch_size: int) -> list[ray.actor.ActorHandle]:
    """Each with its share of the images, spread over the nodes; every node has one."""
    pixels, labels = images
    workers = [
        Worker.options(scheduling_strategy="SPREAD").remote(
            (pixels[index::count], labels[index::count]), batch_size, seed=index
        )
        for index in range(count)
    ]
    used = set(ray.get([worker.node.remote() for worker in workers]))
    there = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    print(f"{count} workers on {len(used)} of {len(there)} nodes", flush=True)
    assert used == set(there), "a node has no worker"
    return workers


def train_step(workers: list[ray.actor.ActorHandle], weights: Arrays, learning_rate: float) -> float:
    """One step with the mean of all workers' gradients; changes the weights, returns the mean loss."""
    shared = ray.put(weights)
    answers = ray.get([worker.gradients.remote(shared) for worker in workers])
    for index in range(len(weights)):
        weights[index] -= learning_rate * np.mean([gradients[index] for _, gradients in answers], axis=0)
    return float(np.mean([loss for loss, _ in answers]))


def main() -> None:
    arguments = parse_arguments()
    ray.init(logging_level="ERROR")
    training_set, test_set = load_digits(arguments.data)
    workers = start_workers(training_set, arguments.workers, arguments.batch_size)
    steps = len(training_set[1]) // (arguments.workers * arguments.batch_size)

    weights, curve = first_weights(), []
    for epoch in range(1, arguments.epochs + 1):
        loss = float(np.mean([train_step(workers, weights, arguments.lr) for _ in range(steps)]))
        accuracy = test_accuracy(weights, test_set)
        curve.append((epoch, f"{loss:.4f}", f"{accuracy:.4f}"))
        print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)

    outputs = Path("outputs")
    outputs.mkdir(exist_ok=True)
    np.savez(outputs / "model.npz", *weights)
    with (outputs / "curve.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("epoch", "loss", "test_accuracy"), *curve])
    said = f"{len(workers)} workers" if len(workers) > 1 else "1 worker"
    print(f"test accuracy {accuracy:.4f} ({said})", flush=True)


if __name__ == "__main__":
    main()
