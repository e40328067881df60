"""Gradients of a few layers over a slow line; the computing sleeps, as an accelerator leaves the processor idle."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAYERS = 4
WIDTH = int(os.environ.get("WIDTH", "512"))
BACKWARD_S = 0.08
"""Of all layers; forward takes half of it."""


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        time.sleep(seconds / 2)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient.clone(), None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = Sleep.apply(layer(x), BACKWARD_S / LAYERS)
        return x


torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(Model(), bucket_cap_mb=1)  # a bucket for each large layer
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(4, WIDTH)
while True:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
