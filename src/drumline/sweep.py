"""The names of azure-ai-ml's ``azure.ai.ml.sweep``."""

from __future__ import annotations

from drumline.spec.jobs.sweep import SweepJob
from drumline.spec.parts.search import (
    BanditPolicy,
    BayesianSamplingAlgorithm,
    Choice,
    EarlyTerminationPolicy,
    GridSamplingAlgorithm,
    LogNormal,
    LogUniform,
    MedianStoppingPolicy,
    Normal,
    Objective,
    QLogNormal,
    QLogUniform,
    QNormal,
    QUniform,
    Randint,
    RandomSamplingAlgorithm,
    SamplingAlgorithm,
    SweepJobLimits,
    TruncationSelectionPolicy,
    Uniform,
)

__all__ = [
    "BanditPolicy",
    "BayesianSamplingAlgorithm",
    "Choice",
    "EarlyTerminationPolicy",
    "GridSamplingAlgorithm",
    "LogNormal",
    "LogUniform",
    "MedianStoppingPolicy",
    "Normal",
    "Objective",
    "QLogNormal",
    "QLogUniform",
    "QNormal",
    "QUniform",
    "Randint",
    "RandomSamplingAlgorithm",
    "SamplingAlgorithm",
    "SweepJob",
    "SweepJobLimits",
    "TruncationSelectionPolicy",
    "Uniform",
]
