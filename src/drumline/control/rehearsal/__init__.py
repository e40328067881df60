"""Rehearsals: a job once undisturbed, and once for each drill."""
