"""Processes of the supervisor's own, beside the ranks."""
