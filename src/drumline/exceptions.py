"""The exceptions that azure-ai-ml's users catch, each one of ours under their name for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline import azure
from drumline.contract.errors import (
    DrumlineError,
    EngineError,
    JobFailedError,
    NodeError,
    NotFoundError,
    PlanError,
    Problem,
    SpecError,
    UsageError,
)

MlException = DrumlineError
ValidationException = SpecError
ValidationError = SpecError
UserErrorException = SpecError
UnexpectedKeywordError = SpecError
JobException = JobFailedError
# Of azure.core.exceptions.
AzureError = DrumlineError
HttpResponseError = DrumlineError
ResourceNotFoundError = NotFoundError


class ErrorCategory:
    USER_ERROR = "UserError"
    SYSTEM_ERROR = "SystemError"
    UNKNOWN = "Unknown"


class ErrorTarget:
    JOB = "Job"
    COMMAND_JOB = "CommandJob"
    ENVIRONMENT = "Environment"
    COMPUTE = "Compute"
    DATA = "Data"
    COMPONENT = "Component"
    PIPELINE = "Pipeline"
    UNKNOWN = "Unknown"


__all__ = [
    "AzureError",
    "DrumlineError",
    "EngineError",
    "ErrorCategory",
    "ErrorTarget",
    "HttpResponseError",
    "JobException",
    "JobFailedError",
    "MlException",
    "NodeError",
    "NotFoundError",
    "PlanError",
    "Problem",
    "ResourceNotFoundError",
    "SpecError",
    "UnexpectedKeywordError",
    "UsageError",
    "UserErrorException",
    "ValidationError",
    "ValidationException",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> type:
        return azure.stand_in(__name__, name, __all__)
