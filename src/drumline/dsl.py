"""``drumline.dsl``, in the place of ``azure.ai.ml.dsl``."""

from __future__ import annotations

from drumline.spec.dsl import pipeline

__all__ = ["pipeline"]
