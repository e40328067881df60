"""Commands that try a job: failures on purpose, several sizes, several settings."""
