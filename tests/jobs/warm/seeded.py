"""What PyTorch draws when nobody has given it a seed: each process something else."""

import torch

print(torch.initial_seed(), torch.rand(1).item(), torch.get_num_threads())
