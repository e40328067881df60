"""Checks of a whole job, beyond those of its single fields."""
