"""
The statuses of a job, in Azure ML's spelling.

Source: https://learn.microsoft.com/azure/machine-learning/how-to-track-monitor-analyze-runs (run status).
"""

from __future__ import annotations

NOT_STARTED = "NotStarted"
QUEUED = "Queued"
PREPARING = "Preparing"
PROVISIONING = "Provisioning"
STARTING = "Starting"
RUNNING = "Running"
FINALIZING = "Finalizing"
CANCEL_REQUESTED = "CancelRequested"
COMPLETED = "Completed"
FAILED = "Failed"
CANCELED = "Canceled"
NOT_RESPONDING = "NotResponding"

TERMINAL = frozenset({COMPLETED, FAILED, CANCELED})
"""Once a job has one of these, its status never changes again."""

SKIPPED = "Skipped"
"""Of a step that was not started, because one before it failed; never of a job."""
