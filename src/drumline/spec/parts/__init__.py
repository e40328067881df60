"""What jobs are made of: inputs and outputs, resources, distributions, environments, search spaces and the like."""
