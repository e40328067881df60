"""azureml-core's objects, for the jobs of this machine: workspace, experiment, run and compute."""
