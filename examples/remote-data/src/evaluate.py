"""How many of the digits in a folder of csv files a model names right."""

import argparse
from pathlib import Path

import torch
from torch import nn
from train import load


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    arguments = parser.parse_args()

    network = nn.Linear(64, 10)
    network.load_state_dict(torch.load(arguments.model / "net.pt", weights_only=True))
    pixels, labels = load(arguments.data)
    right = (network(pixels).argmax(dim=1) == labels).sum().item()
    print(f"accuracy {right / len(labels):.4f} on {len(labels)} images")


if __name__ == "__main__":
    main()
