"""
azureml-core's names, for machines that people own.

``from drumline.v1 import ScriptRunConfig, Experiment, Workspace`` takes the place of ``from azureml.core import ...``,
and so it is for names of ``azureml.core.compute``, ``.compute_target``, ``.runconfig``, ``.environment``, ``.run``,
``.authentication``, ``.conda_dependencies``, ``azureml.exceptions`` and ``azureml.widgets``. Names are loaded on first
use: a training script that asks for ``Run`` alone loads little.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline import __version__ as VERSION  # noqa: F401, N812 - azureml's name
    from drumline.compat.hyperdrive import *  # noqa: F403
    from drumline.compat.pipeline_steps import *  # noqa: F403
    from drumline.compat.run_configuration.configuration import *  # noqa: F403
    from drumline.compat.run_configuration.environment import *  # noqa: F403
    from drumline.compat.script_run_config import *  # noqa: F403
    from drumline.contract.errors import DrumlineError as AzureMLException  # noqa: F401
    from drumline.contract.errors import JobFailedError as ActivityFailedException  # noqa: F401
    from drumline.contract.errors import SpecError as UserErrorException  # noqa: F401
    from drumline.sdk.v1.assets.dataset import *  # noqa: F403
    from drumline.sdk.v1.assets.datastore import *  # noqa: F403
    from drumline.sdk.v1.assets.model import *  # noqa: F403
    from drumline.sdk.v1.compute import *  # noqa: F403
    from drumline.sdk.v1.experiment import *  # noqa: F403
    from drumline.sdk.v1.no_effect import *  # noqa: F403
    from drumline.sdk.v1.pipeline import *  # noqa: F403
    from drumline.sdk.v1.runs.run import *  # noqa: F403
    from drumline.sdk.v1.workspace import *  # noqa: F403

_MODULES = {
    "VERSION": "drumline",
    "BanditPolicy": "drumline.compat.hyperdrive",
    "BayesianParameterSampling": "drumline.compat.hyperdrive",
    "GridParameterSampling": "drumline.compat.hyperdrive",
    "HyperDriveConfig": "drumline.compat.hyperdrive",
    "MedianStoppingPolicy": "drumline.compat.hyperdrive",
    "NoTerminationPolicy": "drumline.compat.hyperdrive",
    "PrimaryMetricGoal": "drumline.compat.hyperdrive",
    "RandomParameterSampling": "drumline.compat.hyperdrive",
    "TruncationSelectionPolicy": "drumline.compat.hyperdrive",
    "choice": "drumline.compat.hyperdrive",
    "lognormal": "drumline.compat.hyperdrive",
    "loguniform": "drumline.compat.hyperdrive",
    "normal": "drumline.compat.hyperdrive",
    "qlognormal": "drumline.compat.hyperdrive",
    "qloguniform": "drumline.compat.hyperdrive",
    "qnormal": "drumline.compat.hyperdrive",
    "quniform": "drumline.compat.hyperdrive",
    "randint": "drumline.compat.hyperdrive",
    "uniform": "drumline.compat.hyperdrive",
    "CommandStep": "drumline.compat.pipeline_steps",
    "EstimatorStep": "drumline.compat.pipeline_steps",
    "MpiStep": "drumline.compat.pipeline_steps",
    "PipelineData": "drumline.compat.pipeline_steps",
    "PipelineParameter": "drumline.compat.pipeline_steps",
    "PythonScriptStep": "drumline.compat.pipeline_steps",
    "StepSequence": "drumline.compat.pipeline_steps",
    "Data": "drumline.compat.run_configuration.configuration",
    "DataLocation": "drumline.compat.run_configuration.configuration",
    "DataPath": "drumline.compat.run_configuration.configuration",
    "RunConfiguration": "drumline.compat.run_configuration.configuration",
    "CondaDependencies": "drumline.compat.run_configuration.environment",
    "DEFAULT_CPU_IMAGE": "drumline.compat.run_configuration.environment",
    "DEFAULT_GPU_IMAGE": "drumline.compat.run_configuration.environment",
    "DockerConfiguration": "drumline.compat.run_configuration.environment",
    "DockerSection": "drumline.compat.run_configuration.environment",
    "Environment": "drumline.compat.run_configuration.environment",
    "MpiConfiguration": "drumline.compat.run_configuration.environment",
    "ParallelTaskConfiguration": "drumline.compat.run_configuration.environment",
    "PyTorchConfiguration": "drumline.compat.run_configuration.environment",
    "PythonSection": "drumline.compat.run_configuration.environment",
    "TensorflowConfiguration": "drumline.compat.run_configuration.environment",
    "Chainer": "drumline.compat.script_run_config",
    "Estimator": "drumline.compat.script_run_config",
    "Gloo": "drumline.compat.script_run_config",
    "Mpi": "drumline.compat.script_run_config",
    "Nccl": "drumline.compat.script_run_config",
    "ParameterServer": "drumline.compat.script_run_config",
    "PyTorch": "drumline.compat.script_run_config",
    "SKLearn": "drumline.compat.script_run_config",
    "ScriptRunConfig": "drumline.compat.script_run_config",
    "TensorFlow": "drumline.compat.script_run_config",
    "ActivityFailedException": "drumline.contract.errors",
    "AzureMLException": "drumline.contract.errors",
    "UserErrorException": "drumline.contract.errors",
    "DataReference": "drumline.sdk.v1.assets.dataset",
    "Dataset": "drumline.sdk.v1.assets.dataset",
    "DatasetConsumptionConfig": "drumline.sdk.v1.assets.dataset",
    "FileDataset": "drumline.sdk.v1.assets.dataset",
    "OutputFileDatasetConfig": "drumline.sdk.v1.assets.dataset",
    "Datastore": "drumline.sdk.v1.assets.datastore",
    "Model": "drumline.sdk.v1.assets.model",
    "AmlCompute": "drumline.sdk.v1.compute",
    "ComputeTarget": "drumline.sdk.v1.compute",
    "ComputeTargetException": "drumline.sdk.v1.compute",
    "_OfflineRun": "drumline.sdk.v1.context",
    "Experiment": "drumline.sdk.v1.experiment",
    "AzureCliAuthentication": "drumline.sdk.v1.no_effect",
    "InteractiveLoginAuthentication": "drumline.sdk.v1.no_effect",
    "MsiAuthentication": "drumline.sdk.v1.no_effect",
    "RunDetails": "drumline.sdk.v1.no_effect",
    "ServicePrincipalAuthentication": "drumline.sdk.v1.no_effect",
    "set_diagnostics_collection": "drumline.sdk.v1.no_effect",
    "Pipeline": "drumline.sdk.v1.pipeline",
    "PipelineRun": "drumline.sdk.v1.pipeline",
    "HyperDriveRun": "drumline.sdk.v1.runs.run",
    "Run": "drumline.sdk.v1.runs.run",
    "Workspace": "drumline.sdk.v1.workspace",
}
_OTHER_NAMES = {
    "ActivityFailedException": "JobFailedError",
    "AzureMLException": "DrumlineError",
    "UserErrorException": "SpecError",
    "VERSION": "__version__",
    "_OfflineRun": "OfflineRun",
}
"""What a name is called in its module, where that differs."""

__all__ = sorted(_MODULES)  # noqa: PLE0605 - computed from the one table above
_PARTS = frozenset(
    [
        "core",
        "compute",
        "dataset",
        "datastore",
        "environment",
        "experiment",
        "model",
        "run",
        "runconfig",
        "telemetry",
        "workspace",
    ]
)
"""Modules of azureml that are this one: after ``import drumline.v1 as azureml``, ``azureml.core.VERSION`` is there."""


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(__name__)
    if name not in _MODULES:
        raise AttributeError(f"module 'drumline.v1' has no attribute {name!r}")
    entity = getattr(import_module(_MODULES[name]), _OTHER_NAMES.get(name, name))
    globals()[name] = entity
    return entity


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
