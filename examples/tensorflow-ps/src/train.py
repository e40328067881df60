"""
A small classifier of handwritten digits, trained with ParameterServerStrategy.

Plain TensorFlow: every task reads TF_CONFIG from the environment, as any launcher sets it. The
workers and the parameter servers wait for what the chief sends them, and never end by themselves.
"""

import argparse
import csv
import os
from pathlib import Path

# Before TensorFlow is imported: it would tell of every kernel that it optimizes for.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

TEST_SHARE = 0.25
SPLIT_SEED = 7
HIDDEN = 64
INTER_OP_THREADS = 4

Images = tuple[np.ndarray, np.ndarray]
Resolver = tf.distribute.cluster_resolver.ClusterResolver


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step of a worker")
    return parser.parse_args()


def serve(resolver: Resolver) -> None:
    """Do what the chief says, until somebody ends this process."""
    # On one core TensorFlow would have one thread for operations, and that waits for a server for ever.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=INTER_OP_THREADS)
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
        config=config,
    )
    print(f"{resolver.task_type} {resolver.task_id} serves", flush=True)
    server.join()


def load_digits(path: Path) -> tuple[Images, Images]:
    """The images as training and test set; the split is the same in every run."""
    with path.open(newline="") as file:
        table = np.array([[int(field) for field in row] for row in csv.reader(file)])
    table = np.random.default_rng(SPLIT_SEED).permutation(table)
    pixels, labels = (table[:, :64] / 16).astype("float32"), table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return (pixels[test_count:], labels[test_count:]), (pixels[:test_count], labels[:test_count])


class Network(tf.Module):
    """One hidden layer. Made in the scope of the strategy, its variables are on the parameter servers."""

    def __init__(self) -> None:
        super().__init__()
        inner = tf.random.stateless_normal((64, HIDDEN), seed=(0, 1), stddev=(2 / 64) ** 0.5)
        outer = tf.random.stateless_normal((HIDDEN, 10), seed=(0, 2), stddev=(1 / HIDDEN) ** 0.5)
        self.inner, self.inner_bias = tf.Variable(inner), tf.Variable(tf.zeros(HIDDEN))
        self.outer, self.outer_bias = tf.Variable(outer), tf.Variable(tf.zeros(10))
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False)

    def __call__(self, pixels: tf.Tensor) -> tf.Tensor:
        hidden = tf.nn.relu(tf.matmul(pixels, self.inner) + self.inner_bias)
        return tf.matmul(hidden, self.outer) + self.outer_bias


class Training:
    """The chief's side: it sends steps to whichever worker is free, and does not wait for each."""

    def __init__(self, resolver: Resolver, images: Images, arguments: argparse.Namespace) -> None:
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        self.images = images
        self.arguments = arguments
        with self.strategy.scope():
            self.network = Network()
        self.batches = iter(self.coordinator.create_per_worker_dataset(self._dataset))

    def _dataset(self) -> tf.data.Dataset:
        """Of one worker: all images, in an order of its own."""
        dataset = tf.data.Dataset.from_tensor_slices(self.images)
        return dataset.shuffle(len(self.images[0])).repeat().batch(self.arguments.batch_size)

    @tf.function
    def _step(self, batches: tf.data.Iterator) -> tf.Tensor:
        pixels, labels = next(batches)
        weights = self.network.trainable_variables
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self.network(pixels))
            loss = tf.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(self.arguments.lr * gradient)
        self.network.steps.assign_add(1)
        return loss

    def train_epoch(self) -> float:
        """Train on as many images as there are; return the mean loss."""
        count = len(self.images[0]) // self.arguments.batch_size
        losses = [self.coordinator.schedule(self._step, args=(self.batches,)) for _ in range(count)]
        self.coordinator.join()
        return float(np.mean(self.coordinator.fetch(losses)))

    def test_accuracy(self, test_set: Images) -> float:
        """The share of test images named right."""
        pixels, labels = test_set
        return float(np.mean(np.argmax(self.network(tf.constant(pixels)), axis=1) == labels))


def main() -> None:
    arguments = parse_arguments()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        serve(resolver)
    training_set, test_set = load_digits(arguments.data)
    training = Training(resolver, training_set, arguments)

    curve = []
    for epoch in range(1, arguments.epochs + 1):
        loss = training.train_epoch()
        accuracy = training.test_accuracy(test_set)
        curve.append((epoch, f"{loss:.4f}", f"{accuracy:.4f}"))
        print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)

    save(training.network, curve)
    worker_count = len(resolver.cluster_spec().as_dict()["worker"])
    workers = f"{worker_count} workers" if worker_count > 1 else "1 worker"
    print(f"{training.network.steps.numpy()} steps", flush=True)
    print(f"test accuracy {accuracy:.4f} ({workers})", flush=True)


def save(network: Network, curve: list[tuple[int, str, str]]) -> None:
    outputs = Path("outputs")
    outputs.mkdir(exist_ok=True)
    np.savez(outputs / "model.npz", *(weight.numpy() for weight in network.trainable_variables))
    with (outputs / "curve.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("epoch", "loss", "test_accuracy"), *curve])


if __name__ == "__main__":
    main()
