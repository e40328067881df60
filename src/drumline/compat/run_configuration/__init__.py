"""Run configurations of SDK v1, with the environments and the data that they name."""
