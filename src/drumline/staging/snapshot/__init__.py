"""Snapshots of code: what belongs to them, where they are stored, and how they are taken."""
