"""Data, models, environments, components and datastores by name, and what references to them lead to."""
