"""Older ways to write a job, translated to today's spec; nothing below knows that they existed."""
