"""
Submit a pipeline whose only step is a distributed component, on two nodes with two processes each.

With the objects of Azure's components SDK, `azure-ml-component`, which came between v1 and v2.
Source: https://learn.microsoft.com/python/api/azure-ml-component/azure.ml.component
"""

# For Azure the import lines are:
#
#   from azure.ml.component import Component, dsl
#   from azureml.core import Dataset, Workspace
from drumline.component import Component, dsl
from drumline.v1 import Dataset, Workspace

# The workspace that config.json names.
ws = Workspace.from_config()

# The images, in the workspace's own store.
images = Dataset.File.upload_directory(
    src_dir="../../digits-ddp/data", target=(ws.get_default_datastore(), "digits"), overwrite=True
)

train_component = Component.from_yaml(ws, yaml_file="train.yml")


@dsl.pipeline(
    name="component-pipeline",
    description="A component that torch.distributed runs on two nodes.",
    default_compute_target="gpu-cluster",
)
def training_pipeline(digits, epochs):
    training = train_component(digits=digits, epochs=epochs)
    training.runsettings.resource_layout.configure(instance_count=2, process_count_per_node=2)
    return training.outputs


pipeline = training_pipeline(images, 4)
run = pipeline.submit(experiment_name="component-pipeline")
run.wait_for_completion(show_output=True)
print(f"{run.id}: {run.get_status()}")
