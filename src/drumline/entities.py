"""The entities that azure-ai-ml's users import."""

from __future__ import annotations

from drumline.spec.assets import Asset, Data, Model
from drumline.spec.command import Command, CommandJob
from drumline.spec.component import CommandComponent, Component, PipelineComponent
from drumline.spec.compute import (
    AmlCompute,
    AmlComputeSshSettings,
    Compute,
    IdentityConfiguration,
    LocalCompute,
    NetworkSettings,
    SlurmCompute,
)
from drumline.spec.datastores import (
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
from drumline.spec.distribution import (
    DistributionConfiguration,
    MpiDistribution,
    PyTorchDistribution,
    RayDistribution,
    TensorFlowDistribution,
)
from drumline.spec.environment import BuildContext, Environment
from drumline.spec.identity import (
    AmlTokenConfiguration,
    ManagedIdentityConfiguration,
    UserIdentityConfiguration,
)
from drumline.spec.io import Input, Output
from drumline.spec.job import Job
from drumline.spec.parallel import Parallel, RetrySettings
from drumline.spec.parallel_component import ParallelComponent
from drumline.spec.pipeline import PipelineJob, PipelineJobSettings
from drumline.spec.resources import (
    CommandJobLimits,
    JobResourceConfiguration,
    QueueSettings,
    ResourceConfiguration,
)
from drumline.spec.services import (
    JobService,
    JupyterLabJobService,
    SshJobService,
    TensorBoardJobService,
    VsCodeJobService,
)
from drumline.spec.sweep import Sweep, SweepJob
from drumline.spec.trial import ParameterizedCommand
from drumline.spec.validate import ValidationResult
from drumline.spec.workspace import Workspace

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
