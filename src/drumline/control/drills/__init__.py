"""Drills: asking a job's supervisor to make a failure on purpose, and the words for it."""
