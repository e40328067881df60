"""The entities that azure-ai-ml's users import."""

from __future__ import annotations

from drumline.spec.command import Command, CommandJob
from drumline.spec.compute import AmlCompute, Compute, LocalCompute, SlurmCompute
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
from drumline.spec.sweep import SweepJob
from drumline.spec.validate import ValidationResult

__all__ = [
    "AmlCompute",
    "AmlTokenConfiguration",
    "BuildContext",
    "Command",
    "CommandJob",
    "CommandJobLimits",
    "Compute",
    "DistributionConfiguration",
    "Environment",
    "Input",
    "Job",
    "JobResourceConfiguration",
    "JobService",
    "JupyterLabJobService",
    "LocalCompute",
    "ManagedIdentityConfiguration",
    "MpiDistribution",
    "Output",
    "PipelineJob",
    "PipelineJobSettings",
    "PyTorchDistribution",
    "QueueSettings",
    "RayDistribution",
    "ResourceConfiguration",
    "SlurmCompute",
    "SshJobService",
    "SweepJob",
    "TensorBoardJobService",
    "TensorFlowDistribution",
    "UserIdentityConfiguration",
    "ValidationResult",
    "VsCodeJobService",
]
