"""The parts of jobs: inputs and outputs, resources, distributions, environments, search spaces and the like."""
