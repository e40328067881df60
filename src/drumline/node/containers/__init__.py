"""Ranks in containers of podman, docker or apptainer."""
