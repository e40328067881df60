"""Environments that are built: by uv, by conda, or as an image of a container engine."""
