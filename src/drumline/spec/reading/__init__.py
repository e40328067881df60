"""YAML files as trees that remember lines and columns."""
