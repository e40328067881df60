"""Objects of ``azure.ml.component`` (v1.5) on top of today's components and pipelines."""
