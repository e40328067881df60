"""Parts of the objects of a job on Kubernetes: all pure."""
