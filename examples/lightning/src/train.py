"""
A small classifier of handwritten digits, trained with Lightning.

Where a launcher has started a process for each device, Lightning takes the place that it finds in the environment;
where it finds none, it starts its own processes on this node.
"""

import argparse
import csv
import gc
from pathlib import Path

import lightning
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a csv file: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--num-nodes", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1, help="of each node")
    return parser.parse_args()


class Digits(lightning.LightningDataModule):
    """The images; the split is the same on every rank and in every run."""

    def __init__(self, path: Path, batch_size: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        with path.open(newline="") as file:
            table = torch.tensor([[int(field) for field in row] for row in csv.reader(file)])
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))
        images = TensorDataset(table[order, :64].float() / 16, table[order, 64])
        self.test_count = round(TEST_SHARE * len(table))
        self.test_images = Subset(images, range(self.test_count))
        self.images = Subset(images, range(self.test_count, len(table)))

    def train_dataloader(self) -> DataLoader:
        sampler = DistributedSampler(self.images, self.trainer.world_size, self.trainer.global_rank, seed=0)
        return DataLoader(self.images, batch_size=self.batch_size, sampler=sampler)

    def val_dataloader(self) -> DataLoader:
        """Every WORLD_SIZE-th image, so that each is looked at once."""
        mine = range(self.trainer.global_rank, self.test_count, self.trainer.world_size)
        return DataLoader(Subset(self.test_images, mine), batch_size=self.test_count)


class Classifier(lightning.LightningModule):
    """Two small convolutions over the 8x8 image and one linear layer."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.network = nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 10),
        )

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        pixels, labels = batch
        return cross_entropy(self.network(pixels), labels)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        pixels, labels = batch
        right = (self.network(pixels).argmax(dim=1) == labels).float().sum()
        self.log("right", right, reduce_fx="sum", sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        accuracy = self.test_accuracy()
        self.print(f"epoch {self.current_epoch + 1:2d}  test accuracy {accuracy:.4f}", flush=True)

    def test_accuracy(self) -> float:
        """Of all ranks' test images together, after the last epoch."""
        return self.trainer.callback_metrics["right"].item() / self.trainer.datamodule.test_count

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main() -> None:
    arguments = parse_arguments()
    lightning.seed_everything(0, verbose=False)
    model = Classifier(arguments.lr)
    trainer = lightning.Trainer(
        # Where a node has fewer GPUs than devices, all of them are processes on the CPU.
        accelerator="cuda" if torch.cuda.device_count() >= arguments.devices else "cpu",
        devices=arguments.devices,
        num_nodes=arguments.num_nodes,
        strategy="ddp",
        max_epochs=arguments.epochs,
        default_root_dir="outputs",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(model, datamodule=Digits(arguments.data, arguments.batch_size))
    trainer.save_checkpoint(Path("outputs") / "model.ckpt", weights_only=False)
    environment = type(trainer.strategy.cluster_environment).__name__
    ranks = trainer.world_size
    if trainer.is_global_zero:
        print(f"test accuracy {model.test_accuracy():.4f} ({ranks} ranks, {environment})", flush=True)

    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del model, trainer
    gc.collect()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
