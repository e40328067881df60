"""Verbs of what jobs use by name: data, models, environments, components and datastores."""
