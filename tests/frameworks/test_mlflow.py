"""MLflow's real client reads what jobs logged by the loggers that people use, with nothing of ours in their scripts."""

import json
import os
import subprocess
import sys

import pytest
from cli_jobs import write_script
from frameworks import followed, table
from frameworks.conftest import skip_without

READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
print(json.dumps([
    {
        "id": run.info.run_id, "name": run.info.run_name, "status": run.info.status, "params": run.data.params,
        "parent": run.data.tags.get("mlflow.parentRunId"),
        "metrics": {
            name: [[point.step, point.value] for point in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        },
    }
    for run in runs
]))
"""

DDP = """
import mlflow
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
mlflow.log_params({"lr": 0.1, "layers": 1, "seed": 7})
for step in range(5):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    mlflow.log_metric("loss", loss.item(), step=step)
mlflow.log_metric(f"rank_{dist.get_rank()}/done", 1.0)
dist.destroy_process_group()
"""

LIGHTNING = """
import lightning
import torch
from lightning.pytorch.loggers import MLFlowLogger


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        loss = self.layer(batch).square().mean()
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


lightning.Trainer(
    logger=MLFlowLogger(), accelerator="cpu", devices=2, strategy="ddp", max_steps=4, log_every_n_steps=1,
    accumulate_grad_batches=2, enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
).fit(Model(), torch.utils.data.DataLoader(torch.ones(32, 4), batch_size=2))
"""

TRANSFORMERS = """
import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        y = self.layer(x)
        return {"loss": (y - labels).square().mean(), "logits": y}


Trainer(
    Model(),
    TrainingArguments(
        "trained", max_steps=4, logging_steps=1, report_to="mlflow", use_cpu=True, save_strategy="no",
        gradient_accumulation_steps=2,
    ),
    train_dataset=[{"x": torch.ones(4), "labels": torch.ones(1)}] * 64,
).train()
"""


@pytest.fixture
def ran(cli, tmp_path, drumline_home):
    """What MLflow's client knows after a job of that program: its run, and the runs below it."""

    def run(text, node_count):
        write_script(
            tmp_path,
            text,
            experiment_name="tried",
            resources={"instance_count": node_count},
            environment_variables={"TRANSFORMERS_OFFLINE": "1"},
        )
        done = cli("job", "create", "-f", "job.yml", "--stream")
        assert done.rc == 0, done.out
        uri = json.loads(cli("job", "show", "job").out)["services"]["Tracking"]["endpoint"]
        said = subprocess.run(
            [sys.executable, "-c", READ, uri],
            env={**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"},
            capture_output=True,
            text=True,
            check=True,
        )
        runs = json.loads(said.stdout)
        (own,) = [run for run in runs if run["id"] == "job"]
        assert (own["name"], own["status"]) == ("job", "FINISHED")
        return own, [run for run in runs if run["id"] != "job"]

    return run


def test_what_every_rank_of_plain_ddp_logged_is_in_the_jobs_one_run(ran, cli):
    skip_without(table.BASE, "torch", "mlflow-skinny")
    own, others = ran(DDP, node_count=2)
    assert others == []
    assert own["params"] == {"lr": "0.1", "layers": "1", "seed": "7"}
    assert sorted(step for step, _ in own["metrics"]["loss"]) == sorted([*range(5)] * 4)
    assert {name for name in own["metrics"] if name != "loss"} == {f"rank_{rank}/done" for rank in range(4)}
    shown = json.loads(cli("job", "show", "job").out)["metrics"]
    assert shown["loss"] == own["metrics"]["loss"][-1][1]
    assert shown["rank_3/done"] == 1.0


def test_what_lightnings_logger_logged_is_in_one_run_below_the_jobs(ran, cli, drumline_home):
    skip_without(table.BASE, "torch", "lightning", "mlflow-skinny")
    own, others = ran(LIGHTNING, node_count=1)
    assert [(run["parent"], run["status"]) for run in others] == [("job", "FINISHED")]
    logged = others[0]["metrics"]["train_loss"]
    assert [step for step, _ in logged] == [0, 1, 2, 3]
    assert own["metrics"] == {}
    (found,) = json.loads(cli("job", "metrics", "job", "-m", "train_loss", "-o", "json").out)
    assert [[point["step"], point["value"]] for point in found["points"]] == logged
    assert json.loads(cli("job", "show", "job").out)["metrics"]["train_loss"] == logged[-1][1]
    # Two batches are one step.
    followed.check(drumline_home / "jobs" / "job", table.Followed(4, "Lightning"))


@pytest.mark.skipif(not os.environ.get("DRUMLINE_SLOW"), reason="10 s of imports; DRUMLINE_SLOW=1 runs it")
def test_what_the_trainer_of_transformers_logged_is_in_the_jobs_one_run(ran, drumline_home):
    skip_without(table.BASE, "torch", "transformers", "accelerate", "mlflow-skinny")
    own, others = ran(TRANSFORMERS, node_count=1)
    assert others == []
    assert [step for step, _ in own["metrics"]["loss"]] == [1, 2, 3, 4]
    followed.check(drumline_home / "jobs" / "job", table.Followed(4, "Transformers"))
