"""
A small network learns MNIST, or pictures in its format, on several workers with MultiWorkerMirroredStrategy.

It finds the other workers in TF_CONFIG. It trains with `Model.fit`, which Keras 3 does not do under this strategy:
with TensorFlow 2.16 and newer it wants `tf_keras`, and TF_USE_LEGACY_KERAS=1 in the environment.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

# Before TensorFlow is imported: it would tell of every kernel that it optimizes for.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import mnist
import numpy as np
import tensorflow as tf


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--model-dir", default="outputs/keras-model")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps-per-epoch", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="pictures per worker and step")
    return parser.parse_args()


def scaled(pictures: np.ndarray) -> np.ndarray:
    """Bytes as numbers up to 1."""
    return (pictures / 255).astype("float32")


def batches_of(pictures: mnist.Pictures, batch_size: int) -> tf.data.Dataset:
    """In the same order on every worker, each of which takes its own share."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.from_tensor_slices((scaled(pictures[0]), pictures[1]))
    shuffled = dataset.shuffle(len(pictures[0]), seed=0).repeat()
    return shuffled.batch(batch_size, drop_remainder=True).with_options(options)


def build_model() -> tf.keras.Model:
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28)),
            tf.keras.layers.Reshape((28, 28, 1)),
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=tf.keras.optimizers.Adam(0.005), metrics=["accuracy"])
    return model


def is_chief(task: dict[str, object]) -> bool:
    """Where no task is called the chief, worker 0 is it."""
    return task["type"] == "chief" or (task["type"], task["index"]) == ("worker", 0)


def save(model: tf.keras.Model, model_dir: str, *, chief: bool) -> None:
    """All workers have to save, and one of them to the place that counts."""
    if chief:
        model.save(model_dir)
        return
    elsewhere = tempfile.mkdtemp()
    model.save(os.path.join(elsewhere, "model"))
    shutil.rmtree(elsewhere)


def main() -> None:
    arguments = parse_arguments()
    tf_config = json.loads(os.environ["TF_CONFIG"])
    worker_count = len(tf_config["cluster"]["worker"])
    chief = is_chief(tf_config["task"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(0)
    training_set, test_set = mnist.load_data(arguments.data)
    with strategy.scope():
        model = build_model()
    model.fit(
        batches_of(training_set, arguments.batch_size * worker_count),
        epochs=arguments.epochs,
        steps_per_epoch=arguments.steps_per_epoch,
        verbose=2 if chief else 0,
    )
    save(model, arguments.model_dir, chief=chief)
    scores = model(tf.constant(scaled(test_set[0])), training=False)
    accuracy = float(np.mean(np.argmax(scores, axis=1) == test_set[1]))
    if chief:
        print(f"test accuracy {accuracy:.4f} ({worker_count} workers)", flush=True)


if __name__ == "__main__":
    main()
