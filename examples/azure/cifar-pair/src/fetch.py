"""
Write an archive with the layout of CIFAR-10's binary version; it takes the place of a download.

The pictures are this repository's digits, four times as wide and high, in grey. In the files each of them is a byte for
the label and 3072 for the pixels: red, green and blue, row by row. Source: https://www.cs.toronto.edu/~kriz/cifar.html
"""

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np

FOLDER = "cifar-10-batches-bin"
TRAINING_FILES = 5
TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--digits", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--archive", type=Path, required=True, help="the .tar.gz file to write")
    return parser.parse_args()


def records(digits: Path) -> np.ndarray:
    """Shuffled, one row each, as they stand in the files."""
    table = np.loadtxt(digits, delimiter=",", dtype=np.uint8)
    table = np.random.default_rng(SPLIT_SEED).permutation(table)
    grey = np.minimum(table[:, :64] * np.uint16(16), 255).astype(np.uint8).reshape(-1, 8, 8)
    picture = grey.repeat(4, axis=1).repeat(4, axis=2).reshape(len(table), -1)
    return np.hstack([table[:, 64:], picture, picture, picture])


def main() -> None:
    arguments = parse_arguments()
    table = records(arguments.digits)
    test_count = round(TEST_SHARE * len(table))
    files = {"test_batch.bin": table[:test_count].tobytes()}
    for number, part in enumerate(np.array_split(table[test_count:], TRAINING_FILES), start=1):
        files[f"data_batch_{number}.bin"] = part.tobytes()
    files["batches.meta.txt"] = "".join(f"{digit}\n" for digit in range(10)).encode()
    with tarfile.open(arguments.archive, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{FOLDER}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    print(f"{len(table)} pictures", flush=True)


if __name__ == "__main__":
    main()
