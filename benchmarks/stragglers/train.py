"""
A small training with ``DistributedDataParallel`` of which one rank may be slow, in computing or in its input.

Computing sleeps, as an accelerator leaves the processor idle. Every step varies on every rank.
"""

import json
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

CASE = json.loads(os.environ["CASE"])
RANK = int(os.environ["RANK"])
LAYERS = 3
DRAW = random.Random(f"{CASE['seed']} {RANK}")


def wait(seconds):
    time.sleep(max(0.0, seconds * DRAW.gauss(1.0, CASE["varies"])))


class Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        wait(CASE["compute_s"][RANK] / LAYERS / 3)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        wait(CASE["compute_s"][RANK] / LAYERS * 2 / 3)
        return gradient.clone()


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = Compute.apply(layer(x))
        return x


class Data(IterableDataset):
    def __iter__(self):
        while True:
            wait(CASE["input_s"][RANK])
            yield torch.ones(2, CASE["width"])


torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(Model(CASE["width"]), bucket_cap_mb=CASE["bucket_mb"])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for batch in DataLoader(Data(), batch_size=None):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
