"""
A small vision transformer learns handwritten digits with the Trainer of Hugging Face.

The model is made from its configuration and starts untrained: nothing is downloaded.
"""

import argparse
import csv
import gc
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import (
    EvalPrediction,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step")
    return parser.parse_args()


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


def main() -> None:
    arguments = parse_arguments()
    set_seed(0)
    training_set, test_set = load_digits(arguments.data)
    training_arguments = TrainingArguments(
        output_dir="outputs",
        num_train_epochs=arguments.epochs,
        learning_rate=arguments.lr,
        per_device_train_batch_size=arguments.batch_size,
        per_device_eval_batch_size=64,
        logging_strategy="epoch",
        # Rank 0 alone, and not one rank of each node.
        log_on_each_node=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        # NCCL wants a GPU for each rank. Where a node has fewer than ranks, all of them train on the CPU.
        use_cpu=torch.cuda.device_count() < int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    )
    trainer = Trainer(
        model=build_model(),
        args=training_arguments,
        train_dataset=training_set,
        eval_dataset=test_set,
        compute_metrics=accuracy_of,
    )
    trainer.train()
    accuracy = trainer.evaluate()["eval_accuracy"]
    trainer.save_model("outputs/model")
    if trainer.is_world_process_zero():
        print(f"test accuracy {accuracy:.4f} ({training_arguments.world_size} ranks)", flush=True)

    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del trainer
    gc.collect()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
