"""The constants that azure-ai-ml's users import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline import azure
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

if not TYPE_CHECKING:

    def __getattr__(name: str) -> type:
        return azure.stand_in(__name__, name, __all__)
