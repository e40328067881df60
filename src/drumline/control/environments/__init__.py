"""Environments of jobs: which Python runs them, and what has to be built."""
