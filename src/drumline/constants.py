"""The constants that azure-ai-ml's users import."""

from __future__ import annotations

from drumline.spec.azure_words import (
    AssetTypes,
    DistributionType,
    InputOutputModes,
    InputTypes,
    JobStatus,
    JobType,
    ListViewType,
)

__all__ = [
    "AssetTypes",
    "DistributionType",
    "InputOutputModes",
    "InputTypes",
    "JobStatus",
    "JobType",
    "ListViewType",
]
