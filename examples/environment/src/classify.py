"""Tell handwritten digits by the nearest mean image of each class: no framework, and two packages of the conda file."""

import argparse
import csv
import sys

from tabulate import tabulate
from toolz import countby, groupby

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
arguments = parser.parse_args()

with open(arguments.data) as file:
    rows = [[int(value) for value in row] for row in csv.reader(file)]
images = [(row[:-1], row[-1]) for row in rows]
train, test = images[: len(images) * 4 // 5], images[len(images) * 4 // 5 :]

means = {
    digit: [sum(pixel) / len(members) for pixel in zip(*(image for image, _ in members), strict=True)]
    for digit, members in groupby(lambda image: image[1], train).items()
}


def nearest(image):
    return min(means, key=lambda digit: sum((a - b) ** 2 for a, b in zip(image, means[digit], strict=True)))


right = countby(lambda image: image[1], (image for image in test if nearest(image[0]) == image[1]))
seen = countby(lambda image: image[1], test)
table = [(digit, seen[digit], right.get(digit, 0)) for digit in sorted(seen)]
print(f"with {sys.prefix}")
print(tabulate(table, headers=("digit", "images", "right")))
print(f"accuracy {sum(right.values()) / len(test):.3f}")
