"""
Submit the job of job.yml from Python.

The same script for azure-ai-ml imports from `azure.ai.ml`, and gives `MLClient` a credential and the names of a
workspace. Here `MLClient()` is where `drumline job list` looks too.
"""

from pathlib import Path

from drumline import Input, MLClient, command

here = Path(__file__).resolve().parent

ml_client = MLClient()

job = command(
    display_name="jax",
    experiment_name="digits",
    code=str(here / "src"),
    command="python train.py --data ${{inputs.digits}} --epochs ${{inputs.epochs}}",
    inputs={
        "digits": Input(type="uri_file", path=str(here.parent / "digits-ddp" / "data" / "digits.csv")),
        "epochs": 15,
    },
    compute="local",
    distribution={"type": "pytorch", "process_count_per_instance": 2},
    instance_count=2,
)

returned_job = ml_client.create_or_update(job)
ml_client.jobs.stream(returned_job.name)
print(f"{returned_job.name}: {ml_client.jobs.get(returned_job.name).status}")
