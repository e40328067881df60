"""docs/reference/azure-ml.md leaves out nothing that azure-ai-ml has: its fields, names and methods have a row."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest
from surface import PAGE, verdicts

pytest.importorskip("azure.ai.ml", reason="azure-ai-ml (96 MB with its dependencies) is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")
SCHEMAS = {
    "job.command_job.CommandJobSchema": "Command job",
    "_sweep.sweep_job.SweepJobSchema": "Sweep job",
    "pipeline.pipeline_job.PipelineJobSchema": "Pipeline job",
    "pipeline.component_job.CommandSchema": "Pipeline nodes",
    "component.command_component.CommandComponentSchema": "Command component",
    "pipeline.pipeline_component.PipelineComponentSchema": "Pipeline component",
    "compute.aml_compute.AmlComputeSchema": "`amlcompute`",
    "assets.environment.EnvironmentSchema": "Environment",
    "assets.data.DataSchema": "Data",
    "assets.model.ModelSchema": "Model",
    "_datastore.AzureBlobSchema": "Datastore",
    "_datastore.AzureFileSchema": "Datastore",
    "_datastore.AzureDataLakeGen2Schema": "Datastore",
    "workspace.workspace.WorkspaceSchema": "Workspace",
}
GROUPS = {
    "JobOperations": "jobs",
    "ComputeOperations": "compute",
    "DataOperations": "data",
    "EnvironmentOperations": "environments",
    "ModelOperations": "models",
    "ComponentOperations": "components",
    "DatastoreOperations": "datastores",
    "WorkspaceOperations": "workspaces",
}


@pytest.mark.parametrize("path", SCHEMAS)
def test_every_field_of_a_schema_is_there(path):
    module, _, name = path.rpartition(".")
    schema = getattr(import_module(f"azure.ai.ml._schema.{module}"), name)(context={"base_path": Path.cwd()})
    fields = {field.data_key or key for key, field in schema.fields.items()}
    missing = fields - verdicts(SCHEMAS[path]).keys()
    if SCHEMAS[path].endswith("component"):  # What is dropped there stands below the table.
        missing = {key for key in missing if f"`{key}`" not in PAGE.read_text()}
    assert missing == set()


@pytest.mark.parametrize("name", GROUPS)
def test_every_method_of_a_group_is_there(name):
    group = getattr(import_module("azure.ai.ml.operations"), name)
    methods = {key for key, _ in inspect.getmembers(group, inspect.isfunction) if not key.startswith("_")}
    rows = verdicts("Methods of the groups")
    assert {f"{GROUPS[name]}.{key}" for key in methods} - rows.keys() == set()


def test_every_member_of_the_client_is_there():
    from azure.ai.ml import MLClient

    members = {key for key in dir(MLClient) if not key.startswith("_")} - {"R", "T"}  # type variables
    assert members - verdicts("MLClient").keys() == set()


@pytest.mark.parametrize("module", ["azure.ai.ml", "azure.ai.ml.sweep"])
def test_every_name_of_a_module_is_there(module):
    assert set(import_module(module).__all__) - verdicts(f"`{module}`").keys() == set()
