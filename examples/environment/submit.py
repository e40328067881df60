"""
Submit the job of job.yml from Python.

A script for azure-ai-ml in which only the imports and the credential differ.
"""

from pathlib import Path

from drumline import Input, MLClient, command
from drumline.entities import Environment

here = Path(__file__).resolve().parent

ml_client = MLClient(
    credential=None,
    subscription_id="local",
    resource_group_name="local",
    workspace_name="local",
)

packages = Environment(
    name="digits-by-hand",
    image="mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest",
    conda_file=here / "conda.yml",
)

job = command(
    display_name="digits-by-hand",
    experiment_name="digits",
    code=str(here / "src"),
    command="python classify.py --data ${{inputs.digits}}",
    inputs={"digits": Input(type="uri_file", path=str(here / ".." / "digits-ddp" / "data" / "digits.csv"))},
    environment=ml_client.environments.create_or_update(packages),
)

returned_job = ml_client.create_or_update(job)
ml_client.jobs.stream(returned_job.name)
print(f"{returned_job.name}: {ml_client.jobs.get(returned_job.name).status}")
