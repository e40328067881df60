"""
A small classifier of handwritten digits in JAX: one program over the devices of all processes.

It reads JAX_COORDINATOR_ADDRESS (as `jax.distributed.initialize` does by itself), WORLD_SIZE and RANK, and trains
alone when there is no RANK.
"""

import argparse
import csv
import os
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TEST_SHARE = 0.25
SPLIT_SEED = 7

Weights = list[tuple[jax.Array, jax.Array]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all devices")
    return parser.parse_args()


def join() -> None:
    """Make the devices of all processes known to each."""
    if "RANK" in os.environ:
        # Otherwise JAX takes SIGTERM for a notice to save something, and goes on until it is killed.
        jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(
            num_processes=int(os.environ["WORLD_SIZE"]),
            process_id=int(os.environ["RANK"]),
        )


def load_digits(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels and labels to train on, then those to test with; the same in every process and in every run."""
    with path.open(newline="") as file:
        table = np.array([[int(field) for field in row] for row in csv.reader(file)])
    table = np.random.default_rng(SPLIT_SEED).permutation(table)
    pixels, labels = table[:, :64].astype(np.float32) / 16, table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return pixels[test_count:], labels[test_count:], pixels[:test_count], labels[:test_count]


def first_weights(sizes: tuple[int, ...]) -> Weights:
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    return [
        (jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5, jnp.zeros(outputs))
        for key, inputs, outputs in zip(keys, sizes, sizes[1:], strict=False)
    ]


def logits(weights: Weights, pixels: jax.Array) -> jax.Array:
    *hidden, (last, bias) = weights
    for matrix, shift in hidden:
        pixels = jax.nn.relu(pixels @ matrix + shift)
    return pixels @ last + bias


def loss_of(weights: Weights, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    chances = jax.nn.log_softmax(logits(weights, pixels))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], axis=1))


@partial(jax.jit, static_argnames="lr")
def step(weights: Weights, pixels: jax.Array, labels: jax.Array, lr: float) -> tuple[Weights, jax.Array]:
    """Images are spread over the devices, weights are whole on each: XLA adds up the gradients."""
    loss, slopes = jax.value_and_grad(loss_of)(weights, pixels, labels)
    return jax.tree.map(lambda weight, slope: weight - lr * slope, weights, slopes), loss


@jax.jit
def right_of(weights: Weights, pixels: jax.Array, labels: jax.Array) -> jax.Array:
    return jnp.sum(logits(weights, pixels).argmax(axis=1) == labels)


def main() -> None:
    arguments = parse_arguments()
    join()
    is_first = jax.process_index() == 0
    pixels, labels, test_pixels, test_labels = load_digits(arguments.data)
    mesh = Mesh(np.array(jax.devices()), ("images",))
    spread = NamedSharding(mesh, PartitionSpec("images"))
    whole = NamedSharding(mesh, PartitionSpec())

    def on_devices(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
        """Every process has all of the array, and gives its devices their parts."""
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    weights = jax.tree.map(lambda weight: on_devices(np.asarray(weight), whole), first_weights((64, 128, 10)))
    tests = on_devices(test_pixels, whole), on_devices(test_labels, whole)
    shuffles = np.random.default_rng(0)

    for epoch in range(1, arguments.epochs + 1):
        order = shuffles.permutation(len(labels))
        for first in range(0, len(order) - arguments.batch_size + 1, arguments.batch_size):
            batch = order[first : first + arguments.batch_size]
            images = on_devices(pixels[batch], spread), on_devices(labels[batch], spread)
            weights, loss = step(weights, *images, lr=arguments.lr)
        accuracy = int(right_of(weights, *tests)) / len(test_labels)
        if is_first:
            print(f"epoch {epoch:2d}  loss {float(loss):.4f}  test accuracy {accuracy:.4f}", flush=True)

    if is_first:
        outputs = Path("outputs")
        outputs.mkdir(exist_ok=True)
        named = {
            f"{name}_{layer}": part
            for layer, pair in enumerate(weights)
            for name, part in zip("wb", pair, strict=True)
        }
        np.savez(outputs / "model.npz", **{name: np.asarray(part) for name, part in named.items()})
        print(f"test accuracy {accuracy:.4f} ({jax.process_count()} ranks)", flush=True)
    if "RANK" in os.environ:
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()
