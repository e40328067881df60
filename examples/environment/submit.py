"""
Submit the job of job.yml from Python.

The same script for azure-ai-ml imports from `azure.ai.ml`, and gives `MLClient` a credential and the names of a
workspace. Here `MLClient()` is where `drumline job list` looks too.
"""

from pathlib import Path

from drumline import Input, MLClient, command
from drumline.entities import Environment

here = Path(__file__).resolve().parent

ml_client = MLClient()

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
