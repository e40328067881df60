"""Runs of v1: jobs, what their ranks log, and the files that they leave."""
