"""Commands that run a job several times to measure it."""
