"""Explanations of a job's end, in a sentence and in fields."""
