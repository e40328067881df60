"""Metrics of jobs: MLflow's files and servers, TensorBoard's event files."""
