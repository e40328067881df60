"""Decisions about what happens next: to the ranks of an attempt, and after its end."""
