"""Pictures with MNIST's shape, made of this repository's digits; they take the place of a download."""

from pathlib import Path

import numpy as np

TEST_SHARE = 0.25
SPLIT_SEED = 7

Pictures = tuple[np.ndarray, np.ndarray]


def load_data(path: Path) -> tuple[Pictures, Pictures]:
    """
    As ``tf.keras.datasets.mnist.load_data``: for training and for the test, pictures of 28x28 bytes and their labels.

    path: a csv file with 64 pixels of 0 to 16 and the label in a line.
    """
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    table = np.random.default_rng(SPLIT_SEED).permutation(table)
    grey = np.minimum(table[:, :64] * np.uint16(16), 255).astype(np.uint8).reshape(-1, 8, 8)
    pictures = np.pad(grey.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
    labels = table[:, 64].astype(np.int64)
    test_count = round(TEST_SHARE * len(table))
    return (pictures[test_count:], labels[test_count:]), (pictures[:test_count], labels[:test_count])
