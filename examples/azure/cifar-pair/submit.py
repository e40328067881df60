"""
Submit two jobs: the first fetches images and unpacks them into its output, the second trains on that output.

The script of Azure's guide to distributed GPU training (SDK v2), with images of this repository in place of a download:
https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu
"""

# For Azure the import lines are:
#
#   from azure.ai.ml import Input, MLClient, Output, command
#   from azure.ai.ml.constants import AssetTypes
#   from azure.ai.ml.entities import AmlCompute
#   from azure.core.exceptions import ResourceNotFoundError
#   from azure.identity import DefaultAzureCredential
from drumline import Input, MLClient, Output, command
from drumline.constants import AssetTypes
from drumline.entities import AmlCompute
from drumline.exceptions import ResourceNotFoundError
from drumline.identity import DefaultAzureCredential

ml_client = MLClient(
    credential=DefaultAzureCredential(),
    subscription_id="00000000-0000-0000-0000-000000000000",
    resource_group_name="examples",
    workspace_name="examples",
)

# The nodes: made on the first run, found on the next.

cluster_name = "gpu-cluster"
try:
    ml_client.compute.get(cluster_name)
except ResourceNotFoundError:
    cluster = AmlCompute(
        name=cluster_name,
        size="Standard_NC6s_v3",
        tier="low_priority",
        min_instances=0,
        max_instances=2,
        idle_time_before_scale_down=120,
    )
    ml_client.begin_create_or_update(cluster).result()

# The first job: an archive in CIFAR-10's format, unpacked into a folder of the workspace.

job = command(
    display_name="cifar-data",
    experiment_name="cifar",
    code="./src",
    command=(
        "python fetch.py --digits ${{inputs.digits}} --archive cifar-10-binary.tar.gz"
        " && tar --extract --gzip --file cifar-10-binary.tar.gz --directory ${{outputs.cifar}}"
    ),
    inputs={"digits": Input(type=AssetTypes.URI_FILE, path="../../digits-ddp/data/digits.csv")},
    outputs={"cifar": Output(type=AssetTypes.URI_FOLDER)},
    environment="AzureML-acpt-pytorch-2.2-cuda12.1@latest",
    compute=cluster_name,
)
returned_job = ml_client.jobs.create_or_update(job)
ml_client.jobs.stream(returned_job.name)
print(f"the images are in {returned_job.outputs.cifar.path}")

# The second job: two nodes with a process each, which share every step of the training.

job = command(
    display_name="cifar-training",
    experiment_name="cifar",
    code="./src",
    command=(
        "python train.py --data-dir ${{inputs.cifar}} --epochs ${{inputs.epochs}}"
        " --learning-rate ${{inputs.learning_rate}} --momentum ${{inputs.momentum}}"
    ),
    inputs={
        "epochs": 1,
        "learning_rate": 0.01,
        "momentum": 0.9,
        "cifar": Input(type=AssetTypes.URI_FOLDER, path=returned_job.outputs.cifar.path),
    },
    environment="AzureML-acpt-pytorch-2.2-cuda12.1@latest",
    compute=cluster_name,
    instance_count=2,
    distribution={"type": "PyTorch", "process_count_per_instance": 1},
)
returned_job = ml_client.jobs.create_or_update(job)
ml_client.jobs.stream(returned_job.name)
print(f"{returned_job.name}: {ml_client.jobs.get(returned_job.name).status}")
