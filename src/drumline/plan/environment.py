"""
The variables that every job sees, whatever its distribution: the product's heart, frozen by tests.

Source of the names: docs/reference/environment-variables.md, which says who reads each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import mlflow_variables
from drumline.contract.folder import MARKER
from drumline.contract.plan import NodeShape, address_of, gpus_of, late
from drumline.plan.layout import distributed_config, host_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Build
    from drumline.plan.layout import Layout, Process

UNSET = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TF_CONFIG",
    "TORCHELASTIC_*",
    "PET_*",
    "OMPI_*",
    "PMI_*",
    "PMIX_*",
    "PRTE_*",
    "SLURM_*",
    "SLURMD_*",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_*",
    "JAX_COORDINATOR_*",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "JAX_LOCAL_DEVICE_IDS",
    "JAX_PARTITION_INDEX",
    "JAX_SLICE_INDEX",
    "AZ_BATCH*",
    "AZUREML_*",
    "AZURE_ML_*",
    "MLFLOW_RUN_ID",
    "MLFLOW_RUN_CONTEXT",
    "DRUMLINE_AZURE",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
)
"""
What another launcher left in the surroundings, and would make a rank believe it is somebody else's; the switch of
``drumline/azure.py`` of whoever submits: with its empty credentials a rank could not read what is at Azure; and the
secret of the server of ``drumline azure``.
"""


def job_variables(name: str, folder: RunFolder, experiment: str, cwd: str, top: str = "") -> dict[str, str]:
    """
    Return the variables of all ranks: the user's own words and paths, nothing in them is late-bound.

    ``top``: the job that this one is part of in the end; empty: it is that itself.
    """
    # Scripts make a client of their own from these; there is neither a subscription nor a resource group.
    workspace = folder.workspace
    group = "/subscriptions/local/resourceGroups/local"
    return {
        MARKER: folder.path,
        "AZUREML_ARM_SUBSCRIPTION": "local",
        "AZUREML_ARM_RESOURCEGROUP": "local",
        "AZUREML_ARM_WORKSPACE_NAME": workspace,
        "AZUREML_WORKSPACE_ID": workspace or "local",
        "AZUREML_WORKSPACE_SCOPE": f"{group}/providers/Microsoft.MachineLearningServices/workspaces/{workspace}",
        "AZUREML_CR_EXECUTION_WORKING_DIR_PATH": cwd,
        "AZUREML_RUN_ID": name,
        "AZUREML_ROOT_RUN_ID": top or name,
        "AZUREML_EXPERIMENT_ID": experiment,
        "AZUREML_ARM_PROJECT_NAME": experiment,
    }


def tracking_variables(name: str, experiment: str, mlflow_uri: str, own: Mapping[str, str]) -> dict[str, str]:
    """
    Return the variables by which MLflow finds the job's run.

    A server names that when the job starts; elsewhere than there and in a file store, MLflow makes its own. ``own``:
    the variables of the job, which win.
    """
    variables = {
        "MLFLOW_TRACKING_URI": mlflow_uri,
        "MLFLOW_EXPERIMENT_NAME": experiment,
        mlflow_variables.ALLOW: "true",
    }
    run_id = own.get("MLFLOW_RUN_ID", "")
    if not run_id and own.get("MLFLOW_TRACKING_URI", mlflow_uri).startswith(mlflow_variables.FILES):
        run_id = mlflow_variables.run_id_of(name)
    return variables | (mlflow_variables.variables_of(run_id, name) if run_id else {})


def cluster_variables(node_count: int, *, has_network: bool = False) -> dict[str, str]:
    """Return the variables of all ranks. ``has_network``: nodes are machines, which may have several networks."""
    variables = {
        "AZUREML_NODE_COUNT": str(node_count),
        "PYTHONUNBUFFERED": "1",
        "NCCL_SOCKET_IFNAME": late("interface"),
        "GLOO_SOCKET_IFNAME": late("interface"),
    }
    if has_network and node_count > 1:
        variables["NCCL_IB_HCA"] = late("ib_devices")
        variables["UCX_NET_DEVICES"] = late("ucx_devices")
    if node_count > 1:
        variables["AZ_BATCHAI_MPI_MASTER_NODE"] = address_of(0)
        variables["AZ_BATCH_HOST_LIST"] = ",".join(host_list(node_count))
        variables["AZ_BATCH_NODE_LIST"] = ";".join(host_list(node_count))
    return variables


def master_node(layout: Layout) -> dict[str, str]:
    """
    Return AZ_BATCH_MASTER_NODE, ``ip:port``. Scripts take the part before the colon, and choose their own port.

    Not there on a single node: Lightning and DeepSpeed tell by it that there are several.
    """
    port = "master_port" if "master_port" in layout.ports else next(iter(layout.ports))
    return {"AZ_BATCH_MASTER_NODE": f"{address_of(0)}:{late(port)}"}


def node_variables(node: int, shape: NodeShape, rank_count: int) -> dict[str, str]:
    """Return the variables of the ranks of a node, which share its cores evenly."""
    variables = {
        "AZUREML_CR_NODE_RANK": str(node),
        "OMP_NUM_THREADS": str(max(1, shape.core_count // max(1, rank_count))),
    }
    if shape.gpu_count:
        variables["CUDA_VISIBLE_DEVICES"] = gpus_of(node)
    return variables


def rank_variables(process: Process) -> dict[str, str]:
    return {
        "AZUREML_PROCESS_NAME": process.name,
        "AZUREML_CR_DISTRIBUTED_CONFIG": distributed_config(process.rank),
    }


_VARIABLES_OF_OTHERS = {
    "uv": ("PYTHONHOME", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"),
    "conda": ("PYTHONHOME", "VIRTUAL_ENV"),
}


def activation_variables(build: Build | None, own: Mapping[str, str]) -> dict[str, str]:
    """
    Return what activating an environment that was built would set, besides PATH. Scripts of its own are not run.

    own: the variables that its conda file sets.
    Source: https://docs.python.org/3/library/venv.html#how-venvs-work,
    https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#activating-an-environment
    """
    if build is not None and build.kind == "uv":
        return {"VIRTUAL_ENV": build.prefix, **own}
    if build is not None and build.kind == "conda":
        # What the user has installed for another Python of the same version is not part of it.
        named = {"CONDA_PREFIX": build.prefix, "CONDA_DEFAULT_ENV": build.prefix, "PYTHONNOUSERSITE": "1"}
        return {**named, **own}
    return dict(own)


def variables_of_others(build: Build | None) -> tuple[str, ...]:
    """Return the variables that another activated environment leaves behind."""
    return _VARIABLES_OF_OTHERS.get(build.kind, ()) if build is not None else ()
