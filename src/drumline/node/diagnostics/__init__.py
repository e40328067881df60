"""Diagnoses of ranks, where they are and why they ended: stacks, notes of exceptions, logs, memory and disks."""
