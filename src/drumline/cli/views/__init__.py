"""Verbs that look at jobs."""
