"""
The names of ``azure.ml.component`` (v1.5), for machines that people own.

``from drumline.component import Component, Pipeline, dsl`` takes the place of ``from azure.ml.component import ...``.
"""

from __future__ import annotations

from types import SimpleNamespace

from drumline.sdk.v1.runs.run import Run
from drumline.sdk.v15 import Component, Docker, Pipeline, pipeline

dsl = SimpleNamespace(pipeline=pipeline)
"""``@dsl.pipeline(name=..., default_compute_target=...)``."""

__all__ = ["Component", "Docker", "Pipeline", "Run", "dsl", "pipeline"]
