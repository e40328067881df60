"""Pipelines as Python functions."""
