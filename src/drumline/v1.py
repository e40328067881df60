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
    from drumline import __version__ as VERSION  # noqa: N812 - azureml's name
    from drumline.compat.hyperdrive import (
        BanditPolicy,
        BayesianParameterSampling,
        GridParameterSampling,
        HyperDriveConfig,
        MedianStoppingPolicy,
        NoTerminationPolicy,
        PrimaryMetricGoal,
        RandomParameterSampling,
        TruncationSelectionPolicy,
        choice,
        lognormal,
        loguniform,
        normal,
        qlognormal,
        qloguniform,
        qnormal,
        quniform,
        randint,
        uniform,
    )
    from drumline.compat.pipeline_steps import (
        CommandStep,
        EstimatorStep,
        MpiStep,
        PipelineData,
        PipelineParameter,
        PythonScriptStep,
        StepSequence,
    )
    from drumline.compat.run_configuration.configuration import Data, DataLocation, DataPath, RunConfiguration
    from drumline.compat.run_configuration.environment import (
        DEFAULT_CPU_IMAGE,
        DEFAULT_GPU_IMAGE,
        CondaDependencies,
        DockerConfiguration,
        DockerSection,
        Environment,
        MpiConfiguration,
        ParallelTaskConfiguration,
        PythonSection,
        PyTorchConfiguration,
        TensorflowConfiguration,
    )
    from drumline.compat.script_run_config import (
        Chainer,
        Estimator,
        Gloo,
        Mpi,
        Nccl,
        ParameterServer,
        PyTorch,
        ScriptRunConfig,
        SKLearn,
        TensorFlow,
    )
    from drumline.contract.errors import DrumlineError as AzureMLException
    from drumline.contract.errors import JobFailedError as ActivityFailedException
    from drumline.contract.errors import SpecError as UserErrorException
    from drumline.sdk.v1.assets.dataset import (
        DataReference,
        Dataset,
        DatasetConsumptionConfig,
        FileDataset,
        OutputFileDatasetConfig,
    )
    from drumline.sdk.v1.assets.datastore import Datastore
    from drumline.sdk.v1.assets.model import Model
    from drumline.sdk.v1.compute import AmlCompute, ComputeTarget, ComputeTargetException
    from drumline.sdk.v1.experiment import Experiment
    from drumline.sdk.v1.no_effect import (
        AzureCliAuthentication,
        InteractiveLoginAuthentication,
        MsiAuthentication,
        RunDetails,
        ServicePrincipalAuthentication,
        set_diagnostics_collection,
    )
    from drumline.sdk.v1.pipeline import Pipeline, PipelineRun
    from drumline.sdk.v1.runs.run import HyperDriveRun, Run
    from drumline.sdk.v1.workspace import Workspace

_NO_EFFECT = "drumline.sdk.v1.no_effect"
_CONFIGURATION = "drumline.compat.run_configuration.configuration"
_SECTIONS = "drumline.compat.run_configuration.environment"
_COMPUTE = "drumline.sdk.v1.compute"
_DATA = "drumline.sdk.v1.assets.dataset"
_ENVIRONMENT = "drumline.compat.run_configuration.environment"
_ERRORS = "drumline.contract.errors"
_PIPELINE = "drumline.sdk.v1.pipeline"
_STEPS = "drumline.compat.pipeline_steps"
_STEP_DATA = "drumline.compat.pipeline_steps"
_ESTIMATOR = "drumline.compat.script_run_config"
_RUN_DATA = "drumline.compat.run_configuration.configuration"
_HYPERDRIVE = "drumline.compat.hyperdrive"
_MODULES = {
    "ActivityFailedException": (_ERRORS, "JobFailedError"),
    "AmlCompute": (_COMPUTE, ""),
    "AzureCliAuthentication": (_NO_EFFECT, ""),
    "AzureMLException": (_ERRORS, "DrumlineError"),
    "BanditPolicy": (_HYPERDRIVE, ""),
    "BayesianParameterSampling": (_HYPERDRIVE, ""),
    "Chainer": (_ESTIMATOR, ""),
    "CommandStep": (_STEPS, ""),
    "ComputeTarget": (_COMPUTE, ""),
    "ComputeTargetException": (_COMPUTE, ""),
    "CondaDependencies": ("drumline.compat.run_configuration.environment", ""),
    "DEFAULT_CPU_IMAGE": (_ENVIRONMENT, ""),
    "DEFAULT_GPU_IMAGE": (_ENVIRONMENT, ""),
    "Data": (_RUN_DATA, ""),
    "DataLocation": (_RUN_DATA, ""),
    "DataPath": (_RUN_DATA, ""),
    "DataReference": (_DATA, ""),
    "Dataset": (_DATA, ""),
    "DatasetConsumptionConfig": (_DATA, ""),
    "Datastore": ("drumline.sdk.v1.assets.datastore", ""),
    "DockerConfiguration": (_SECTIONS, ""),
    "DockerSection": (_ENVIRONMENT, ""),
    "Environment": (_ENVIRONMENT, ""),
    "Estimator": (_ESTIMATOR, ""),
    "EstimatorStep": (_STEPS, ""),
    "Experiment": ("drumline.sdk.v1.experiment", ""),
    "FileDataset": (_DATA, ""),
    "Gloo": (_ESTIMATOR, ""),
    "GridParameterSampling": (_HYPERDRIVE, ""),
    "HyperDriveConfig": (_HYPERDRIVE, ""),
    "HyperDriveRun": ("drumline.sdk.v1.runs.run", ""),
    "InteractiveLoginAuthentication": (_NO_EFFECT, ""),
    "MedianStoppingPolicy": (_HYPERDRIVE, ""),
    "Model": ("drumline.sdk.v1.assets.model", ""),
    "Mpi": (_ESTIMATOR, ""),
    "MpiConfiguration": (_SECTIONS, ""),
    "MpiStep": (_STEPS, ""),
    "MsiAuthentication": (_NO_EFFECT, ""),
    "Nccl": (_ESTIMATOR, ""),
    "NoTerminationPolicy": (_HYPERDRIVE, ""),
    "OutputFileDatasetConfig": (_DATA, ""),
    "ParallelTaskConfiguration": (_SECTIONS, ""),
    "ParameterServer": (_ESTIMATOR, ""),
    "Pipeline": (_PIPELINE, ""),
    "PipelineData": (_STEP_DATA, ""),
    "PipelineParameter": (_STEP_DATA, ""),
    "PipelineRun": (_PIPELINE, ""),
    "PrimaryMetricGoal": (_HYPERDRIVE, ""),
    "PyTorch": (_ESTIMATOR, ""),
    "PyTorchConfiguration": (_SECTIONS, ""),
    "PythonScriptStep": (_STEPS, ""),
    "PythonSection": (_ENVIRONMENT, ""),
    "RandomParameterSampling": (_HYPERDRIVE, ""),
    "Run": ("drumline.sdk.v1.runs.run", ""),
    "RunConfiguration": (_CONFIGURATION, ""),
    "RunDetails": ("drumline.sdk.v1.no_effect", ""),
    "SKLearn": (_ESTIMATOR, ""),
    "ScriptRunConfig": ("drumline.compat.script_run_config", ""),
    "ServicePrincipalAuthentication": (_NO_EFFECT, ""),
    "StepSequence": (_STEPS, ""),
    "TensorFlow": (_ESTIMATOR, ""),
    "TensorflowConfiguration": (_SECTIONS, ""),
    "TruncationSelectionPolicy": (_HYPERDRIVE, ""),
    "UserErrorException": (_ERRORS, "SpecError"),
    "VERSION": ("drumline", "__version__"),
    "Workspace": ("drumline.sdk.v1.workspace", ""),
    "_OfflineRun": ("drumline.sdk.v1.context", "OfflineRun"),
    "choice": (_HYPERDRIVE, ""),
    "lognormal": (_HYPERDRIVE, ""),
    "loguniform": (_HYPERDRIVE, ""),
    "normal": (_HYPERDRIVE, ""),
    "qlognormal": (_HYPERDRIVE, ""),
    "qloguniform": (_HYPERDRIVE, ""),
    "qnormal": (_HYPERDRIVE, ""),
    "quniform": (_HYPERDRIVE, ""),
    "randint": (_HYPERDRIVE, ""),
    "set_diagnostics_collection": (_NO_EFFECT, ""),
    "uniform": (_HYPERDRIVE, ""),
}
"""Where each name is, and what it is called there where that differs."""

__all__ = [
    "DEFAULT_CPU_IMAGE",
    "DEFAULT_GPU_IMAGE",
    "VERSION",
    "ActivityFailedException",
    "AmlCompute",
    "AzureCliAuthentication",
    "AzureMLException",
    "BanditPolicy",
    "BayesianParameterSampling",
    "Chainer",
    "CommandStep",
    "ComputeTarget",
    "ComputeTargetException",
    "CondaDependencies",
    "Data",
    "DataLocation",
    "DataPath",
    "DataReference",
    "Dataset",
    "DatasetConsumptionConfig",
    "Datastore",
    "DockerConfiguration",
    "DockerSection",
    "Environment",
    "Estimator",
    "EstimatorStep",
    "Experiment",
    "FileDataset",
    "Gloo",
    "GridParameterSampling",
    "HyperDriveConfig",
    "HyperDriveRun",
    "InteractiveLoginAuthentication",
    "MedianStoppingPolicy",
    "Model",
    "Mpi",
    "MpiConfiguration",
    "MpiStep",
    "MsiAuthentication",
    "Nccl",
    "NoTerminationPolicy",
    "OutputFileDatasetConfig",
    "ParallelTaskConfiguration",
    "ParameterServer",
    "Pipeline",
    "PipelineData",
    "PipelineParameter",
    "PipelineRun",
    "PrimaryMetricGoal",
    "PyTorch",
    "PyTorchConfiguration",
    "PythonScriptStep",
    "PythonSection",
    "RandomParameterSampling",
    "Run",
    "RunConfiguration",
    "RunDetails",
    "SKLearn",
    "ScriptRunConfig",
    "ServicePrincipalAuthentication",
    "StepSequence",
    "TensorFlow",
    "TensorflowConfiguration",
    "TruncationSelectionPolicy",
    "UserErrorException",
    "Workspace",
    "choice",
    "lognormal",
    "loguniform",
    "normal",
    "qlognormal",
    "qloguniform",
    "qnormal",
    "quniform",
    "randint",
    "set_diagnostics_collection",
    "uniform",
]
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
    module, other = _MODULES[name]
    found = getattr(import_module(module), other or name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
