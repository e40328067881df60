"""Data and models of v1, by name: datasets, datastores, models."""
