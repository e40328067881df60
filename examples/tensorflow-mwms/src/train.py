"""
A small classifier of handwritten digits, trained with MultiWorkerMirroredStrategy.

Plain TensorFlow: the strategy reads TF_CONFIG from the environment, as any launcher sets it, and
trains alone when there is none.
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

Images = tuple[np.ndarray, np.ndarray]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--batch-size", type=int, default=32, help="images per worker and step")
    return parser.parse_args()


def load_digits(path: Path) -> tuple[Images, Images]:
    """The images as training and test set; the split is the same on every worker and in every run."""
    with path.open(newline="") as file:
        table = np.array([[int(field) for field in row] for row in csv.reader(file)])
    table = np.random.default_rng(SPLIT_SEED).permutation(table)
    pixels = (table[:, :64] / 16).astype("float32").reshape(-1, 8, 8, 1)
    labels = table[:, 64]
    test_count = round(TEST_SHARE * len(table))
    return (pixels[test_count:], labels[test_count:]), (pixels[:test_count], labels[:test_count])


def batches_of(images: Images, batch_size: int) -> tf.data.Dataset:
    """Shuffled anew in every epoch, in the same order everywhere; each worker takes its own share."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    count = len(images[0])
    dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(count, seed=0).repeat()
    return dataset.batch(batch_size, drop_remainder=True).with_options(options)


def build_model() -> tf.keras.Model:
    """Two small convolutions over the 8x8 image and one linear layer."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input((8, 8, 1)),
            tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPool2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )


class Training:
    """One step is the same on all workers: each its own images, and the gradients of all."""

    def __init__(self, strategy: tf.distribute.Strategy, learning_rate: float, batch_size: int) -> None:
        self.strategy = strategy
        self.batch_size = batch_size
        with strategy.scope():
            self.model = build_model()
            self.optimizer = tf.keras.optimizers.Adam(learning_rate)
            self.optimizer.build(self.model.trainable_variables)

    @tf.function
    def step(self, batches: tf.data.Iterator) -> tf.Tensor:
        """Train on one batch; return its mean loss over all workers."""
        losses = self.strategy.run(self._step_of_worker, args=(next(batches),))
        return self.strategy.reduce("SUM", losses, axis=None)

    def _step_of_worker(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        pixels, labels = batch
        with tf.GradientTape() as tape:
            scores = self.model(pixels, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            # Of the batch of all workers: the optimizer adds up their gradients.
            loss = tf.nn.compute_average_loss(losses, global_batch_size=self.batch_size)
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss


def test_accuracy(model: tf.keras.Model, test_set: Images) -> float:
    """The share of test images named right; every worker has the same weights, so each asks its own."""
    pixels, labels = test_set
    scores = model(tf.constant(pixels), training=False)
    return float(np.mean(np.argmax(scores, axis=1) == labels))


def main() -> None:
    arguments = parse_arguments()
    threads = int(os.environ.get("OMP_NUM_THREADS", "0"))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    is_first = resolver.task_type in (None, "chief") or (
        resolver.task_id == 0 and not resolver.cluster_spec().as_dict().get("chief")
    )
    tf.keras.utils.set_random_seed(0)
    training_set, test_set = load_digits(arguments.data)
    worker_count = strategy.num_replicas_in_sync
    batch_size = arguments.batch_size * worker_count
    training = Training(strategy, arguments.lr, batch_size)
    batches = iter(strategy.experimental_distribute_dataset(batches_of(training_set, batch_size)))

    curve = []
    for epoch in range(1, arguments.epochs + 1):
        losses = [training.step(batches) for _ in range(len(training_set[0]) // batch_size)]
        loss = float(np.mean(losses))
        accuracy = test_accuracy(training.model, test_set)
        curve.append((epoch, f"{loss:.4f}", f"{accuracy:.4f}"))
        if is_first:
            print(f"epoch {epoch:2d}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)

    if is_first:
        save(training.model, curve)
        workers = f"{worker_count} workers" if worker_count > 1 else "1 worker"
        print(f"test accuracy {accuracy:.4f} ({workers})", flush=True)


def save(model: tf.keras.Model, curve: list[tuple[int, str, str]]) -> None:
    outputs = Path("outputs")
    outputs.mkdir(exist_ok=True)
    model.save_weights(outputs / "model.weights.h5")
    with (outputs / "curve.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("epoch", "loss", "test_accuracy"), *curve])


if __name__ == "__main__":
    main()
