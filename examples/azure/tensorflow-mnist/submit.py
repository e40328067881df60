"""
Submit a job of two TensorFlow workers, one on each of two nodes.

The script of Azure's guide to distributed GPU training (SDK v2), with images of this repository in place of a download:
https://learn.microsoft.com/azure/machine-learning/how-to-train-distributed-gpu
"""

# For Azure the import lines are:
#
#   from azure.ai.ml import Input, MLClient, TensorFlowDistribution, command
#   from azure.ai.ml.constants import AssetTypes
#   from azure.identity import DefaultAzureCredential
from drumline import Input, MLClient, TensorFlowDistribution, command
from drumline.constants import AssetTypes
from drumline.identity import DefaultAzureCredential

# The workspace that config.json names.
ml_client = MLClient.from_config(DefaultAzureCredential())

job = command(
    display_name="tensorflow-mnist",
    experiment_name="mnist",
    code="./src",
    command=(
        "python main.py --data ${{inputs.digits}} --epochs ${{inputs.epochs}} --model-dir ${{inputs.model_dir}}"
    ),
    inputs={
        "digits": Input(type=AssetTypes.URI_FILE, path="../../digits-ddp/data/digits.csv"),
        "epochs": 3,
        "model_dir": "outputs/keras-model",
    },
    environment="AzureML-tensorflow-2.16-cuda12@latest",
    environment_variables={"TF_USE_LEGACY_KERAS": "1"},
    compute="gpu-cluster",
    instance_count=2,
    # The same as a dictionary: {"type": "TensorFlow", "worker_count": 2}
    distribution=TensorFlowDistribution(worker_count=2),
)
returned_job = ml_client.create_or_update(job)
ml_client.jobs.stream(returned_job.name)
print(f"{returned_job.name}: {ml_client.jobs.get(returned_job.name).status}")
