"""Kubernetes: a small Job with the supervisor, and a Job whose pods are the nodes. None has rights inside."""
