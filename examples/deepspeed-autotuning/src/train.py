"""
A small vision transformer learns handwritten digits with the Trainer of Hugging Face and DeepSpeed.

Its arguments are those of the Trainer: DeepSpeed's autotuner sets the batch size and the configuration there. The model
is made from its configuration and starts untrained: nothing is downloaded.
"""

import csv
import gc
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import PartialState
from torch.utils.data import Dataset
from transformers import (
    EvalPrediction,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

TEST_SHARE = 0.25
SPLIT_SEED = 7


@dataclass
class DataArguments:
    data: Path = field(metadata={"help": "a csv file: 64 pixels and the label"})


class Digits(Dataset):
    """Images of 8x8 pixels, as the model wants its arguments."""

    def __init__(self, table: torch.Tensor) -> None:
        self.pixels = table[:, :64].float().reshape(-1, 1, 8, 8) / 16
        self.labels = table[:, 64]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"pixel_values": self.pixels[index], "labels": self.labels[index]}


def load_digits(path: Path) -> tuple[Digits, Digits]:
    """The images as training and test set; the split is the same on every rank and in every run."""
    with path.open(newline="") as file:
        table = torch.tensor([[int(field) for field in row] for row in csv.reader(file)])
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))]
    test_count = round(TEST_SHARE * len(table))
    return Digits(table[test_count:]), Digits(table[:test_count])


def build_model() -> ViTForImageClassification:
    """Each image is sixteen patches of 2x2 pixels; about 70,000 weights."""
    return ViTForImageClassification(
        ViTConfig(
            image_size=8,
            patch_size=2,
            num_channels=1,
            num_labels=10,
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def accuracy_of(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


def parse_arguments() -> tuple[DataArguments, TrainingArguments]:
    """Read the arguments, and join the other ranks, which the Trainer's do as they are made."""
    words = sys.argv[1:]
    # NCCL wants a GPU for each rank. Where a node has fewer than ranks, all of them train on the CPU.
    if torch.cuda.device_count() < int(os.environ.get("LOCAL_SIZE", "1")):
        os.environ["DS_ACCELERATOR"] = os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        # With DeepSpeed the Trainer names no backend, and without a GPU each rank would train alone.
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        PartialState(backend="gloo")
        words += ["--accelerator_config", '{"use_configured_state": true}']
    data_arguments, training_arguments = HfArgumentParser(
        (DataArguments, TrainingArguments)
    ).parse_args_into_dataclasses(words)
    return data_arguments, training_arguments


def main() -> None:
    arguments, training_arguments = parse_arguments()
    set_seed(0)
    training_set, test_set = load_digits(arguments.data)
    trainer = Trainer(
        model=build_model(),
        args=training_arguments,
        train_dataset=training_set,
        eval_dataset=test_set,
        compute_metrics=accuracy_of,
    )
    trainer.train()
    accuracy = trainer.evaluate()["eval_accuracy"]
    if trainer.is_world_process_zero():
        print(f"test accuracy {accuracy:.4f} ({training_arguments.world_size} ranks)", flush=True)

    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del trainer
    gc.collect()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
