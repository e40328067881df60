"""The entities that azure-ai-ml's users import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline import azure
from drumline.spec.jobs.command import Command, CommandComponent, CommandJob
from drumline.spec.jobs.component import Component
from drumline.spec.jobs.job import Job
from drumline.spec.jobs.parallel import Parallel, ParallelComponent
from drumline.spec.jobs.pipeline import PipelineComponent, PipelineJob, PipelineJobSettings
from drumline.spec.jobs.sweep import ParameterizedCommand, Sweep, SweepJob
from drumline.spec.jobs.validate import ValidationResult
from drumline.spec.parts.environment import BuildContext, Environment
from drumline.spec.parts.io import Input, Output
from drumline.spec.parts.resources import (
    AmlTokenConfiguration,
    CommandJobLimits,
    DistributionConfiguration,
    JobResourceConfiguration,
    ManagedIdentityConfiguration,
    MpiDistribution,
    PyTorchDistribution,
    QueueSettings,
    RayDistribution,
    ResourceConfiguration,
    RetrySettings,
    TensorFlowDistribution,
    UserIdentityConfiguration,
)
from drumline.spec.parts.services import (
    JobService,
    JupyterLabJobService,
    SshJobService,
    TensorBoardJobService,
    VsCodeJobService,
)
from drumline.spec.registered.assets import Asset, Data, Model
from drumline.spec.registered.compute import (
    AmlCompute,
    AmlComputeSshSettings,
    Compute,
    IdentityConfiguration,
    KubernetesCompute,
    LocalCompute,
    NetworkSettings,
    SlurmCompute,
)
from drumline.spec.registered.datastores import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    AzureDataLakeGen1Datastore,
    AzureDataLakeGen2Datastore,
    AzureFileDatastore,
    CertificateConfiguration,
    Datastore,
    LocalDatastore,
    NoneCredentialConfiguration,
    OneLakeDatastore,
    SasTokenConfiguration,
    ServicePrincipalConfiguration,
)
from drumline.spec.registered.workspace import Workspace

__all__ = [
    "AccountKeyConfiguration",
    "AmlCompute",
    "AmlComputeSshSettings",
    "AmlTokenConfiguration",
    "Asset",
    "AzureBlobDatastore",
    "AzureDataLakeGen1Datastore",
    "AzureDataLakeGen2Datastore",
    "AzureFileDatastore",
    "BuildContext",
    "CertificateConfiguration",
    "Command",
    "CommandComponent",
    "CommandJob",
    "CommandJobLimits",
    "Component",
    "Compute",
    "Data",
    "Datastore",
    "DistributionConfiguration",
    "Environment",
    "IdentityConfiguration",
    "Input",
    "Job",
    "JobResourceConfiguration",
    "JobService",
    "JupyterLabJobService",
    "KubernetesCompute",
    "LocalCompute",
    "LocalDatastore",
    "ManagedIdentityConfiguration",
    "Model",
    "MpiDistribution",
    "NetworkSettings",
    "NoneCredentialConfiguration",
    "OneLakeDatastore",
    "Output",
    "Parallel",
    "ParallelComponent",
    "ParameterizedCommand",
    "PipelineComponent",
    "PipelineJob",
    "PipelineJobSettings",
    "PyTorchDistribution",
    "QueueSettings",
    "RayDistribution",
    "ResourceConfiguration",
    "RetrySettings",
    "SasTokenConfiguration",
    "ServicePrincipalConfiguration",
    "SlurmCompute",
    "SshJobService",
    "Sweep",
    "SweepJob",
    "TensorBoardJobService",
    "TensorFlowDistribution",
    "UserIdentityConfiguration",
    "ValidationResult",
    "VsCodeJobService",
    "Workspace",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> type:
        return azure.stand_in(__name__, name, __all__)
