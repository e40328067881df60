"""
A loop that reads slowly and computes on a device that is played: the computing sleeps, and is slow where a batch does
not fit. The costs are those of ``--seed``.
"""

import argparse
import random
import time

import torch
import torch._dynamo  # Which the first optimizer imports; here a warm interpreter has it.
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--workers", type=int, required=True)
parser.add_argument("--seed", type=int, required=True)
given = parser.parse_args()

draw = random.Random(given.seed)
READ_S = draw.uniform(0.0015, 0.0025)
"""Of a sample."""

BEGIN_S = draw.uniform(0.03, 0.04)
"""Of a step, whatever its batch."""

COMPUTE_S = draw.uniform(0.0003, 0.0005)
"""Of a sample."""

FITS = draw.choice((16, 32, 64))
"""Samples; the computing of more is 2.5 times as slow."""


class Data(Dataset):
    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        time.sleep(READ_S)
        return torch.zeros(4)


torch.set_num_threads(1)
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(4))], lr=1e-3)
for batch in DataLoader(Data(), batch_size=given.batch, num_workers=given.workers):
    time.sleep((BEGIN_S + COMPUTE_S * len(batch)) * (2.5 if len(batch) > FITS else 1.0))
    optimizer.step()
