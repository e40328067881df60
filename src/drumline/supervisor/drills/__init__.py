"""Drills of a job: failures that somebody makes on purpose, performed by its supervisor."""
