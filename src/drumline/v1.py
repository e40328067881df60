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
    from drumline import __version__
    from drumline.compat.hyperdrive import BanditPolicy as BanditPolicy
    from drumline.compat.hyperdrive import BayesianParameterSampling as BayesianParameterSampling
    from drumline.compat.hyperdrive import GridParameterSampling as GridParameterSampling
    from drumline.compat.hyperdrive import HyperDriveConfig as HyperDriveConfig
    from drumline.compat.hyperdrive import MedianStoppingPolicy as MedianStoppingPolicy
    from drumline.compat.hyperdrive import NoTerminationPolicy as NoTerminationPolicy
    from drumline.compat.hyperdrive import PrimaryMetricGoal as PrimaryMetricGoal
    from drumline.compat.hyperdrive import RandomParameterSampling as RandomParameterSampling
    from drumline.compat.hyperdrive import TruncationSelectionPolicy as TruncationSelectionPolicy
    from drumline.compat.hyperdrive import choice as choice
    from drumline.compat.hyperdrive import lognormal as lognormal
    from drumline.compat.hyperdrive import loguniform as loguniform
    from drumline.compat.hyperdrive import normal as normal
    from drumline.compat.hyperdrive import qlognormal as qlognormal
    from drumline.compat.hyperdrive import qloguniform as qloguniform
    from drumline.compat.hyperdrive import qnormal as qnormal
    from drumline.compat.hyperdrive import quniform as quniform
    from drumline.compat.hyperdrive import randint as randint
    from drumline.compat.hyperdrive import uniform as uniform
    from drumline.compat.pipeline_steps import CommandStep as CommandStep
    from drumline.compat.pipeline_steps import EstimatorStep as EstimatorStep
    from drumline.compat.pipeline_steps import MpiStep as MpiStep
    from drumline.compat.pipeline_steps import PipelineData as PipelineData
    from drumline.compat.pipeline_steps import PipelineParameter as PipelineParameter
    from drumline.compat.pipeline_steps import PythonScriptStep as PythonScriptStep
    from drumline.compat.pipeline_steps import StepSequence as StepSequence
    from drumline.compat.run_configuration.configuration import Data as Data
    from drumline.compat.run_configuration.configuration import DataLocation as DataLocation
    from drumline.compat.run_configuration.configuration import DataPath as DataPath
    from drumline.compat.run_configuration.configuration import (
        DataPathComputeBinding as DataPathComputeBinding,
    )
    from drumline.compat.run_configuration.configuration import RunConfiguration as RunConfiguration
    from drumline.compat.run_configuration.environment import DEFAULT_CPU_IMAGE as DEFAULT_CPU_IMAGE
    from drumline.compat.run_configuration.environment import DEFAULT_GPU_IMAGE as DEFAULT_GPU_IMAGE
    from drumline.compat.run_configuration.environment import CondaDependencies as CondaDependencies
    from drumline.compat.run_configuration.environment import DockerConfiguration as DockerConfiguration
    from drumline.compat.run_configuration.environment import DockerSection as DockerSection
    from drumline.compat.run_configuration.environment import Environment as Environment
    from drumline.compat.run_configuration.environment import MpiConfiguration as MpiConfiguration
    from drumline.compat.run_configuration.environment import (
        ParallelTaskConfiguration as ParallelTaskConfiguration,
    )
    from drumline.compat.run_configuration.environment import PythonSection as PythonSection
    from drumline.compat.run_configuration.environment import PyTorchConfiguration as PyTorchConfiguration
    from drumline.compat.run_configuration.environment import (
        TensorflowConfiguration as TensorflowConfiguration,
    )
    from drumline.compat.script_run_config import Chainer as Chainer
    from drumline.compat.script_run_config import Estimator as Estimator
    from drumline.compat.script_run_config import Gloo as Gloo
    from drumline.compat.script_run_config import Mpi as Mpi
    from drumline.compat.script_run_config import Nccl as Nccl
    from drumline.compat.script_run_config import ParameterServer as ParameterServer
    from drumline.compat.script_run_config import PyTorch as PyTorch
    from drumline.compat.script_run_config import ScriptRunConfig as ScriptRunConfig
    from drumline.compat.script_run_config import SKLearn as SKLearn
    from drumline.compat.script_run_config import TensorFlow as TensorFlow
    from drumline.contract.errors import DrumlineError, JobFailedError, SpecError
    from drumline.sdk.v1.assets.dataset import DataReference as DataReference
    from drumline.sdk.v1.assets.dataset import Dataset as Dataset
    from drumline.sdk.v1.assets.dataset import DatasetConsumptionConfig as DatasetConsumptionConfig
    from drumline.sdk.v1.assets.dataset import FileDataset as FileDataset
    from drumline.sdk.v1.assets.dataset import OutputFileDatasetConfig as OutputFileDatasetConfig
    from drumline.sdk.v1.assets.datastore import Datastore as Datastore
    from drumline.sdk.v1.assets.model import Model as Model
    from drumline.sdk.v1.compute import AmlCompute as AmlCompute
    from drumline.sdk.v1.compute import ComputeTarget as ComputeTarget
    from drumline.sdk.v1.compute import ComputeTargetException as ComputeTargetException
    from drumline.sdk.v1.experiment import Experiment as Experiment
    from drumline.sdk.v1.no_effect import AzureCliAuthentication as AzureCliAuthentication
    from drumline.sdk.v1.no_effect import InteractiveLoginAuthentication as InteractiveLoginAuthentication
    from drumline.sdk.v1.no_effect import MsiAuthentication as MsiAuthentication
    from drumline.sdk.v1.no_effect import RunDetails as RunDetails
    from drumline.sdk.v1.no_effect import ServicePrincipalAuthentication as ServicePrincipalAuthentication
    from drumline.sdk.v1.no_effect import set_diagnostics_collection as set_diagnostics_collection
    from drumline.sdk.v1.pipeline import Pipeline as Pipeline
    from drumline.sdk.v1.pipeline import PipelineRun as PipelineRun
    from drumline.sdk.v1.runs.run import HyperDriveRun as HyperDriveRun
    from drumline.sdk.v1.runs.run import Run as Run
    from drumline.sdk.v1.workspace import Workspace as Workspace

    VERSION = __version__
    AzureMLException, ActivityFailedException, UserErrorException = DrumlineError, JobFailedError, SpecError

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
    "DataPathComputeBinding": "drumline.compat.run_configuration.configuration",
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

__all__ = sorted(name for name in _MODULES if name[0] != "_")  # noqa: PLE0605 - computed from the one table above
_PARTS = (
    "authentication", "core", "compute", "compute_target", "conda_dependencies", "container_registry", "data_reference",
    "datapath", "dataset", "dataset_consumption_config", "datastore", "environment", "experiment", "model",
    "output_dataset_config", "run", "runconfig", "script_run", "script_run_config", "telemetry", "workspace",
)  # fmt: skip
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
