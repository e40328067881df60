"""Traps in job files and their code, told before a job runs."""
