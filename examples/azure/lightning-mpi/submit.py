"""
Submit a Lightning script that MPI starts on two nodes, and read what it has logged.

With the objects of Azure's SDK v1: a workspace, a cluster of low priority, an environment, a ScriptRunConfig.
Source: https://learn.microsoft.com/azure/machine-learning/v1/how-to-train-distributed-gpu
"""

# For Azure the import lines are:
#
#   from azureml.core import Dataset, Environment, Experiment, ScriptRunConfig, Workspace
#   from azureml.core.compute import AmlCompute, ComputeTarget
#   from azureml.core.compute_target import ComputeTargetException
#   from azureml.core.runconfig import MpiConfiguration
from drumline.v1 import (
    AmlCompute,
    ComputeTarget,
    ComputeTargetException,
    Dataset,
    Environment,
    Experiment,
    MpiConfiguration,
    ScriptRunConfig,
    Workspace,
)

node_count = 2

# The workspace that config.json names.
ws = Workspace.from_config()

# The nodes: made on the first run, found on the next.
cluster_name = "gpu-cluster"
try:
    compute_target = ComputeTarget(workspace=ws, name=cluster_name)
except ComputeTargetException:
    compute_config = AmlCompute.provisioning_configuration(
        vm_size="Standard_NC6s_v3",
        vm_priority="lowpriority",
        min_nodes=0,
        max_nodes=node_count,
        idle_seconds_before_scaledown=300,
    )
    compute_target = ComputeTarget.create(ws, cluster_name, compute_config)
    compute_target.wait_for_completion(show_output=True)

# The images, in the workspace's own store.
digits = Dataset.File.upload_directory(
    src_dir="../../digits-ddp/data", target=(ws.get_default_datastore(), "digits"), overwrite=True
)

environment = Environment.from_conda_specification(name="lightning", file_path="environment.yml")

config = ScriptRunConfig(
    source_directory="./src",
    script="train.py",
    arguments=[
        "--data",
        digits.as_named_input("digits").as_mount(),
        "--num-nodes",
        node_count,
        "--devices",
        1,
        "--epochs",
        4,
    ],
    compute_target=compute_target,
    environment=environment,
    distributed_job_config=MpiConfiguration(process_count_per_node=1, node_count=node_count),
)

run = Experiment(ws, "lightning-mpi").submit(config)
run.wait_for_completion(show_output=True)
print(f"{run.id}: {run.get_status()}")
for name, value in sorted(run.get_metrics().items()):
    print(f"{name}: {value}")
