"""
A small classifier of handwritten digits, trained with Lightning on the nodes that MPI has started it on.

What it reaches is logged to the run, where the one who submitted it reads it.
"""

# For Azure the import line is:
#
#   from azureml.core import Run
import argparse
import gc
from pathlib import Path

import azureml_env_adapter
import lightning
import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from drumline.v1 import Run

TEST_SHARE = 0.25
SPLIT_SEED = 7


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="holds digits.csv: 64 pixels and the label")
    parser.add_argument("--epochs", type=int, default=4)
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
        table = np.random.default_rng(SPLIT_SEED).permutation(np.loadtxt(path, delimiter=",", dtype=np.int64))
        pixels, labels = torch.from_numpy(table[:, :64]).float() / 16, torch.from_numpy(table[:, 64])
        test_count = round(TEST_SHARE * len(table))
        self.images = TensorDataset(pixels[test_count:], labels[test_count:])
        self.test_images = TensorDataset(pixels[:test_count], labels[:test_count])

    def train_dataloader(self) -> DataLoader:
        sampler = DistributedSampler(self.images, self.trainer.world_size, self.trainer.global_rank, seed=0)
        return DataLoader(self.images, batch_size=self.batch_size, sampler=sampler)

    def val_dataloader(self) -> DataLoader:
        """All of them, on every rank."""
        return DataLoader(self.test_images, batch_size=len(self.test_images))


class Classifier(lightning.LightningModule):
    """Two linear layers."""

    def __init__(self, lr: float, run: Run) -> None:
        super().__init__()
        self.lr = lr
        self.run = run
        self.network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        pixels, labels = batch
        return cross_entropy(self.network(pixels), labels)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        pixels, labels = batch
        self.log("accuracy", (self.network(pixels).argmax(dim=1) == labels).float().mean(), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        if self.trainer.is_global_zero:
            self.run.log("accuracy", self.trainer.callback_metrics["accuracy"].item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main() -> None:
    arguments = parse_arguments()
    azureml_env_adapter.set_environment_variables()
    lightning.seed_everything(0, verbose=False)
    run = Run.get_context()
    trainer = lightning.Trainer(
        accelerator="cuda" if torch.cuda.device_count() >= arguments.devices else "cpu",
        devices=arguments.devices,
        num_nodes=arguments.num_nodes,
        strategy="ddp",
        # By the names that the adapter sets. Where mpi4py is installed, Lightning would ask MPI instead, and take this
        # process for one that it need not add others to.
        plugins=LightningEnvironment(),
        max_epochs=arguments.epochs,
        default_root_dir="outputs",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    model = Classifier(arguments.lr, run)
    trainer.fit(model, datamodule=Digits(arguments.data / "digits.csv", arguments.batch_size))
    accuracy = trainer.callback_metrics["accuracy"].item()
    trainer.save_checkpoint(Path("outputs") / "model.ckpt", weights_only=False)
    if trainer.is_global_zero:
        run.log("ranks", trainer.world_size)
        print(f"test accuracy {accuracy:.4f} ({trainer.world_size} ranks)", flush=True)

    # Gloo's threads may still hold tensors of the last step; a Python that ends meanwhile aborts now and then.
    del model, trainer
    gc.collect()
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
